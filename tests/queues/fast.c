// SPDX-License-Identifier: GPL-2.0
/*
 * Common messages take the fast path, other messages the slow path. An
 * application sees no difference, and nothing that the kernel cached for one
 * message outlives the key or QP that it belongs to.
 */
#include "dev.h"
#include "qp.h"
#include "t.h"

#define PAGE	4096
#define LW	IBV_ACCESS_LOCAL_WRITE
/* Bytes of a slot: the longest message fits at every offset. */
#define SLOT	(4 * PAGE)
#define SLOTS	16

static char from[SLOTS * SLOT] __attribute__((aligned(PAGE)));
static char to[SLOTS * SLOT] __attribute__((aligned(PAGE)));

static struct ibv_pd *pd;
static struct ibv_mr *src, *dst;

static struct link setup(void)
{
	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	src = MUST(ibv_reg_mr(pd, from, sizeof(from), LW));
	dst = MUST(ibv_reg_mr(pd, to, sizeof(to), LW));
	return link_new(pd, pd, IBV_QPT_RC);
}

/* Send 64 bytes of @mark and check that they arrive. */
static void send_64(struct link *l, struct ibv_mr *mr, char mark)
{
	char want[64];

	memset(want, mark, sizeof(want));
	memset(mr->addr, mark, sizeof(want));
	post_recv(l->qp[1], 1, (struct mem){ to, 64, dst->lkey });
	post_send(l->qp[0], 2, (struct mem){ mr->addr, 64, mr->lkey });
	CHECK_WC(l->cq[0], 2, IBV_WC_SUCCESS);
	CHECK_EQ(CHECK_WC(l->cq[1], 1, IBV_WC_SUCCESS).byte_len, 64);
	CHECK_MEM(to, want, sizeof(want));
}

/*
 * The kernel may free objects some seconds later, after an RCU grace period. On
 * a kernel that checks every access, wait, so that it reports a thread that
 * still uses a freed object.
 */
static void forgotten(void)
{
	if (t_debug_kernel())
		sleep(7);
}

/* Layout of a message or of a receive WQE. */
struct shape {
	uint32_t len;
	uint32_t at;		/* offset in its slot */
	uint32_t first;		/* bytes of the first SGE; all: one SGE */
	bool is_inline;
};

static struct shape shape_random(uint64_t *seed, bool send)
{
	static const uint32_t lens[] = { 0, 1, 8, 64, 65, 300, PAGE - 1, PAGE,
					 PAGE + 1, 2 * PAGE + 7 };
	static const uint32_t ats[] = { 0, 1, 64, PAGE - 64, PAGE - 1 };
	struct shape s;

	s.len = lens[t_random(seed) % 10];
	s.at = ats[t_random(seed) % 5];
	s.is_inline = send && s.len <= QP_INLINE && t_random(seed) % 3 == 0;
	s.first = t_random(seed) % 3 ? s.len : s.len / 2;
	return s;
}

static int shape_sges(const struct shape *s, char *slot, uint32_t lkey,
		      struct ibv_sge sge[2])
{
	sge[0] = (struct ibv_sge){ (uintptr_t)slot + s->at, s->first, lkey };
	sge[1] = (struct ibv_sge){ (uintptr_t)slot + s->at + s->first,
				   s->len - s->first, lkey };
	return s->first == s->len ? 1 : 2;
}

static void recv_shaped(struct link *l, int i, const struct shape *s)
{
	struct ibv_recv_wr wr = { .wr_id = i }, *bad;
	struct ibv_sge sge[2];

	wr.sg_list = sge;
	wr.num_sge = shape_sges(s, to + i * SLOT, dst->lkey, sge);
	CHECK_OK(ibv_post_recv(l->qp[1], &wr, &bad));
}

static void send_shaped(struct link *l, int i, const struct shape *s, bool last)
{
	struct ibv_send_wr wr = { .wr_id = i, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_sge sge[2];

	wr.sg_list = sge;
	wr.num_sge = shape_sges(s, from + i * SLOT, src->lkey, sge);
	/*
	 * Signal every other message, and the last, which completes all before
	 * it.
	 */
	if (i % 2 || last)
		wr.send_flags |= IBV_SEND_SIGNALED;
	if (s->is_inline)
		wr.send_flags |= IBV_SEND_INLINE;
	CHECK_OK(ibv_post_send(l->qp[0], &wr, &bad));
}

static void shaped_round(struct link *l, uint64_t *seed)
{
	struct shape s[SLOTS], r;
	struct ibv_wc wc;
	size_t k;
	int i;

	for (k = 0; k < sizeof(from); k++)
		from[k] = t_random(seed);
	memset(to, 0, sizeof(to));
	for (i = 0; i < SLOTS; i++) {
		s[i] = shape_random(seed, true);
		r = s[i];
		if (t_random(seed) % 2) {
			r = shape_random(seed, false);
			if (r.len < s[i].len)
				r.len = r.first = s[i].len;
		}
		recv_shaped(l, i, &r);
		send_shaped(l, i, &s[i], i == SLOTS - 1);
		wc = CHECK_WC(l->cq[1], i, IBV_WC_SUCCESS);
		CHECK_EQ(wc.byte_len, s[i].len);
		CHECK_EQ(wc.opcode, IBV_WC_RECV);
		CHECK_EQ(wc.qp_num, l->qp[1]->qp_num);
		CHECK_EQ(wc.wc_flags, 0);
		CHECK_MEM(to + i * SLOT + r.at, from + i * SLOT + s[i].at,
			  s[i].len);
		CHECK_ALL(to + i * SLOT + r.at + s[i].len, 0,
			  SLOT - r.at - s[i].len);
	}
	for (i = 1; i < SLOTS; i += 2)
		CHECK_WC(l->cq[0], i, IBV_WC_SUCCESS);
	CHECK_NO_WC(l->cq[0]);
	CHECK_NO_WC(l->cq[1]);
}

TEST_SLOW(shapes, "DEV-4", "messages of all lengths, in and across pages, with one or two SGEs, inline or not, arrive whole and in order", 120)
{
	struct link l = setup();
	uint64_t seed = 4711;
	int i;

	for (i = 0; i < t_rounds(40); i++)
		shaped_round(&l, &seed);
	link_free(&l);
}

TEST(given_back, "PD-4,DEV-4", "after ibv_dereg_mr() a key that worked for the last message is refused, on the requester and on the responder")
{
	struct link l = setup();
	uint32_t lkey;
	int i;

	for (i = 0; i < 3; i++)
		send_64(&l, src, 'a' + i);
	lkey = src->lkey;
	CHECK_OK(ibv_dereg_mr(src));
	forgotten();
	post_recv(l.qp[1], 3, (struct mem){ to, 64, dst->lkey });
	post_send(l.qp[0], 4, (struct mem){ from, 64, lkey });
	CHECK_WC(l.cq[0], 4, IBV_WC_LOC_PROT_ERR);
	CHECK_STATE(l.qp[0], IBV_QPS_ERR);
	CHECK_ALL(to, 'c', 64);
	link_free(&l);

	l = setup();
	send_64(&l, src, 'd');
	post_recv(l.qp[1], 5, (struct mem){ to, 64, dst->lkey });
	CHECK_OK(ibv_dereg_mr(dst));
	memset(from, 'e', 64);
	post_send(l.qp[0], 6, (struct mem){ from, 64, src->lkey });
	CHECK_WC(l.cq[0], 6, IBV_WC_REM_OP_ERR);
	CHECK_WC(l.cq[1], 5, IBV_WC_LOC_PROT_ERR);
	CHECK_ALL(to, 'd', 64);
	link_free(&l);
}

TEST(changed, "PD-4,DEV-4", "after ibv_rereg_mr() messages use the new bytes of an MR, and are refused if the MR moved to another domain")
{
	struct link l = setup();
	struct ibv_pd *other = MUST(ibv_alloc_pd(l.ctx));

	send_64(&l, src, 'a');
	memset(from + SLOT, 'b', 64);
	CHECK_OK(ibv_rereg_mr(src, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
			      from + SLOT, SLOT, 0));
	src->addr = from + SLOT;
	send_64(&l, src, 'b');
	/* Move the MR to another domain. */
	CHECK_OK(ibv_rereg_mr(src, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0));
	post_recv(l.qp[1], 3, (struct mem){ to, 64, dst->lkey });
	post_send(l.qp[0], 4, (struct mem){ from + SLOT, 64, src->lkey });
	CHECK_WC(l.cq[0], 4, IBV_WC_LOC_PROT_ERR);
	link_free(&l);

	l = setup();
	send_64(&l, src, 'c');
	CHECK_OK(ibv_rereg_mr(dst, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			      0));
	post_recv(l.qp[1], 5, (struct mem){ to, 64, dst->lkey });
	post_send(l.qp[0], 6, (struct mem){ from, 64, src->lkey });
	CHECK_WC(l.cq[0], 6, IBV_WC_REM_OP_ERR);
	CHECK_WC(l.cq[1], 5, IBV_WC_LOC_PROT_ERR);
	CHECK_ALL(to, 'c', 64);
	link_free(&l);
}

TEST(range, "PD-4,DEV-4", "a key that worked for the last message stays limited to its range and rights, and a window's key is no lkey")
{
	struct link l = setup();
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, from, 100,
					    LW | IBV_ACCESS_MW_BIND));
	struct ibv_mw *mw = MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	struct ibv_mw_bind bind = {
		.wr_id = 7, .send_flags = IBV_SEND_SIGNALED,
		.bind_info = { mr, (uintptr_t)from, 64, 0 },
	};

	send_64(&l, mr, 'a');
	CHECK_OK(ibv_bind_mw(l.qp[0], mw, &bind));
	CHECK_WC(l.cq[0], 7, IBV_WC_SUCCESS);
	post_recv(l.qp[1], 3, (struct mem){ to, 64, dst->lkey });
	post_send(l.qp[0], 4, (struct mem){ from, 64, mw->rkey });
	CHECK_WC(l.cq[0], 4, IBV_WC_LOC_PROT_ERR);
	CHECK_ALL(to, 'a', 64);
	link_free(&l);

	l = link_new(pd, pd, IBV_QPT_RC);
	send_64(&l, mr, 'b');
	post_recv(l.qp[1], 5, (struct mem){ to, 64, dst->lkey });
	post_send(l.qp[0], 6, (struct mem){ from + 37, 64, mr->lkey });
	CHECK_WC(l.cq[0], 6, IBV_WC_LOC_PROT_ERR);
	link_free(&l);

	l = link_new(pd, pd, IBV_QPT_RC);
	send_64(&l, mr, 'c');
	post_recv(l.qp[1], 8, (struct mem){ to, 63, dst->lkey });
	post_send(l.qp[0], 9, (struct mem){ from, 64, mr->lkey });
	CHECK_WC(l.cq[0], 9, IBV_WC_REM_INV_REQ_ERR);
	CHECK_WC(l.cq[1], 8, IBV_WC_LOC_LEN_ERR);
	link_free(&l);
}

TEST(peers, "DEV-4", "a message reaches the current peer, not a destroyed peer and not the peer before a new connection")
{
	struct link l = setup();
	struct ibv_qp *next = qp_new(pd, l.cq[1], IBV_QPT_RC, NULL);

	send_64(&l, src, 'a');
	qp_to(l.qp[0], IBV_QPS_RESET);
	qp_join(l.qp[0], next);
	/* The old peer is still connected to this QP and has a receive WQE. */
	post_recv(l.qp[1], 3, (struct mem){ to + SLOT, 64, dst->lkey });
	post_recv(next, 4, (struct mem){ to, 64, dst->lkey });
	memset(from, 'b', 64);
	post_send(l.qp[0], 5, (struct mem){ from, 64, src->lkey });
	CHECK_WC(l.cq[0], 5, IBV_WC_SUCCESS);
	CHECK_EQ(CHECK_WC(l.cq[1], 4, IBV_WC_SUCCESS).qp_num, next->qp_num);
	CHECK_ALL(to, 'b', 64);
	CHECK_ALL(to + SLOT, 0, 64);

	CHECK_OK(ibv_destroy_qp(next));
	forgotten();
	post_send(l.qp[0], 6, (struct mem){ from, 64, src->lkey });
	CHECK_WC(l.cq[0], 6, IBV_WC_RETRY_EXC_ERR);
	CHECK_NO_WC(l.cq[1]);
	link_free(&l);
}

TEST(stranger, "DEV-4", "a QP with a receive WQE takes no message from a QP that it is not connected to")
{
	struct link l = setup();
	struct ibv_qp *alone = qp_new(pd, l.cq[0], IBV_QPT_RC, NULL);

	send_64(&l, src, 'a');
	qp_connect(alone, l.qp[1]->qp_num);
	post_recv(l.qp[1], 3, (struct mem){ to, 64, dst->lkey });
	memset(from, 'b', 64);
	post_send(alone, 4, (struct mem){ from, 64, src->lkey });
	CHECK_WC(l.cq[0], 4, IBV_WC_RETRY_EXC_ERR);
	CHECK_NO_WC(l.cq[1]);
	CHECK_ALL(to, 'a', 64);
	CHECK_OK(ibv_destroy_qp(alone));
	link_free(&l);
}

TEST(itself, "DEV-4", "a QP that is connected to itself receives its own messages, and counters count each message")
{
	struct link l = setup();
	struct ibv_qp *qp = qp_new(pd, l.cq[0], IBV_QPT_RC, NULL);
	long before[2], i;

	qp_connect(qp, qp->qp_num);
	before[0] = dev_counter("rx_msgs");
	before[1] = dev_counter("tx_bytes");
	for (i = 0; i < 5; i++) {
		memset(from, 'a' + i, 64);
		post_recv(qp, 1, (struct mem){ to, 64, dst->lkey });
		post_send(qp, 2, (struct mem){ from, 64, src->lkey });
		CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
		CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
		CHECK_ALL(to, 'a' + i, 64);
	}
	/* ib_core caches counters for 10 ms. */
	usleep(20000);
	CHECK_EQ(dev_counter("rx_msgs"), before[0] + 5);
	CHECK_EQ(dev_counter("tx_bytes"), before[1] + 5 * 64);
	CHECK_OK(ibv_destroy_qp(qp));
	link_free(&l);
}

TEST(times, "DEV-2", "a CQ with timestamps has a timestamp for each fast path message, each later than the one of the message before")
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = 16,
		.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_BYTE_LEN,
	};
	struct ibv_poll_cq_attr attr = {};
	struct link l = setup();
	uint64_t last = 0;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp[2];
	int i;

	cq = MUST(ibv_create_cq_ex(l.ctx, &init));
	qp[0] = qp_new(pd, l.cq[0], IBV_QPT_RC, NULL);
	qp[1] = qp_new(pd, ibv_cq_ex_to_cq(cq), IBV_QPT_RC, NULL);
	qp_join(qp[0], qp[1]);
	for (i = 0; i < 5; i++) {
		post_recv(qp[1], i, (struct mem){ to, 64, dst->lkey });
		post_send(qp[0], i, (struct mem){ from, 64, src->lkey });
		CHECK_WC(l.cq[0], i, IBV_WC_SUCCESS);
		CHECK_EQ(ibv_start_poll(cq, &attr), 0);
		CHECK_EQ(cq->wr_id, i);
		CHECK_EQ(cq->status, IBV_WC_SUCCESS);
		CHECK_EQ(ibv_wc_read_byte_len(cq), 64);
		CHECK(ibv_wc_read_completion_ts(cq) > last);
		last = ibv_wc_read_completion_ts(cq);
		ibv_end_poll(cq);
	}
	CHECK_OK(ibv_destroy_qp(qp[0]));
	CHECK_OK(ibv_destroy_qp(qp[1]));
	CHECK_OK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	link_free(&l);
}

TEST(states, "DEV-4", "a peer in RTR takes messages and raises COMM_EST at the first, a peer in the error state takes none")
{
	struct ibv_context *ctx;
	struct ibv_qp *a, *b;
	struct link l = setup();

	ctx = l.ctx;
	a = qp_new(pd, l.cq[0], IBV_QPT_RC, NULL);
	b = qp_new(pd, l.cq[1], IBV_QPT_RC, NULL);
	qp_to_init(a);
	qp_to_init(b);
	qp_to_rtr(b, a->qp_num);
	qp_to_rtr(a, b->qp_num);
	qp_to_rts(a, 7);
	post_recv(b, 1, (struct mem){ to, 64, dst->lkey });
	post_recv(b, 2, (struct mem){ to, 64, dst->lkey });
	CHECK_NO_EVENT(ctx);
	post_send(a, 3, (struct mem){ from, 64, src->lkey });
	CHECK_EVENT(ctx, IBV_EVENT_COMM_EST, b);
	CHECK_WC(l.cq[1], 1, IBV_WC_SUCCESS);
	post_send(a, 4, (struct mem){ from, 64, src->lkey });
	CHECK_WC(l.cq[1], 2, IBV_WC_SUCCESS);
	CHECK_NO_EVENT(ctx);
	CHECK_WC(l.cq[0], 3, IBV_WC_SUCCESS);
	CHECK_WC(l.cq[0], 4, IBV_WC_SUCCESS);
	qp_to(b, IBV_QPS_ERR);
	post_recv(b, 5, (struct mem){ to, 64, dst->lkey });
	CHECK_WC(l.cq[1], 5, IBV_WC_WR_FLUSH_ERR);
	post_send(a, 6, (struct mem){ from, 64, src->lkey });
	CHECK_WC(l.cq[0], 6, IBV_WC_RETRY_EXC_ERR);
	CHECK_OK(ibv_destroy_qp(a));
	CHECK_OK(ibv_destroy_qp(b));
	link_free(&l);
}
