// SPDX-License-Identifier: GPL-2.0
/*
 * Long messages. See big.h.
 */
#include <sys/mman.h>

#include "big.h"
#include "qp.h"
#include "t.h"

static unsigned char *map(void *at, size_t len, int fd, off_t off)
{
	unsigned char *p = mmap(at, len, PROT_READ | PROT_WRITE,
				MAP_SHARED | (at ? MAP_FIXED : 0), fd, off);

	if (p == MAP_FAILED)
		FAIL("mmap of %zu bytes: got %s", len, t_errname(errno));
	return p;
}

struct big big_new(void)
{
	struct big b = { .fd = SYS(memfd_create("big", MFD_CLOEXEC)) };

	SYS(ftruncate(b.fd, BIG_FLAT));
	b.flat = big_map_flat(&b);
	return b;
}

unsigned char *big_map_flat(const struct big *b)
{
	return map(NULL, BIG_FLAT, b->fd, 0);
}

unsigned char *big_map_long(const struct big *b, int copies)
{
	size_t len = BIG_LEN(copies);
	unsigned char *p = mmap(NULL, len, PROT_NONE, MAP_PRIVATE |
				MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int i;

	CHECK(p != MAP_FAILED);
	map(p, BIG_PAGE, b->fd, 0);
	for (i = 0; i < copies; i++)
		map(p + BIG_PAGE + i * BIG_BODY, BIG_BODY, b->fd, BIG_PAGE);
	map(p + len - BIG_PAGE, BIG_PAGE, b->fd, BIG_FLAT - BIG_PAGE);
	return p;
}

void big_clear(struct big *b)
{
	memset(b->flat, 0, BIG_PAGE);
	memset(b->flat + BIG_FLAT - BIG_PAGE, 0, BIG_PAGE);
}

bool big_began(const struct big *b)
{
	return __atomic_load_n(b->flat, __ATOMIC_ACQUIRE);
}

bool big_ended(const struct big *b)
{
	return __atomic_load_n(b->flat + BIG_FLAT - 1, __ATOMIC_ACQUIRE);
}

struct ibv_qp *big_qp(struct ibv_pd *pd, struct ibv_cq *cq,
		      enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = type,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8,
			 .max_send_sge = BIG_MOST + 2, .max_recv_sge = 1 },
	};

	return MUST(ibv_create_qp(pd, &init));
}

void big_post(struct ibv_qp *qp, enum ibv_wr_opcode op, uint64_t wr_id,
	      const void *flat, uint32_t lkey, int copies, uint64_t addr,
	      uint32_t rkey)
{
	uint64_t at = (uintptr_t)flat;
	struct ibv_sge sge[BIG_MOST + 2] = { { at, BIG_PAGE, lkey } };
	struct ibv_send_wr wr = {
		.wr_id = wr_id, .opcode = op, .sg_list = sge,
		.num_sge = copies + 2, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = addr, .rkey = rkey },
	};
	int i;

	CHECK(copies <= BIG_MOST);
	for (i = 1; i <= copies; i++)
		sge[i] = (struct ibv_sge){ at + BIG_PAGE, BIG_BODY, lkey };
	sge[i] = (struct ibv_sge){ at + BIG_FLAT - BIG_PAGE, BIG_PAGE, lkey };
	post(qp, &wr);
}

void big_prove(struct ibv_qp *qp, struct ibv_cq *cq)
{
	static char buf[2 * 64] __attribute__((aligned(128)));
	struct ibv_mr *mr = MUST(ibv_reg_mr(qp->pd, buf, sizeof(buf),
					    IBV_ACCESS_LOCAL_WRITE));
	struct ibv_qp *with = big_qp(qp->pd, cq, qp->qp_type);

	CHECK_NO_WC(cq);
	qp_to(qp, IBV_QPS_RESET);
	qp_join(qp, with);
	memset(buf, 'p', 64);
	memset(buf + 64, 0, 64);
	post_recv(with, 11, (struct mem){ buf + 64, 64, mr->lkey });
	post_send(qp, 12, (struct mem){ buf, 64, mr->lkey });
	CHECK_WC(cq, 11, IBV_WC_SUCCESS);
	CHECK_WC(cq, 12, IBV_WC_SUCCESS);
	CHECK_ALL(buf + 64, 'p', 64);
	CHECK_OK(ibv_destroy_qp(with));
	CHECK_OK(ibv_dereg_mr(mr));
}
