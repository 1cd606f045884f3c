// SPDX-License-Identifier: GPL-2.0
/*
 * Messages of each shape that the fast path supports, and of shapes next to them, on the
 * fast path and on the slow path: an application must see no difference. The counter
 * fast_msgs tells which path a message took. The first message of a connection takes the
 * slow path, and so does a datagram to on-demand memory.
 */
#include "dev.h"
#include "qp.h"
#include "t.h"

#define PAGE	4096
#define ROOM	(3 * PAGE)
#define LW	IBV_ACCESS_LOCAL_WRITE
#define REMOTE	(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |	\
		 IBV_ACCESS_REMOTE_ATOMIC)
#define IMM	0x12345678
#define GRH	40

enum op { SEND, WRITE, READ, SWAP, NO_SWAP, ADD };

/* A fault of the responder's key. */
enum lack { NOTHING, KEY, DOMAIN, BYTE, RIGHT, QP_RIGHT };

/* No completion. */
#define NO_WC	-1

struct shape {
	const char *name;
	enum op op;
	uint32_t len;
	uint32_t from_at, to_at;	/* offset in a page of each buffer's first byte */
	int from_sges, to_sges;		/* 0: 1 */
	unsigned int flags;
	bool imm, srq, stamps;
	bool foreign_srq;		/* the SRQ belongs to the PD "foreign" */
	enum lack lack;
	bool slow;			/* never on the fast path */
	int sender, receiver;		/* status of the completions */
};

#define OK		.sender = IBV_WC_SUCCESS, .receiver = IBV_WC_SUCCESS
#define ONE_SIDED	.sender = IBV_WC_SUCCESS, .receiver = NO_WC
#define REFUSED		.sender = IBV_WC_REM_ACCESS_ERR, .receiver = NO_WC, .slow = true

static const struct shape shapes[] = {
	{ "send of no byte", SEND, 0, OK },
	{ "send across two pages", SEND, 100, PAGE - 37, PAGE - 50, OK },
	{ "send of a page, across two", SEND, PAGE, 8, 16, OK },
	{ "send of a page and a byte", SEND, PAGE + 1, OK, .slow = true },
	{ "send of 4 SGEs", SEND, 1000, 3, 5, 4, 1, OK },
	{ "send of 4 SGEs to 3, across pages", SEND, PAGE, PAGE - 5, 9, 4, 3, OK },
	{ "send with immediate data", SEND, 64, OK, .imm = true },
	{ "inline send with immediate data", SEND, 60, OK, .imm = true,
	  .flags = IBV_SEND_INLINE },
	{ "inline send to 3 SGEs", SEND, 60, OK, .to_sges = 3,
	  .flags = IBV_SEND_INLINE },
	{ "solicited send", SEND, 64, OK, .flags = IBV_SEND_SOLICITED },
	{ "send to an SRQ", SEND, 64, OK, .srq = true },
	{ "send of 2 SGEs with immediate data to an SRQ", SEND, 100, 1, PAGE - 1, 2,
	  OK, .imm = true, .srq = true },
	{ "send to a CQ with timestamps", SEND, 64, OK, .stamps = true },
	{ "write", WRITE, 64, ONE_SIDED },
	{ "write of no byte", WRITE, 0, ONE_SIDED },
	{ "write of a page across two", WRITE, PAGE, 1, PAGE - 1, ONE_SIDED },
	{ "write of 7 bytes", WRITE, 7, 1, 2, ONE_SIDED },
	{ "write of 4 SGEs", WRITE, 999, PAGE - 500, 7, 4, ONE_SIDED },
	{ "inline write", WRITE, 60, ONE_SIDED, .flags = IBV_SEND_INLINE },
	{ "write of a page and a byte", WRITE, PAGE + 1, ONE_SIDED, .slow = true },
	{ "write with immediate data", WRITE, 64, OK, .imm = true },
	{ "write of no byte with immediate data", WRITE, 0, OK, .imm = true },
	{ "solicited write with immediate data to an SRQ", WRITE, 64, OK, .imm = true,
	  .srq = true, .flags = IBV_SEND_SOLICITED },
	{ "read", READ, 64, ONE_SIDED },
	{ "read of a page across two", READ, PAGE, PAGE - 3, 5, ONE_SIDED },
	{ "read to 4 SGEs", READ, 1001, PAGE - 10, PAGE - 9, 4, ONE_SIDED },
	{ "read of a page and a byte", READ, PAGE + 1, ONE_SIDED, .slow = true },
	{ "swap", SWAP, 8, 0, 8, ONE_SIDED },
	{ "swap that compares unequal", NO_SWAP, 8, 4, 16, ONE_SIDED },
	{ "add, its result across two pages", ADD, 8, PAGE - 3, PAGE - 8, ONE_SIDED },
	{ "add, its result in 2 SGEs", ADD, 8, 1, 0, 2, ONE_SIDED },
	{ "write without a key", WRITE, 64, REFUSED, .lack = KEY },
	{ "write to another domain", WRITE, 64, REFUSED, .lack = DOMAIN },
	{ "write beyond the end", WRITE, 64, REFUSED, .lack = BYTE },
	{ "write without the right", WRITE, 64, REFUSED, .lack = RIGHT },
	{ "read without the right", READ, 64, REFUSED, .lack = RIGHT },
	{ "add without the right", ADD, 8, REFUSED, .lack = RIGHT },
	{ "write that the QP forbids", WRITE, 64, .lack = QP_RIGHT, .slow = true,
	  .sender = IBV_WC_REM_INV_REQ_ERR, .receiver = NO_WC },
	{ "read that the QP forbids", READ, 64, .lack = QP_RIGHT, .slow = true,
	  .sender = IBV_WC_REM_INV_REQ_ERR, .receiver = NO_WC },
	{ "add that the QP forbids", ADD, 8, .lack = QP_RIGHT, .slow = true,
	  .sender = IBV_WC_REM_INV_REQ_ERR, .receiver = NO_WC },
	{ "add that is not aligned", ADD, 8, 0, 4, .slow = true,
	  .sender = IBV_WC_REM_INV_REQ_ERR, .receiver = NO_WC },
	{ "write with immediate data without a key", WRITE, 64, .imm = true,
	  .lack = KEY, .slow = true, .sender = IBV_WC_REM_ACCESS_ERR,
	  .receiver = IBV_WC_REM_ACCESS_ERR },
	{ "send to an SRQ of another PD, whose key it names", SEND, 64, OK, .srq = true,
	  .foreign_srq = true, .lack = DOMAIN },
	{ "send to an SRQ of another PD, with a key of the QP's PD", SEND, 64,
	  .srq = true, .foreign_srq = true, .slow = true,
	  .sender = IBV_WC_REM_OP_ERR, .receiver = IBV_WC_LOC_PROT_ERR },
	{ "write with immediate data, to an SRQ of another PD", WRITE, 64, OK,
	  .imm = true, .srq = true, .foreign_srq = true },
	{ "send to an SRQ, without a key", SEND, 64, .srq = true, .lack = KEY,
	  .slow = true, .sender = IBV_WC_REM_OP_ERR,
	  .receiver = IBV_WC_LOC_PROT_ERR },
};

#define SHAPES	(int)(sizeof(shapes) / sizeof(*shapes))

static unsigned char from[ROOM] __attribute__((aligned(PAGE)));
static unsigned char to[ROOM] __attribute__((aligned(PAGE)));
static struct ibv_pd *pd, *foreign;

static const char * const counters[] = {
	"tx_msgs", "tx_bytes", "rx_msgs", "rx_bytes", "rdma_writes", "rdma_reads",
	"atomics", "ud_drops", "wc_errors", "cq_overruns", "fast_msgs",
};

#define COUNTERS	(int)(sizeof(counters) / sizeof(*counters))
#define FAST_MSGS	(COUNTERS - 1)

/* A connection: the first QP sends to the second one. */
struct wire {
	enum ibv_qp_type type;
	struct ibv_cq *cq[2];
	struct ibv_qp *qp[2];
	struct ibv_srq *srq;
	struct ibv_xrcd *xrcd;
	struct ibv_ah *ah;
};

/* All that an application sees of a message. */
struct seen {
	struct ibv_wc wc[2];
	enum ibv_qp_state state[2];
	unsigned char from[ROOM], to[ROOM];
	long counted[COUNTERS];
};

static struct ibv_cq *stamping_cq(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = QP_WRS,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};

	return ibv_cq_ex_to_cq(MUST(ibv_create_cq_ex(pd->context, &attr)));
}

static void wire_new(struct wire *w, enum ibv_qp_type type, const struct shape *s)
{
	int i;

	*w = (struct wire){ .type = type };
	for (i = 0; i < 2; i++)
		w->cq[i] = s->stamps ? stamping_cq() : cq_new(pd->context);
	w->qp[0] = qp_new(pd, w->cq[0], type, NULL);
	if (type == IBV_QPT_XRC_SEND) {
		w->xrcd = xrcd_new(pd->context);
		w->srq = srq_new_xrc(pd, w->xrcd, w->cq[1]);
		w->qp[1] = qp_new_xrc_recv(w->xrcd);
	} else {
		if (s->srq)
			w->srq = srq_new(s->foreign_srq ? foreign : pd);
		w->qp[1] = qp_new(pd, w->cq[1], type, w->srq);
	}
	qp_join(w->qp[0], w->qp[1]);
	if (type == IBV_QPT_UD)
		w->ah = ah_self(pd);
	else if (s->lack == QP_RIGHT)
		qp_allow(w->qp[1], 0);
}

static void wire_free(struct wire *w)
{
	int i;

	for (i = 0; i < 2; i++)
		CHECK_OK(ibv_destroy_qp(w->qp[i]));
	if (w->srq)
		CHECK_OK(ibv_destroy_srq(w->srq));
	for (i = 0; i < 2; i++)
		CHECK_OK(ibv_destroy_cq(w->cq[i]));
	if (w->xrcd)
		CHECK_OK(ibv_close_xrcd(w->xrcd));
	if (w->ah)
		CHECK_OK(ibv_destroy_ah(w->ah));
}

/* Divide bytes into SGEs of different lengths. Return: their number. */
static int divide(struct ibv_sge *sge, unsigned char *at, uint32_t len, int n,
		  uint32_t lkey)
{
	int i;

	n = n ?: 1;
	for (i = 0; i < n; i++) {
		uint32_t part = i == n - 1 ? len : len / (i + 2);

		sge[i] = (struct ibv_sge){ (uintptr_t)at, part, lkey };
		at += part;
		len -= part;
	}
	return n;
}

static void receive(struct wire *w, const struct shape *s, uint32_t lkey)
{
	uint32_t head = w->type == IBV_QPT_UD ? GRH : 0;
	struct ibv_recv_wr wr = { .wr_id = 7 }, *bad;
	struct ibv_sge sge[QP_SGES];

	wr.sg_list = sge;
	/* For a write, its memory is not used. */
	wr.num_sge = divide(sge, to + s->to_at, s->len + head, s->to_sges, lkey);
	if (w->srq)
		CHECK_OK(ibv_post_srq_recv(w->srq, &wr, &bad));
	else
		CHECK_OK(ibv_post_recv(w->qp[1], &wr, &bad));
}

static enum ibv_wr_opcode opcode(const struct shape *s)
{
	switch (s->op) {
	case SEND:
		return s->imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
	case WRITE:
		return s->imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
	case READ:
		return IBV_WR_RDMA_READ;
	case ADD:
		return IBV_WR_ATOMIC_FETCH_AND_ADD;
	default:
		return IBV_WR_ATOMIC_CMP_AND_SWP;
	}
}

static void send_it(struct wire *w, const struct shape *s, uint32_t lkey, uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.wr_id = 8, .send_flags = IBV_SEND_SIGNALED | s->flags,
		.imm_data = IMM, .opcode = opcode(s),
	}, *bad;
	uint64_t addr = (uintptr_t)to + s->to_at, word;
	struct ibv_sge sge[QP_SGES];

	wr.sg_list = sge;
	wr.num_sge = divide(sge, from + s->from_at, s->len, s->from_sges, lkey);
	if (s->op >= SWAP) {
		memcpy(&word, to + s->to_at, sizeof(word));
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = s->op == NO_SWAP ? word + 1 : word;
		wr.wr.atomic.swap = 0x1122334455667788;
	} else if (s->op != SEND) {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = rkey;
	}
	if (w->type == IBV_QPT_UD)
		wr_to(&wr, w->ah, w->qp[1]);
	if (w->type == IBV_QPT_XRC_SEND)
		CHECK_OK(ibv_get_srq_num(w->srq, &wr.qp_type.xrc.remote_srqn));
	CHECK_OK(ibv_post_send(w->qp[0], &wr, &bad));
}

/* The message that binds two QPs to each other. */
static void first_message(struct wire *w, const struct ibv_mr *src, bool foreign_srq)
{
	static const struct shape plain = { "plain", .op = SEND, .len = 64 };
	struct ibv_mr *mr = MUST(ibv_reg_mr(foreign_srq ? foreign : pd, to, ROOM, LW));

	receive(w, &plain, mr->lkey);
	send_it(w, &plain, src->lkey, 0);
	CHECK_WC(w->cq[0], 8, IBV_WC_SUCCESS);
	CHECK_WC(w->cq[1], 7, IBV_WC_SUCCESS);
	CHECK_OK(ibv_dereg_mr(mr));
}

static void fill(void)
{
	uint64_t seed = 4711;
	int i;

	for (i = 0; i < ROOM; i++) {
		from[i] = t_random(&seed);
		to[i] = t_random(&seed);
	}
}

static struct ibv_mr *responders(const struct shape *s, bool odp)
{
	return MUST(ibv_reg_mr(s->lack == DOMAIN ? foreign : pd, to,
			       s->lack == BYTE ? s->to_at + s->len - 1 : ROOM,
			       LW | (s->lack == RIGHT ? 0 : REMOTE) |
			       (odp ? IBV_ACCESS_ON_DEMAND : 0)));
}

static void run_shape(enum ibv_qp_type type, const struct shape *s, bool fast,
		      struct seen *seen)
{
	struct ibv_mr *src = MUST(ibv_reg_mr(pd, from, ROOM, LW));
	struct ibv_mr *dst = responders(s, type == IBV_QPT_UD && !fast);
	uint32_t key = s->lack == KEY ? 0xfffff0 : dst->lkey;
	const int want[] = { s->sender, s->receiver };
	long before[COUNTERS];
	struct wire w;
	int i;

	wire_new(&w, type, s);
	if (fast)
		first_message(&w, src, s->foreign_srq);
	fill();
	dev_counters(counters, COUNTERS, before);
	if (s->receiver != NO_WC)
		receive(&w, s, s->op == SEND ? key : src->lkey);
	send_it(&w, s, src->lkey, key);
	memset(seen, 0, sizeof(*seen));
	for (i = 1; i >= 0; i--) {
		if (want[i] == NO_WC)
			continue;
		seen->wc[i] = CHECK_WC(w.cq[i], i ? 7 : 8, want[i]);
		/* QP numbers differ between the two runs. */
		CHECK_EQ(seen->wc[i].qp_num, w.qp[i]->qp_num);
		CHECK_EQ(seen->wc[i].src_qp, i && type == IBV_QPT_UD ? w.qp[0]->qp_num : 0);
		seen->wc[i].qp_num = 0;
		seen->wc[i].src_qp = 0;
	}
	for (i = 0; i < 2; i++) {
		CHECK_NO_WC(w.cq[i]);
		seen->state[i] = qp_state(w.qp[i]);
	}
	dev_counters(counters, COUNTERS, seen->counted);
	for (i = 0; i < COUNTERS; i++)
		seen->counted[i] -= before[i];
	memcpy(seen->from, from, ROOM);
	memcpy(seen->to, to, ROOM);
	wire_free(&w);
	CHECK_OK(ibv_dereg_mr(src));
	CHECK_OK(ibv_dereg_mr(dst));
}

static void check_same(const struct seen *slow, const struct seen *fast)
{
	int i;

	for (i = 0; i < 2; i++) {
		CHECK_EQ(fast->state[i], slow->state[i]);
		CHECK_MEM(&fast->wc[i], &slow->wc[i], sizeof(slow->wc[i]));
	}
	CHECK_MEM(fast->from, slow->from, ROOM);
	CHECK_MEM(fast->to, slow->to, ROOM);
	for (i = 0; i < FAST_MSGS; i++)
		if (fast->counted[i] != slow->counted[i])
			FAIL("got %s %ld, want %ld", counters[i], fast->counted[i],
			     slow->counted[i]);
}

/* The message's effect on memory, by the words of the specification. */
static void check_memory(enum ibv_qp_type type, const struct shape *s,
			 const struct seen *seen)
{
	uint32_t head = type == IBV_QPT_UD ? GRH : 0, at = s->to_at + head;
	uint64_t old, new;

	fill();
	if (s->sender == IBV_WC_SUCCESS && (s->op == SEND || s->op == WRITE)) {
		memcpy(to + at, from + s->from_at, s->len);
		/* The GRH differs in nothing, but is not computed here. */
		memcpy(to + s->to_at, seen->to + s->to_at, head);
	} else if (s->sender == IBV_WC_SUCCESS && s->op == READ) {
		memcpy(from + s->from_at, to + at, s->len);
	} else if (s->sender == IBV_WC_SUCCESS) {
		memcpy(&old, to + at, sizeof(old));
		new = s->op == SWAP ? 0x1122334455667788 : s->op == ADD ? 2 * old : old;
		memcpy(to + at, &new, sizeof(new));
		memcpy(from + s->from_at, &old, sizeof(old));
	}
	CHECK_MEM(seen->from, from, ROOM);
	CHECK_MEM(seen->to, to, ROOM);
}

static bool possible(enum ibv_qp_type type, const struct shape *s)
{
	/* An XRC SRQ of the library has receive WQEs with one SGE. */
	if (type == IBV_QPT_XRC_SEND)
		return !s->srq && s->to_sges <= 1;
	if (type == IBV_QPT_UD)
		return s->op == SEND && s->len <= PAGE && !s->lack && !s->foreign_srq;
	if (type == IBV_QPT_UC)
		return s->op <= WRITE && !s->lack && !s->foreign_srq;
	return true;
}

static void both_paths(enum ibv_qp_type type)
{
	static struct seen slow, fast;
	const struct shape *s;

	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	foreign = MUST(ibv_alloc_pd(pd->context));
	for (s = shapes; s < shapes + SHAPES; s++) {
		if (!possible(type, s))
			continue;
		t_note("%s", s->name);
		run_shape(type, s, false, &slow);
		run_shape(type, s, true, &fast);
		check_same(&slow, &fast);
		check_memory(type, s, &fast);
		CHECK_EQ(slow.counted[FAST_MSGS], 0);
		CHECK_EQ(fast.counted[FAST_MSGS], !s->slow);
	}
	CHECK_OK(ibv_dealloc_pd(foreign));
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST_SLOW(rc, "DEV-4", "RC: a message of each shape has the same bytes, CQEs, states and counters on the fast path and on the slow path", 120)
{
	both_paths(IBV_QPT_RC);
}

TEST_SLOW(uc, "DEV-4", "UC: likewise", 120)
{
	both_paths(IBV_QPT_UC);
}

TEST_SLOW(xrc, "DEV-4", "XRC: likewise, to an SRQ that the message names", 120)
{
	both_paths(IBV_QPT_XRC_SEND);
}

/* Messages of one call. */
#define MESSAGES	8

static void take(struct ibv_cq *cq, int n)
{
	int i;

	for (i = 0; i < n; i++)
		CHECK_WC(cq, i, IBV_WC_SUCCESS);
	CHECK_NO_WC(cq);
}

TEST(xrc_both, "DEV-4,XRC-9", "XRC: messages of one call that name two SRQs in turn complete at the CQ of their SRQ, on the fast path")
{
	static const struct shape plain = { "plain", .op = SEND, .len = 64 };
	struct ibv_send_wr wr[MESSAGES], *bad;
	struct ibv_srq *srq[2];
	struct ibv_cq *cq[2];
	struct ibv_mr *mr, *src;
	struct ibv_sge sge;
	struct wire w;
	long fast;
	int i;

	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	mr = MUST(ibv_reg_mr(pd, to, ROOM, LW));
	wire_new(&w, IBV_QPT_XRC_SEND, &plain);
	src = MUST(ibv_reg_mr(pd, from, ROOM, 0));
	first_message(&w, src, false);
	sge = (struct ibv_sge){ (uintptr_t)from, 64, src->lkey };
	for (i = 0; i < 2; i++) {
		cq[i] = cq_new(pd->context);
		srq[i] = srq_new_xrc(pd, w.xrcd, cq[i]);
	}
	for (i = 0; i < MESSAGES; i++) {
		post_srq_recv(srq[i % 2], i / 2, MEM(mr));
		wr[i] = (struct ibv_send_wr){
			.wr_id = i, .sg_list = &sge, .num_sge = 1,
			.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
			.next = i < MESSAGES - 1 ? &wr[i + 1] : NULL,
		};
		CHECK_OK(ibv_get_srq_num(srq[i % 2], &wr[i].qp_type.xrc.remote_srqn));
	}
	fast = dev_counter("fast_msgs");
	CHECK_OK(ibv_post_send(w.qp[0], wr, &bad));
	take(w.cq[0], MESSAGES);
	take(cq[0], MESSAGES / 2);
	take(cq[1], MESSAGES / 2);
	CHECK_EQ(dev_counter("fast_msgs") - fast, MESSAGES);
}

TEST_SLOW(ud, "DEV-4", "UD: likewise, with a GRH in front", 120)
{
	both_paths(IBV_QPT_UD);
}
