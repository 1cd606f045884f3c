// SPDX-License-Identifier: GPL-2.0
/*
 * Send the same message on the fast path and on the slow path: an application
 * must see no difference. The first message of a connection takes the slow
 * path. A later message takes the fast path if it is suited for that path.
 * Otherwise both messages take the slow path.
 */
#include <poll.h>

#include "dev.h"
#include "qp.h"
#include "t.h"

#define PAGE	4096
#define LW	IBV_ACCESS_LOCAL_WRITE
#define ROOM	(2 * PAGE)

/* Fault of a key. */
enum key {
	GOOD,
	NONE,		/* no such key */
	FOREIGN,	/* key of another domain */
	SHORT,		/* the MR ends a byte earlier */
	READ_ONLY,	/* the MR permits no writes */
};

/* No completion. */
#define NO_WC	-1

struct sent {
	const char *name;
	uint32_t len;
	uint32_t room;		/* of the receive WQE */
	unsigned int flags;
	enum key from, to;
	int sges, recv_sges;	/* 0: 1 */
	bool imm;
	bool late;		/* post the receive WQE after the send */
	int sender, receiver;	/* status of the completions */
};

#define OK	.sender = IBV_WC_SUCCESS, .receiver = IBV_WC_SUCCESS
#define SIG	.flags = IBV_SEND_SIGNALED

static const struct sent cases[] = {
	{ "1 byte", 1, 1, SIG, OK },
	{ "64 bytes", 64, 64, SIG, OK },
	{ "64 bytes into more room", 64, PAGE, SIG, OK },
	{ "a page", PAGE, PAGE, SIG, OK },
	{ "a page and a byte", PAGE + 1, ROOM, SIG, OK },
	{ "nothing", 0, 64, SIG, OK },
	{ "unsignaled", 64, 64, .sender = NO_WC, .receiver = IBV_WC_SUCCESS },
	{ "solicited", 64, 64, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED, OK },
	{ "fenced", 64, 64, IBV_SEND_SIGNALED | IBV_SEND_FENCE, OK },
	{ "inline", 64, 64, IBV_SEND_SIGNALED | IBV_SEND_INLINE, OK },
	{ "inline, unsignaled, solicited", 8, 64,
	  IBV_SEND_INLINE | IBV_SEND_SOLICITED, .sender = NO_WC,
	  .receiver = IBV_WC_SUCCESS },
	{ "two SGEs", 64, 64, SIG, .sges = 2, OK },
	{ "into two SGEs", 64, 64, SIG, .recv_sges = 2, OK },
	{ "immediate data", 64, 64, SIG, .imm = true, OK },
	{ "a late receive WQE", 64, 64, SIG, .late = true, OK },
	{ "too little room", 65, 64, SIG, .sender = IBV_WC_REM_INV_REQ_ERR,
	  .receiver = IBV_WC_LOC_LEN_ERR },
	{ "too little room, inline", 64, 63,
	  IBV_SEND_SIGNALED | IBV_SEND_INLINE,
	  .sender = IBV_WC_REM_INV_REQ_ERR, .receiver = IBV_WC_LOC_LEN_ERR },
	{ "no lkey of the sender", 64, 64, .from = NONE,
	  .sender = IBV_WC_LOC_PROT_ERR, .receiver = NO_WC },
	{ "a foreign lkey of the sender", 64, 64, .from = FOREIGN,
	  .sender = IBV_WC_LOC_PROT_ERR, .receiver = NO_WC },
	{ "beyond the sender's region", 64, 64, .from = SHORT,
	  .sender = IBV_WC_LOC_PROT_ERR, .receiver = NO_WC },
	{ "a read-only region of the sender", 64, 64, SIG, .from = READ_ONLY,
	  OK },
	{ "no lkey of the receiver", 64, 64, .to = NONE,
	  .sender = IBV_WC_REM_OP_ERR, .receiver = IBV_WC_LOC_PROT_ERR },
	{ "a foreign lkey of the receiver", 64, 64, .to = FOREIGN,
	  .sender = IBV_WC_REM_OP_ERR, .receiver = IBV_WC_LOC_PROT_ERR },
	{ "beyond the receiver's region", 64, 64, .to = SHORT,
	  .sender = IBV_WC_REM_OP_ERR, .receiver = IBV_WC_LOC_PROT_ERR },
	{ "a read-only region of the receiver", 64, 64, .to = READ_ONLY,
	  .sender = IBV_WC_REM_OP_ERR, .receiver = IBV_WC_LOC_PROT_ERR },
};

static char from[ROOM] __attribute__((aligned(PAGE)));
static char to[ROOM] __attribute__((aligned(PAGE)));

static struct ibv_pd *pd, *foreign;

static const char * const counters[] = {
	"tx_msgs", "tx_bytes", "rx_msgs", "rx_bytes", "wc_errors", "flushes",
	"rnr_waits", "peer_waits", "cq_overruns",
};

#define COUNTERS	(int)(sizeof(counters) / sizeof(*counters))

/* One side of a connection. */
struct end {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

/* Everything that an application sees of a message on one side. */
struct seen {
	struct ibv_wc wc;
	int completions;
	int solicited;		/* completion events */
	uint64_t events;	/* asynchronous events, a bit each */
	enum ibv_qp_state state;
};

static struct end end_new(void)
{
	struct end e;

	e.channel = MUST(ibv_create_comp_channel(pd->context));
	e.cq = MUST(ibv_create_cq(pd->context, QP_WRS, NULL, e.channel, 0));
	e.qp = qp_new(pd, e.cq, IBV_QPT_RC, NULL);
	return e;
}

static void end_free(struct end *e)
{
	CHECK_OK(ibv_destroy_qp(e->qp));
	CHECK_OK(ibv_destroy_cq(e->cq));
	CHECK_OK(ibv_destroy_comp_channel(e->channel));
}

static struct ibv_mr *region(char *p, uint32_t len, enum key key)
{
	return MUST(ibv_reg_mr(key == FOREIGN ? foreign : pd, p,
			       key == SHORT ? len - 1 : ROOM,
			       key == READ_ONLY ? 0 : LW));
}

static int sges(struct ibv_sge sge[2], char *p, uint32_t len, int n,
		uint32_t lkey)
{
	sge[0] = (struct ibv_sge){ (uintptr_t)p, len, lkey };
	if (n < 2)
		return 1;
	sge[0].length = len / 3;
	sge[1] = (struct ibv_sge){ (uintptr_t)p + len / 3, len - len / 3, lkey };
	return 2;
}

static void receive(const struct end *e, const struct sent *c,
		    const struct ibv_mr *mr)
{
	struct ibv_recv_wr wr = { .wr_id = 7 }, *bad;
	struct ibv_sge sge[2];

	wr.sg_list = sge;
	wr.num_sge = sges(sge, to, c->room, c->recv_sges,
			  c->to == NONE ? 0xfffff0 : mr->lkey);
	CHECK_OK(ibv_post_recv(e->qp, &wr, &bad));
}

static void send_it(const struct end *e, const struct sent *c,
		    const struct ibv_mr *mr)
{
	struct ibv_send_wr wr = {
		.wr_id = 8, .send_flags = c->flags, .imm_data = 0x12345678,
		.opcode = c->imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
	}, *bad;
	struct ibv_sge sge[2];

	wr.sg_list = sge;
	wr.num_sge = sges(sge, from, c->len, c->sges,
			  c->from == NONE ? 0xfffff0 : mr->lkey);
	CHECK_OK(ibv_post_send(e->qp, &wr, &bad));
}

/* An event that is due comes within this time. */
#define LATE_MS	500

/* Collect the asynchronous events of both QPs. */
static void see_events(const struct end *a, const struct end *b,
		       struct seen seen[2])
{
	struct pollfd fd = { .fd = pd->context->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	int ms = EVENT_MS;

	/* A worker raises them, and it may have to wait for a processor. */
	if (seen[0].state == IBV_QPS_ERR || seen[1].state == IBV_QPS_ERR)
		ms = LATE_MS;
	while (poll(&fd, 1, ms) > 0) {
		CHECK_OK(ibv_get_async_event(pd->context, &event));
		CHECK(event.element.qp == a->qp || event.element.qp == b->qp);
		seen[event.element.qp == b->qp].events |= 1ULL << event.event_type;
		ibv_ack_async_event(&event);
	}
}

/* @solicited: a completion with this flag, if it is no error, which always counts. */
static void see(const struct end *e, int status, bool solicited, struct seen *seen)
{
	struct pollfd fd = { .fd = e->channel->fd, .events = POLLIN };
	bool due = status != NO_WC && (solicited || status != IBV_WC_SUCCESS);
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;

	memset(seen, 0, sizeof(*seen));
	if (status != NO_WC) {
		seen->wc = wc_get(e->cq);
		seen->completions = 1;
		CHECK_EQ(seen->wc.status, status);
		/* QP numbers differ between the two runs. */
		CHECK_EQ(seen->wc.qp_num, e->qp->qp_num);
		seen->wc.qp_num = 0;
	}
	seen->state = qp_state(e->qp);
	while (ibv_poll_cq(e->cq, 1, &wc))
		seen->completions++;
	if (poll(&fd, 1, due ? LATE_MS : EVENT_MS)) {
		CHECK_OK(ibv_get_cq_event(e->channel, &cq, &context));
		ibv_ack_cq_events(cq, 1);
		seen->solicited = 1;
	}
}

/* A message that is unrelated to the case. */
static void warm_up(const struct end *a, const struct end *b)
{
	const struct sent plain = { "plain", 64, 64, SIG };
	struct ibv_mr *src = region(from, ROOM, GOOD);
	struct ibv_mr *dst = region(to, ROOM, GOOD);

	receive(b, &plain, dst);
	send_it(a, &plain, src);
	CHECK_WC(a->cq, 8, IBV_WC_SUCCESS);
	CHECK_WC(b->cq, 7, IBV_WC_SUCCESS);
	CHECK_OK(ibv_dereg_mr(src));
	CHECK_OK(ibv_dereg_mr(dst));
}

static void run_case(const struct sent *c, bool fast, struct seen seen[2],
		     long counted[COUNTERS])
{
	struct ibv_mr *src = region(from, c->len, c->from);
	struct ibv_mr *dst = region(to, c->room, c->to);
	struct end a = end_new(), b = end_new();
	long after[COUNTERS];
	int i;

	qp_join(a.qp, b.qp);
	if (fast)
		warm_up(&a, &b);
	memset(to, 0, sizeof(to));
	dev_counters(counters, COUNTERS, counted);
	CHECK_OK(ibv_req_notify_cq(a.cq, 1));
	CHECK_OK(ibv_req_notify_cq(b.cq, 1));
	if (!c->late)
		receive(&b, c, dst);
	send_it(&a, c, src);
	if (c->late) {
		usleep(20000);
		receive(&b, c, dst);
	}
	/* Begin with the side that gets a completion. */
	if (c->receiver == NO_WC)
		see(&a, c->sender, false, &seen[0]);
	see(&b, c->receiver, c->flags & IBV_SEND_SOLICITED, &seen[1]);
	if (c->receiver != NO_WC)
		see(&a, c->sender, false, &seen[0]);
	see_events(&a, &b, seen);
	dev_counters(counters, COUNTERS, after);
	for (i = 0; i < COUNTERS; i++)
		counted[i] = after[i] - counted[i];
	end_free(&a);
	end_free(&b);
	CHECK_OK(ibv_dereg_mr(src));
	CHECK_OK(ibv_dereg_mr(dst));
}

static void check_same(const struct sent *c, const struct seen *slow,
		       const struct seen *fast)
{
	CHECK_EQ(fast->completions, slow->completions);
	CHECK_EQ(fast->solicited, slow->solicited);
	CHECK_EQ(fast->events, slow->events);
	CHECK_EQ(fast->state, slow->state);
	CHECK_EQ(fast->wc.wr_id, slow->wc.wr_id);
	CHECK_EQ(fast->wc.status, slow->wc.status);
	CHECK_EQ(fast->wc.vendor_err, slow->wc.vendor_err);
	CHECK_EQ(fast->wc.wc_flags, slow->wc.wc_flags);
	if (slow->wc.status != IBV_WC_SUCCESS)
		return;
	CHECK_EQ(fast->wc.opcode, slow->wc.opcode);
	CHECK_EQ(fast->wc.byte_len, slow->wc.byte_len);
	CHECK_EQ(fast->wc.src_qp, slow->wc.src_qp);
	CHECK_EQ(fast->wc.pkey_index, slow->wc.pkey_index);
	CHECK_EQ(fast->wc.slid, slow->wc.slid);
	CHECK_EQ(fast->wc.sl, slow->wc.sl);
	if (slow->wc.wc_flags & IBV_WC_WITH_IMM)
		CHECK_EQ(fast->wc.imm_data, slow->wc.imm_data);
}

TEST(same, "DEV-4", "on the fast path and on the slow path, a message has the same bytes, CQEs, events, QP states and counters")
{
	long slow_counted[COUNTERS], fast_counted[COUNTERS];
	struct seen slow[2], fast[2];
	static char slow_to[ROOM];
	const struct sent *c;
	uint64_t seed = 4711;
	size_t i;
	int k;

	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	foreign = MUST(ibv_alloc_pd(pd->context));
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		c = &cases[i];
		t_note("%s", c->name);
		for (k = 0; k < ROOM; k++)
			from[k] = 1 + t_random(&seed) % 255;
		run_case(c, false, slow, slow_counted);
		memcpy(slow_to, to, sizeof(to));
		run_case(c, true, fast, fast_counted);
		check_same(c, &slow[0], &fast[0]);
		check_same(c, &slow[1], &fast[1]);
		CHECK_MEM(to, slow_to, sizeof(to));
		if (c->receiver == IBV_WC_SUCCESS) {
			CHECK_MEM(to, from, c->len);
			CHECK_ALL(to + c->len, 0, ROOM - c->len);
			CHECK_EQ(fast[1].solicited,
				 !!(c->flags & IBV_SEND_SOLICITED));
		} else {
			CHECK_ALL(to, 0, ROOM);
		}
		for (k = 0; k < COUNTERS; k++)
			if (fast_counted[k] != slow_counted[k])
				FAIL("got %s %ld, want %ld", counters[k],
				     fast_counted[k], slow_counted[k]);
	}
	CHECK_OK(ibv_dealloc_pd(foreign));
	CHECK_OK(ibv_dealloc_pd(pd));
}
