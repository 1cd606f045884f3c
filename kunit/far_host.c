// SPDX-License-Identifier: GPL-2.0
/*
 * Another host, without a network. Its link has a connection whose lower device keeps each
 * frame that is posted.
 */
#include <linux/delay.h>

#include "far_host.h"

/* Addresses of parts for the lower device, which never uses them. */
static u64 far_part(u32 i)
{
	return 0x10000 + i * KEEL_PART;
}

/* A timeout, so that a test fails instead of hanging. */
#define FAR_PATIENCE	(60 * HZ)

/* Is a work request the one that writes the data of a frame into its chunk? */
static bool far_is_write(const struct far_host *h, const struct ib_send_wr *wr,
			 const struct keel_frame *frame)
{
	u32 len = 0, chunk = le16_to_cpu(frame->chunk) - 1;
	int i;

	for (i = 0; i < wr->num_sge; i++) {
		if (wr->sg_list[i].addr != far_part(chunk * KEEL_CHUNK_PARTS + i))
			return false;
		len += wr->sg_list[i].length;
	}
	return len == le32_to_cpu(frame->len) && wr->wr_cqe == &h->conn_chunks->cqe &&
	       rdma_wr(wr)->rkey == FAR_CHUNKS_RKEY &&
	       rdma_wr(wr)->remote_addr == FAR_CHUNKS + chunk * KEEL_CHUNK_DATA;
}

/* keel_conn_send() calls this with the lock of the connection. */
static int far_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			 const struct ib_send_wr **bad)
{
	struct far_host *h = container_of(qp, struct far_host, lower_qp);
	const struct ib_send_wr *write = wr->opcode == IB_WR_RDMA_WRITE ? wr : NULL;
	const struct keel_buf *buf;
	u32 len;

	if (write)
		wr = write->next;
	buf = container_of(wr->wr_cqe, struct keel_buf, cqe);
	len = le32_to_cpu(buf->frame->len);
	if (write && !far_is_write(h, write, buf->frame))
		return -EINVAL;
	/* The data is in the chunk then. */
	if (write)
		len = 0;
	if (wr->opcode != IB_WR_SEND || wr->num_sge != (len ? 2 : 1) ||
	    wr->sg_list[0].length != sizeof(*buf->frame) ||
	    (len && wr->sg_list[1].length != len))
		return -EINVAL;
	h->kept = far_requests_n(h);
	h->sent[h->nr_sent++] = buf;
	/* It arrives at once: no frame waits for it. The caller has the lock. */
	context_unsafe(h->conn.under_way--);
	return 0;
}

/* Nothing may be sent from memory of the test that is over. */
static void far_host_calm(void *arg)
{
	struct keel_conn *conn = arg;

	hrtimer_cancel(&conn->batch_timer);
	cancel_work_sync(&conn->flush);
}

static void far_host_bufs(struct kunit *test, struct far_host *h)
	__context_unsafe(/* no other thread has the connection yet */)
{
	struct keel_conn *conn = &h->conn;
	struct keel_buf *buf;
	int i;

	for (i = 0; i < FAR_SENDS; i++) {
		buf = &conn->sends[i];
		buf->conn = conn;
		buf->frame = &h->headers[i];
		buf->page = kunit_kzalloc(test, KEEL_FRAME_DATA, GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, buf->page);
		list_add_tail(&buf->node, &conn->free);
	}
	conn->nfree = FAR_SENDS;
	conn->credits = FAR_SENDS;
}

/* No reference of the connection or of the link is the last one. */
static void far_host_link(struct kunit *test, struct far_host *h)
	__context_unsafe(/* no other thread has the link yet */)
{
	struct keel_conn *conn = &h->conn;
	struct keel_link *link = &h->link;

	h->ib.ops.post_send = far_post_send;
	h->pd.device = &h->ib;
	h->lower_qp.device = &h->ib;
	h->lower.ib = &h->ib;
	conn->pd = &h->pd;
	kref_init(&conn->ref);
	conn->link = link;
	conn->lower = &h->lower;
	conn->qp = &h->lower_qp;
	conn->state = KEEL_CONN_UP;
	spin_lock_init(&conn->lock);
	INIT_LIST_HEAD(&conn->free);
	INIT_LIST_HEAD(&conn->posts);
	keel_batch_init(conn);
	INIT_WORK(&conn->flush, keel_conn_flush_work);
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, far_host_calm, conn));
	far_host_bufs(test, h);
	/* They keep it. */
	kref_init(&link->ref);
	link->users = 1;
	link->kdev = h->qp->kdev;
	spin_lock_init(&link->lock);
	spin_lock_init(&link->load.lock);
	INIT_LIST_HEAD(&link->guests);
	INIT_LIST_HEAD(&link->offers);
	keel_turns_init(&link->turns);
	keel_turns_init(&link->chunk_turns);
	INIT_LIST_HEAD(&link->woken);
	INIT_LIST_HEAD(&link->held);
	/* Its work is never queued. */
	link->dead = true;
	link->events = BIT(KEEL_LINK_WANTED) | BIT(KEEL_LINK_DOUBTED) | BIT(KEEL_LINK_CHUNKS);
}

void far_host_add_chunks(struct far_host *h)
{
	struct keel_chunks *chunks = kunit_kzalloc(h->p->test, sizeof(*chunks), GFP_KERNEL);
	const struct keel_frame frame = {
		.type = KEEL_FRAME_CHUNKS,
		.chunks.addr = cpu_to_le64(FAR_CHUNKS),
		.chunks.rkey = cpu_to_le32(FAR_CHUNKS_RKEY),
	};
	u32 i;

	KUNIT_ASSERT_NOT_NULL(h->p->test, chunks);
	chunks->send.data = kunit_kmalloc(h->p->test, KEEL_CHUNKS * KEEL_CHUNK_DATA, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(h->p->test, chunks->send.data);
	for (i = 0; i < KEEL_AREA_PARTS; i++)
		chunks->send.dma[i] = far_part(i);
	scoped_guard(spinlock, &h->conn.lock)
		h->conn.chunks = chunks;
	h->conn_chunks = chunks;
	KUNIT_EXPECT_TRUE(h->p->test, keel_conn_learn(&h->conn, &frame));
	/* Told twice. */
	KUNIT_EXPECT_FALSE(h->p->test, keel_conn_learn(&h->conn, &frame));
}

const u8 *far_long_data(const struct far_host *h, u32 i)
{
	return h->conn_chunks->send.data +
	       (le16_to_cpu(h->sent[i]->frame->chunk) - 1) * KEEL_CHUNK_DATA;
}

void far_host_join(struct far_host *h)
{
	/* The use of the QP. No other thread has the link. */
	kref_get(&h->link.ref);
	h->link.users++;
	mutex_lock(&h->qp->modify_lock);
	KUNIT_EXPECT_EQ(h->p->test, 0, keel_far_give(h->qp, &h->link));
	mutex_unlock(&h->qp->modify_lock);
}

struct far_host *far_host_make_type(struct kunit *test, enum ib_qp_type type,
				    enum ib_qp_state state)
{
	struct far_host *h = kunit_kzalloc(test, sizeof(*h), GFP_KERNEL);
	struct end *b;

	KUNIT_ASSERT_NOT_NULL(test, h);
	h->p = test->priv;
	b = &h->p->b;
	pair_make(h->p, type);
	b->attr.dest_qp_num = FAR_QPN;
	b->attr.rq_psn = FAR_PSN;
	b->attr.sq_psn = FAR_PSN;
	/* A slow guest is no lost packet. */
	b->attr.timeout = 31;
	b->state = state;
	pair_connect(h->p);
	h->qp = to_kqp(b->qp);
	far_host_link(test, h);
	far_host_join(h);
	KUNIT_ASSERT_NOT_NULL(test, h->qp->far);
	return h;
}

struct far_host *far_host_make(struct kunit *test, enum ib_qp_state state)
{
	return far_host_make_type(test, IB_QPT_RC, state);
}

void far_host_settle(struct far_host *h)
{
	int i;

	/* The work may queue itself again. */
	for (i = 0; i < 4; i++)
		flush_workqueue(h->qp->kdev->wq);
}

void far_host_open(struct far_host *h)
{
	scoped_guard(spinlock, &h->link.lock) {
		h->link.up = &h->conn;
		h->link.epoch++;
	}
	keel_qp_schedule(h->qp);
	far_host_settle(h);
}

struct far_host *far_xrc_make(struct kunit *test)
{
	struct far_host *h = far_host_make_type(test, IB_QPT_XRC_TGT, IB_QPS_RTS);

	far_host_open(h);
	return h;
}

static u32 far_host_sent(struct far_host *h)
{
	guard(spinlock)(&h->conn.lock);
	return h->nr_sent;
}

u32 far_host_wait(struct far_host *h, u32 n)
{
	unsigned long until = jiffies + FAR_PATIENCE;

	while (far_host_sent(h) < n && time_before(jiffies, until))
		usleep_range(100, 1000);
	far_host_settle(h);
	KUNIT_ASSERT_GE(h->p->test, far_host_sent(h), n);
	return far_host_sent(h);
}

void far_host_recycle(struct far_host *h)
{
	struct keel_buf *buf;

	far_host_settle(h);
	guard(spinlock)(&h->conn.lock);
	while (h->nr_sent) {
		buf = (struct keel_buf *)h->sent[--h->nr_sent];
		list_move_tail(&buf->node, &h->conn.free);
		h->conn.nfree++;
		h->conn.credits++;
	}
}

struct keel_frame far_packet(const struct far_host *h, u32 nr, u8 opcode, u8 flags, u32 len,
			     u64 left)
{
	return (struct keel_frame){
		.type = KEEL_FRAME_REQUEST,
		.flags = flags,
		.len = cpu_to_le32(len),
		.to = cpu_to_le32(h->qp->qpn),
		.from = cpu_to_le32(FAR_QPN),
		.psn = cpu_to_le32(far_psn(nr)),
		.gen = cpu_to_le64(FAR_GEN),
		.srqn = cpu_to_le32(h->qp->type == IB_QPT_XRC_TGT ? to_ksrq(h->p->srq)->srqn : 0),
		.request.opcode = opcode,
		.request.transport = keel_far_transport(h->qp),
		.request.left = cpu_to_le64(left),
		.request.rkey = cpu_to_le32(h->p->b.mr->rkey),
		.request.addr = cpu_to_le64((uintptr_t)h->p->b.buf),
	};
}

static bool far_is_valid(const struct keel_frame *frame)
{
	u32 behind = frame->chunk ? 0 : le32_to_cpu(frame->len);

	return keel_frame_is_valid(frame, sizeof(*frame) + behind);
}

void far_request(struct far_host *h, const struct keel_frame *frame)
{
	KUNIT_EXPECT_TRUE(h->p->test, far_is_valid(frame));
	keel_far_ops.request(&h->link, frame, h->data);
	far_host_settle(h);
}

void far_xrc_send(struct far_host *h, u32 nr, u32 srqn)
{
	struct keel_frame frame = far_packet(h, nr, IB_WR_SEND, ONLY, 64, 64);

	frame.srqn = cpu_to_le32(srqn);
	far_request(h, &frame);
}

const struct keel_frame *far_answered(struct far_host *h, u32 i, u32 nr, u8 result, u8 status)
{
	struct kunit *test = h->p->test;
	const struct keel_frame *frame;

	far_host_wait(h, i + 1);
	frame = h->sent[i]->frame;
	KUNIT_EXPECT_TRUE(test, far_is_valid(frame));
	KUNIT_EXPECT_EQ(test, KEEL_FRAME_ANSWER, frame->type);
	KUNIT_EXPECT_EQ(test, FAR_QPN, le32_to_cpu(frame->to));
	KUNIT_EXPECT_EQ(test, h->qp->qpn, le32_to_cpu(frame->from));
	KUNIT_EXPECT_EQ(test, far_psn(nr), le32_to_cpu(frame->psn));
	KUNIT_EXPECT_EQ(test, FAR_GEN, le64_to_cpu(frame->gen));
	KUNIT_EXPECT_EQ(test, result, frame->answer.result);
	KUNIT_EXPECT_EQ(test, status, frame->answer.status);
	return frame;
}

void far_refused(struct far_host *h, u32 i, const struct keel_frame *frame)
{
	const struct keel_frame *answer;
	struct kunit *test = h->p->test;

	far_request(h, frame);
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	KUNIT_EXPECT_EQ(test, i + 1, far_host_wait(h, i + 1));
	answer = h->sent[i]->frame;
	KUNIT_EXPECT_EQ(test, KEEL_FRAME_ANSWER, answer->type);
	KUNIT_EXPECT_EQ(test, KEEL_RESULT_NOT_READY, answer->answer.result);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(frame->from), le32_to_cpu(answer->to));
	KUNIT_EXPECT_EQ(test, le32_to_cpu(frame->to), le32_to_cpu(answer->from));
	KUNIT_EXPECT_EQ(test, le32_to_cpu(frame->psn), le32_to_cpu(answer->psn));
	KUNIT_EXPECT_EQ(test, le64_to_cpu(frame->gen), le64_to_cpu(answer->gen));
	KUNIT_EXPECT_EQ(test, 0, le32_to_cpu(answer->len));
}

u32 far_answers_n(const struct far_host *h)
{
	guard(spinlock)(&h->qp->far->lock);
	return h->qp->far->answers.n;
}

u32 far_requests_n(const struct far_host *h)
{
	guard(spinlock)(&h->qp->far->lock);
	return h->qp->far->requests.n;
}

struct far_host *far_send_make_type(struct kunit *test, enum ib_qp_type type, u8 **buf)
{
	struct pair *p = test->priv;
	struct far_host *h;
	u32 i;

	p->b_wrs = KEEL_FAR_WINDOW + 4;
	h = far_host_make_type(test, type, IB_QPS_RTS);
	*buf = kunit_kmalloc(test, FAR_LONGEST, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, *buf);
	for (i = 0; i < FAR_LONGEST; i++)
		(*buf)[i] = i % 251;
	far_host_open(h);
	return h;
}

struct far_host *far_send_make(struct kunit *test, u8 **buf)
{
	return far_send_make_type(test, IB_QPT_RC, buf);
}

void far_post_as(struct far_host *h, u8 opcode, void *buf, u32 len, int flags, u64 wr_id)
{
	struct ib_sge sge = {
		.addr = (uintptr_t)buf, .length = len, .lkey = h->p->pd->local_dma_lkey,
	};
	bool add = opcode == IB_WR_ATOMIC_FETCH_AND_ADD, swap = opcode == IB_WR_ATOMIC_CMP_AND_SWP;
	bool imm = opcode == IB_WR_SEND_WITH_IMM || opcode == IB_WR_SEND_WITH_INV ||
		   opcode == IB_WR_RDMA_WRITE_WITH_IMM;
	const struct ib_send_wr wr = {
		.wr_id = wr_id, .opcode = opcode, .sg_list = &sge, .num_sge = 1,
		.send_flags = IB_SEND_SIGNALED | flags,
		.ex.imm_data = (__force __be32)(imm ? FAR_IMM : 0),
	};
	const struct ib_rdma_wr rdma = { .wr = wr, .remote_addr = FAR_REMOTE, .rkey = FAR_RKEY };
	const struct ib_atomic_wr atomic = {
		.wr = wr, .remote_addr = FAR_REMOTE, .rkey = FAR_RKEY, .compare_add = FAR_A,
		.swap = swap ? FAR_B : 0,
	};

	KUNIT_ASSERT_EQ(h->p->test, 0,
			ib_post_send(h->p->b.qp, add || swap ? &atomic.wr : &rdma.wr, NULL));
}

void far_post(struct far_host *h, u8 opcode, void *buf, u32 len)
{
	far_post_as(h, opcode, buf, len, IB_SEND_SOLICITED, FAR_WR_ID);
}

struct keel_frame far_answer(struct far_host *h, u32 nr, u8 status)
{
	return (struct keel_frame){
		.type = KEEL_FRAME_ANSWER,
		.to = cpu_to_le32(h->qp->qpn),
		.from = cpu_to_le32(FAR_QPN),
		.psn = cpu_to_le32(far_psn(nr)),
		.gen = cpu_to_le64(atomic64_read(&h->qp->gen)),
		.answer.result = KEEL_RESULT_DONE,
		.answer.status = status,
	};
}

void far_give(struct far_host *h, const struct keel_frame *answer)
{
	KUNIT_EXPECT_TRUE(h->p->test, far_is_valid(answer));
	keel_far_ops.answer(&h->link, answer, h->data);
	far_host_settle(h);
}

void far_give_done(struct far_host *h, u32 nr, u32 len)
{
	struct keel_frame answer = far_answer(h, nr, IB_WC_SUCCESS);

	answer.len = cpu_to_le32(len);
	far_give(h, &answer);
}

void far_nothing_ended(struct far_host *h)
{
	end_collect(&h->p->b);
	KUNIT_EXPECT_EQ(h->p->test, 0, h->p->b.wcs);
}

void far_ended_with(struct far_host *h, enum ib_wc_status status, u32 why)
{
	struct end *b = &h->p->b;

	pair_settle(h->p, b, 1);
	KUNIT_EXPECT_EQ(h->p->test, 1, b->wcs);
	KUNIT_EXPECT_EQ(h->p->test, FAR_WR_ID, b->wc[0].wr_id);
	KUNIT_EXPECT_EQ(h->p->test, status, b->wc[0].status);
	KUNIT_EXPECT_EQ(h->p->test, why, b->wc[0].vendor_err);
	KUNIT_EXPECT_EQ(h->p->test, status == IB_WC_SUCCESS ? IB_QPS_RTS : IB_QPS_ERR,
			end_state(h->p, b));
}

const struct keel_frame *far_sent(struct far_host *h, u32 i, u32 nr)
{
	far_host_wait(h, i + 1);
	KUNIT_EXPECT_EQ(h->p->test, KEEL_FRAME_REQUEST, h->sent[i]->frame->type);
	KUNIT_EXPECT_EQ(h->p->test, far_psn(nr), le32_to_cpu(h->sent[i]->frame->psn));
	return h->sent[i]->frame;
}
