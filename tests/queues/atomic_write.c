// SPDX-License-Identifier: GPL-2.0
/*
 * Atomic write: memory holds all 8 new bytes or none of them.
 */
#include <pthread.h>
#include <sys/mman.h>

#include <infiniband/keeldv.h>
#include <rdma/ib_user_verbs.h>

#include "dev.h"
#include "peer.h"
#include "qp.h"
#include "t.h"

#define PAGE	4096
#define LW	IBV_ACCESS_LOCAL_WRITE
#define RR	IBV_ACCESS_REMOTE_READ
#define RW	IBV_ACCESS_REMOTE_WRITE
#define RA	IBV_ACCESS_REMOTE_ATOMIC
#define ALL	(RR | RW | RA)
#define OPS	(IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_RDMA_WRITE)
#define COUNTER	"atomic_writes"

/* Bytes in memory order, lowest address first. */
static const unsigned char value[8] = { 0x11, 0x22, 3, 4, 5, 6, 0x77, 0x88 };

static char from[PAGE] __attribute__((aligned(PAGE)));
static char to[PAGE] __attribute__((aligned(PAGE)));

static struct ibv_pd *pd;
static struct ibv_mr *src, *dst;

/* The first QP has ibv_wr_atomic_write(). */
static struct link setup(void)
{
	if (!pd) {
		pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
		src = MUST(ibv_reg_mr(pd, from, PAGE, LW));
		dst = MUST(ibv_reg_mr(pd, to, PAGE, LW | RW));
	}
	memset(from, 'f', PAGE);
	memset(to, 't', PAGE);
	return link_new_ex(pd, OPS);
}

static void write_8(struct link *l, uint64_t wr_id, uint64_t addr,
		    uint32_t rkey, const void *bytes)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(l->qp[0]);

	wr_begin(qp, wr_id);
	ibv_wr_atomic_write(qp, rkey, addr, bytes);
	wr_end(qp);
}

/* Check that value is at @off and that no other byte changed. */
static void check_there(const char *mem, int byte, size_t off)
{
	CHECK_ALL(mem, byte, off);
	CHECK_MEM(mem + off, value, 8);
	CHECK_ALL(mem + off + 8, byte, PAGE - off - 8);
}

TEST(offered, "DEV-2", "the device reports atomic write, RC and XRC QPs can be created with atomic write, UC and UD QPs cannot")
{
	struct link l = setup();
	struct ibv_device_attr_ex attr;

	CHECK_OK(ibv_query_device_ex(l.ctx, NULL, &attr));
	CHECK(attr.device_cap_flags_ex & IB_UVERBS_DEVICE_ATOMIC_WRITE);
	qp_check_reliable(pd, IBV_QP_EX_WITH_ATOMIC_WRITE);
	link_free(&l);
}

TEST(call, "DEV-4", "ibv_wr_atomic_write() stores its 8 bytes at its address and nowhere else, and completes as IBV_WC_ATOMIC_WRITE")
{
	static const size_t offs[] = { 0, 8, 64, PAGE - 8 };
	struct link l = setup();
	long before = dev_counter(COUNTER);
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 4; i++) {
		memset(to, 't', PAGE);
		write_8(&l, i, (uintptr_t)to + offs[i], dst->rkey, value);
		wc = CHECK_WC(l.cq[0], i, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, IBV_WC_ATOMIC_WRITE);
		CHECK_EQ(wc.qp_num, l.qp[0]->qp_num);
		check_there(to, 't', offs[i]);
	}
	/* ib_core caches counters for 10 ms. */
	usleep(20000);
	CHECK_EQ(dev_counter(COUNTER), before + 4);
	/* The responder's application gets no CQE. */
	CHECK_NO_WC(l.cq[1]);
	link_free(&l);
}

TEST(post, "DEV-4", "ibv_post_send() takes the 8 bytes of an atomic write from one SGE, from several SGEs or inline")
{
	struct ibv_sge sge[3];
	struct ibv_send_wr *wr;
	struct ibv_wc wc;
	struct link l;
	int i;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	for (i = 0; i < 3; i++) {
		memset(from, 'f', PAGE);
		memset(to, 't', PAGE);
		memcpy(from + 33, value, 8);
		wr = send_wr(IBV_WR_ATOMIC_WRITE, i,
			     (struct mem){ from + 33, 8, src->lkey });
		wr->wr.rdma.remote_addr = (uintptr_t)to + 16;
		wr->wr.rdma.rkey = dst->rkey;
		if (i == 1) {
			sge[0] = (struct ibv_sge){ (uintptr_t)from + 33, 3,
						   src->lkey };
			sge[1] = (struct ibv_sge){ 0, 0, 0 };
			sge[2] = (struct ibv_sge){ (uintptr_t)from + 36, 5,
						   src->lkey };
			wr->sg_list = sge;
			wr->num_sge = 3;
		} else if (i == 2) {
			wr->sg_list->lkey = 0;
			wr->send_flags |= IBV_SEND_INLINE;
		}
		post(l.qp[0], wr);
		wc = CHECK_WC(l.cq[0], i, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, IBV_WC_ATOMIC_WRITE);
		check_there(to, 't', 16);
	}
	link_free(&l);
}

TEST(setters, "DEV-4", "ibv_wr_complete() returns EINVAL for an atomic write with other data, and posts nothing of the batch")
{
	struct ibv_data_buf buf = { (void *)value, 8 };
	struct ibv_sge sge = { (uintptr_t)from, 8, 0 };
	struct link l = setup();
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(l.qp[0]);
	int i;

	sge.lkey = src->lkey;
	for (i = 0; i < 4; i++) {
		wr_begin(qp, 1);
		ibv_wr_atomic_write(qp, dst->rkey, (uintptr_t)to, value);
		if (i == 0)
			ibv_wr_set_sge(qp, src->lkey, (uintptr_t)from, 8);
		else if (i == 1)
			ibv_wr_set_sge_list(qp, 1, &sge);
		else if (i == 2)
			ibv_wr_set_inline_data(qp, (void *)value, 8);
		else
			ibv_wr_set_inline_data_list(qp, 1, &buf);
		CHECK_RET(ibv_wr_complete(qp), EINVAL);
	}
	CHECK_NO_WC(l.cq[0]);
	CHECK_ALL(to, 't', PAGE);
	link_free(&l);
}

TEST(length, "DEV-4", "an atomic write of other than 8 bytes is a local length error, by an unknown lkey a local protection error")
{
	static const uint32_t lengths[] = { 0, 4, 7, 9, 16 };
	struct link l;
	int i;

	for (i = 0; i < 6; i++) {
		l = setup();
		post_rdma(l.qp[0], IBV_WR_ATOMIC_WRITE, 1,
			  i < 5 ? (struct mem){ from, lengths[i], src->lkey } :
				  (struct mem){ from, 8, src->lkey ^ 1 },
			  (uintptr_t)to, dst->rkey);
		CHECK_WC(l.cq[0], 1, i < 5 ? IBV_WC_LOC_LEN_ERR :
					     IBV_WC_LOC_PROT_ERR);
		CHECK_STATE(l.qp[0], IBV_QPS_ERR);
		CHECK_STATE(l.qp[1], IBV_QPS_RTS);
		CHECK_NO_EVENT(l.ctx);
		CHECK_ALL(to, 't', PAGE);
		link_free(&l);
	}
}

struct refused {
	const char *what;
	unsigned int rights;	/* of the MR */
	unsigned int qp;	/* of the responder */
	long off;
	uint32_t xor;		/* flips bits of the key */
	enum ibv_wc_status status;
};

TEST(refused, "PD-4,DEV-4", "the responder refuses an atomic write without the right or with an unaligned address, with an event, and stores nothing")
{
	static const struct refused cases[] = {
		{ "region without remote write", LW | RR | RA, ALL, 0, 0,
		  IBV_WC_REM_ACCESS_ERR },
		{ "before it", LW | RW, ALL, -8, 0, IBV_WC_REM_ACCESS_ERR },
		{ "behind it", LW | RW, ALL, PAGE, 0, IBV_WC_REM_ACCESS_ERR },
		{ "far away", LW | RW, ALL, 1L << 62, 0,
		  IBV_WC_REM_ACCESS_ERR },
		{ "other tag", LW | RW, ALL, 0, 1, IBV_WC_REM_ACCESS_ERR },
		{ "other key", LW | RW, ALL, 0, 1U << 31,
		  IBV_WC_REM_ACCESS_ERR },
		{ "QP without remote write", LW | RW, RR | RA, 0, 0,
		  IBV_WC_REM_INV_REQ_ERR },
		{ "1 too far", LW | RW, ALL, 1, 0, IBV_WC_REM_INV_REQ_ERR },
		{ "4 too far", LW | RW, ALL, 4, 0, IBV_WC_REM_INV_REQ_ERR },
		{ "across its end", LW | RW, ALL, PAGE - 4, 0,
		  IBV_WC_REM_INV_REQ_ERR },
		{}
	};
	const struct refused *c;
	struct ibv_mr *mr;
	struct link l;

	for (c = cases; c->what; c++) {
		t_note("%s", c->what);
		l = setup();
		mr = MUST(ibv_reg_mr(pd, to, PAGE, c->rights));
		qp_allow(l.qp[1], c->qp);
		write_8(&l, 1, (uintptr_t)to + c->off, mr->rkey ^ c->xor, value);
		CHECK_WC(l.cq[0], 1, c->status);
		CHECK_EVENT(l.ctx, c->status == IBV_WC_REM_ACCESS_ERR ?
			    IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR,
			    l.qp[1]);
		CHECK_STATE(l.qp[0], IBV_QPS_ERR);
		CHECK_STATE(l.qp[1], IBV_QPS_ERR);
		CHECK_ALL(to, 't', PAGE);
		link_free(&l);
		CHECK_OK(ibv_dereg_mr(mr));
	}
}

TEST(depth, "DEV-4", "an atomic write counts as a read: read depth 0 is a local operation error at the requester, an invalid request at the responder")
{
	struct link l;
	int i;

	for (i = 0; i < 2; i++) {
		l = setup();
		qp_no_reads(l.qp[i], !i);
		write_8(&l, 1, (uintptr_t)to, dst->rkey, value);
		CHECK_WC(l.cq[0], 1, i ? IBV_WC_REM_INV_REQ_ERR :
					 IBV_WC_LOC_QP_OP_ERR);
		CHECK_ALL(to, 't', PAGE);
		link_free(&l);
	}
}

TEST(memory, "DEV-4", "an atomic write is aligned by its address in memory, and reaches on-demand memory until munmap()")
{
	struct link l = setup();
	struct ibv_mr *mr;
	char *map;

	mr = MUST(ibv_reg_mr(pd, to + 4, 64, LW | RW | IBV_ACCESS_ZERO_BASED));
	write_8(&l, 1, 0, mr->rkey, value);
	CHECK_WC(l.cq[0], 1, IBV_WC_REM_INV_REQ_ERR);
	CHECK_ALL(to, 't', PAGE);
	CHECK_OK(ibv_dereg_mr(mr));
	link_free(&l);

	l = setup();
	mr = MUST(ibv_reg_mr(pd, to + 8, 64, LW | RW | IBV_ACCESS_ZERO_BASED));
	write_8(&l, 2, 8, mr->rkey, value);
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	check_there(to, 't', 16);
	CHECK_OK(ibv_dereg_mr(mr));

	map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(map != MAP_FAILED);
	mr = MUST(ibv_reg_mr(pd, map, PAGE, LW | RW | IBV_ACCESS_ON_DEMAND));
	write_8(&l, 3, (uintptr_t)map + 24, mr->rkey, value);
	CHECK_WC(l.cq[0], 3, IBV_WC_SUCCESS);
	check_there(map, 0, 24);
	CHECK_OK(munmap(map, PAGE));
	write_8(&l, 4, (uintptr_t)map, mr->rkey, value);
	CHECK_WC(l.cq[0], 4, IBV_WC_REM_ACCESS_ERR);
	link_free(&l);
}

/* A mapping of device memory. */
static unsigned char *map;
static volatile bool done;

/* Count loads that return neither of the two written values. */
static void *looker(void *arg)
{
	uint64_t seen, halves = 0;

	while (!done) {
		seen = __atomic_load_n((uint64_t *)(map + 8), __ATOMIC_RELAXED);
		halves += seen + 1 > 1;
	}
	return (void *)halves;
}

TEST_SLOW(device_memory, "DM-10", "no reader sees a part of an atomic write to device memory, other bytes stay, and an unaligned address is refused", 60)
{
	static const uint64_t none = 0, all = -1ULL;
	struct ibv_alloc_dm_attr attr = { .length = PAGE };
	int i, rounds = t_rounds(5000);
	struct link l = setup();
	struct ibv_mr *mr;
	struct ibv_dm *dm;
	pthread_t thread;
	void *halves;

	dm = MUST(ibv_alloc_dm(l.ctx, &attr));
	map = MUST(keeldv_dm_map(dm));
	mr = MUST(ibv_reg_dm_mr(pd, dm, 0, PAGE, LW | RW |
				IBV_ACCESS_ZERO_BASED));
	CHECK_OK(pthread_create(&thread, NULL, looker, NULL));
	for (i = 0; i < rounds; i++) {
		write_8(&l, i, 8, mr->rkey, i % 2 ? &none : &all);
		CHECK_WC(l.cq[0], i, IBV_WC_SUCCESS);
		CHECK_EQ(*(uint64_t *)(map + 8), i % 2 ? none : all);
	}
	done = true;
	CHECK_OK(pthread_join(thread, &halves));
	CHECK_EQ((uintptr_t)halves, 0);
	CHECK_ALL(map, 0, 8);
	CHECK_ALL(map + 16, 0, PAGE - 16);
	write_8(&l, 1, 8, mr->rkey, value);
	CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
	check_there((char *)map, 0, 8);
	CHECK_OK(ibv_dereg_mr(mr));
	mr = MUST(ibv_reg_dm_mr(pd, dm, 4, 64, LW | RW |
				IBV_ACCESS_ZERO_BASED));
	write_8(&l, 2, 0, mr->rkey, value);
	CHECK_WC(l.cq[0], 2, IBV_WC_REM_INV_REQ_ERR);
	check_there((char *)map, 0, 8);
	link_free(&l);
}

/* The responder sends these values to the requester. */
struct told {
	uint32_t qpn, rkey;
	uint64_t addr;
};

#define RECORDS	64
#define RECORD	(PAGE / RECORDS)

/* Wait for the number of a record, then check the record. */
static void reader(struct peer *parent)
{
	struct link l = setup();
	struct told told = { l.qp[1]->qp_num, dst->rkey, (uintptr_t)to };
	uint64_t *number = (uint64_t *)(to + PAGE - 8);
	uint32_t qpn;
	int i;

	*number = 0;
	peer_put_var(parent, told);
	peer_get_var(parent, qpn);
	qp_to(l.qp[1], IBV_QPS_RESET);
	qp_connect(l.qp[1], qpn);
	peer_tell(parent);
	for (i = 1; i < RECORDS; i++) {
		while (__atomic_load_n(number, __ATOMIC_ACQUIRE) < (unsigned int)i)
			;
		CHECK_ALL(to + (i - 1) * RECORD, i, RECORD);
	}
}

TEST(processes, "DEV-4", "a process that sees a number written by an atomic write sees all RDMA writes before the atomic write")
{
	struct ibv_qp_ex *qp;
	struct peer peer;
	struct told told;
	struct link l;
	uint64_t i;

	peer_start(&peer, reader);
	peer_get_var(&peer, told);
	l = setup();
	qp = ibv_qp_to_qp_ex(l.qp[0]);
	qp_to(l.qp[0], IBV_QPS_RESET);
	qp_connect(l.qp[0], told.qpn);
	peer_put_var(&peer, l.qp[0]->qp_num);
	peer_wait(&peer);
	for (i = 1; i < RECORDS; i++) {
		memset(from, i, RECORD);
		ibv_wr_start(qp);
		qp->wr_flags = 0;
		ibv_wr_rdma_write(qp, told.rkey, told.addr + (i - 1) * RECORD);
		ibv_wr_set_sge(qp, src->lkey, (uintptr_t)from, RECORD);
		qp->wr_id = i;
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_atomic_write(qp, told.rkey, told.addr + PAGE - 8, &i);
		wr_end(qp);
		CHECK_WC(l.cq[0], i, IBV_WC_SUCCESS);
	}
	peer_end(&peer);
	link_free(&l);
}
