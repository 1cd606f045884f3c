// SPDX-License-Identifier: GPL-2.0
/*
 * On-demand memory at one end of a transfer only. A copy from or to it may be
 * preempted: the debug kernel reports a thread that may not be. Absent pages of the
 * process that posts are faulted in by the thread that posts.
 */
#include <sys/mman.h>
#include <sys/resource.h>

#include "qp.h"
#include "t.h"

#define PAGE	4096
#define PAGES	32
#define BYTES	(PAGES * PAGE)
#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |	\
		 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
/* Offset of an atomic operand. */
#define OPERAND	64

static char page[BYTES] __attribute__((aligned(PAGE)));
static struct ibv_pd *pd;
static struct ibv_mr *pinned;
static struct ibv_ah *ah;

/* On-demand memory whose pages are not present. */
struct absent {
	char *p;
	struct ibv_mr *mr;
};

static void setup(void)
{
	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	pinned = MUST(ibv_reg_mr(pd, page, BYTES, RIGHTS));
	ah = ah_self(pd);
}

static struct absent absent_new(void)
{
	struct absent a;

	a.p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(a.p != MAP_FAILED);
	a.mr = MUST(ibv_reg_mr(pd, a.p, BYTES, RIGHTS | IBV_ACCESS_ON_DEMAND));
	memset(page, 'p', BYTES);
	return a;
}

static void absent_free(struct absent *a)
{
	CHECK_OK(ibv_dereg_mr(a->mr));
	SYS(munmap(a->p, BYTES));
}

/* Send a message: of a UD QP, the header comes before it. */
static void send_to(struct link *l, struct mem from, struct mem to)
{
	bool ud = l->qp[0]->qp_type == IBV_QPT_UD;
	struct ibv_send_wr *wr = send_wr(IBV_WR_SEND, 1, from);

	if (ud)
		wr_to(wr, ah, l->qp[1]);
	post_recv(l->qp[1], 2, to);
	post(l->qp[0], wr);
	CHECK_EQ(CHECK_WC(l->cq[1], 2, IBV_WC_SUCCESS).byte_len,
		 from.len + (ud ? 40 : 0));
	CHECK_WC(l->cq[0], 1, IBV_WC_SUCCESS);
}

/* The message comes from on-demand memory: page 1 is present, page 2 is not. */
static void from_absent(struct link *l, uint32_t len)
{
	uint32_t grh = l->qp[0]->qp_type == IBV_QPT_UD ? 40 : 0;
	struct absent a = absent_new();

	memset(a.p + PAGE, 'a', PAGE);
	send_to(l, (struct mem){ a.p + 2 * PAGE - len / 2, len, a.mr->lkey },
		MEM(pinned));
	CHECK_ALL(page + grh, 'a', len / 2);
	CHECK_ALL(page + grh + len / 2, 0, len - len / 2);
	CHECK_ALL(page + grh + len, 'p', BYTES - grh - len);
	absent_free(&a);
}

static void to_absent(struct link *l, uint32_t len)
{
	uint32_t grh = l->qp[0]->qp_type == IBV_QPT_UD ? 40 : 0;
	struct absent a = absent_new();

	send_to(l, (struct mem){ page, len, pinned->lkey },
		(struct mem){ a.p + 1, BYTES - 1, a.mr->lkey });
	CHECK_ALL(a.p + 1 + grh, 'p', len);
	CHECK_ALL(a.p + 1 + grh + len, 0, BYTES - 1 - grh - len);
	absent_free(&a);
}

static void inline_to_absent(struct link *l)
{
	struct absent a = absent_new();
	struct ibv_send_wr *wr = send_wr(IBV_WR_SEND, 3, (struct mem){ page, 64, 0 });

	wr->send_flags |= IBV_SEND_INLINE;
	post_recv(l->qp[1], 4, (struct mem){ a.p, BYTES, a.mr->lkey });
	post(l->qp[0], wr);
	CHECK_EQ(CHECK_WC(l->cq[1], 4, IBV_WC_SUCCESS).byte_len, 64);
	CHECK_WC(l->cq[0], 3, IBV_WC_SUCCESS);
	CHECK_ALL(a.p, 'p', 64);
	CHECK_ALL(a.p + 64, 0, BYTES - 64);
	absent_free(&a);
}

TEST(messages, "DEV-2", "messages arrive whole from on-demand to pinned memory and from pinned memory or inline data to on-demand memory, on RC, UC and UD")
{
	static const enum ibv_qp_type types[] = {
		IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
	};
	struct link l;
	uint32_t len;
	int i;

	setup();
	for (i = 0; i < 3; i++) {
		l = link_new(pd, pd, types[i]);
		/* A datagram is at most as long as the MTU. */
		len = types[i] == IBV_QPT_UD ? 1000 : PAGE + 1000;
		from_absent(&l, len);
		to_absent(&l, len);
		if (types[i] != IBV_QPT_UD)
			inline_to_absent(&l);
		CHECK_NO_WC(l.cq[0]);
		CHECK_NO_WC(l.cq[1]);
		CHECK_NO_EVENT(l.ctx);
		link_free(&l);
	}
}

/* Read or write all bytes. */
static void rdma(struct link *l, enum ibv_wr_opcode op, struct ibv_mr *local,
		 struct ibv_mr *remote)
{
	post_rdma(l->qp[0], op, 5, MEM(local), (uintptr_t)remote->addr, remote->rkey);
	CHECK_WC(l->cq[0], 5, IBV_WC_SUCCESS);
}

static void add(struct link *l, struct ibv_mr *local, struct ibv_mr *remote)
{
	post_add(l->qp[0], 6, (struct mem){ local->addr, 8, local->lkey },
		 (uintptr_t)remote->addr + OPERAND, remote->rkey, 3);
	CHECK_WC(l->cq[0], 6, IBV_WC_SUCCESS);
}

static uint64_t operand(const char *p)
{
	uint64_t value;

	memcpy(&value, p, sizeof(value));
	return value;
}

TEST(remote, "DEV-2", "RDMA writes, reads and atomics between pinned memory and on-demand memory that is not present transfer all bytes")
{
	struct absent a;
	struct link l;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	a = absent_new();
	rdma(&l, IBV_WR_RDMA_WRITE, pinned, a.mr);
	CHECK_ALL(a.p, 'p', BYTES);
	absent_free(&a);

	a = absent_new();
	rdma(&l, IBV_WR_RDMA_WRITE, a.mr, pinned);
	CHECK_ALL(page, 0, BYTES);
	absent_free(&a);

	a = absent_new();
	rdma(&l, IBV_WR_RDMA_READ, pinned, a.mr);
	CHECK_ALL(page, 0, BYTES);
	absent_free(&a);

	a = absent_new();
	rdma(&l, IBV_WR_RDMA_READ, a.mr, pinned);
	CHECK_ALL(a.p, 'p', BYTES);
	absent_free(&a);

	/* The operand is in on-demand memory, and then the old value. */
	a = absent_new();
	add(&l, pinned, a.mr);
	CHECK_EQ(operand(page), 0);
	CHECK_EQ(operand(a.p + OPERAND), 3);
	absent_free(&a);
	a = absent_new();
	memset(page + OPERAND, 0, 8);
	add(&l, a.mr, pinned);
	CHECK_EQ(operand(a.p), 0);
	CHECK_EQ(operand(page + OPERAND), 3);
	add(&l, a.mr, pinned);
	CHECK_EQ(operand(a.p), 3);
	CHECK_EQ(operand(page + OPERAND), 6);
	absent_free(&a);
	CHECK_NO_EVENT(l.ctx);
	link_free(&l);
}

/* Page faults of this thread, in the kernel, too. */
static long faults(void)
{
	struct rusage usage;

	SYS(getrusage(RUSAGE_THREAD, &usage));
	return usage.ru_minflt;
}

enum fault_kind { READ_TO, WRITE_TO, RECV_TO, KINDS };

/* Returns the page faults of this thread during the call. */
static long faults_of(struct link *l, enum fault_kind kind, struct ibv_mr *mr)
{
	long before;

	if (kind == RECV_TO)
		post_recv(l->qp[1], 7, MEM(mr));
	before = faults();
	if (kind == RECV_TO)
		post_send(l->qp[0], 8, MEM(pinned));
	else if (kind == READ_TO)
		post_rdma(l->qp[0], IBV_WR_RDMA_READ, 8, MEM(mr),
			  (uintptr_t)page, pinned->rkey);
	else
		post_rdma(l->qp[0], IBV_WR_RDMA_WRITE, 8, MEM(pinned),
			  (uintptr_t)mr->addr, mr->rkey);
	before = faults() - before;
	CHECK_WC(l->cq[0], 8, IBV_WC_SUCCESS);
	if (kind == RECV_TO)
		CHECK_WC(l->cq[1], 7, IBV_WC_SUCCESS);
	return before;
}

TEST(own_faults, "ISO-2", "absent pages of a process's own on-demand memory, at either end, are faulted in by the thread that posts, not by another one")
{
	enum fault_kind kind;
	struct absent a;
	struct link l;
	int tries;
	long n;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	for (kind = 0; kind < KINDS; kind++) {
		/*
		 * A thread that gets no processor for 100 ms leaves the message to
		 * the worker.
		 */
		for (tries = 0, n = 0; n < PAGES && tries < 10; tries++) {
			a = absent_new();
			n = faults_of(&l, kind, a.mr);
			CHECK_ALL(a.p, 'p', BYTES);
			absent_free(&a);
		}
		t_note("kind %d: %ld page faults in attempt %d", kind, n, tries);
		CHECK(n >= PAGES);
	}
	link_free(&l);
}
