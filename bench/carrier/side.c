// SPDX-License-Identifier: GPL-2.0
/* The objects of a side, its completions, and its messages. */
#include <linux/cleanup.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/minmax.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <rdma/ib_cache.h>

#include "side.h"

#define CARRIER_RECVS	512
#define CARRIER_READS	16
/* 0.64 ms; 1 s, seven times */
#define CARRIER_RNR_TIMER	12
#define CARRIER_ACK_TIMEOUT	18
#define CARRIER_RETRIES		7

static_assert(CARRIER_DEPTH % CARRIER_BATCH == 0);

/* The errors behind the first one say nothing. */
static void carrier_fail(struct carrier_side *side, enum ib_wc_status status)
{
	if (!side->page->failed)
		WRITE_ONCE(side->page->failed, status);
}

/* One thread at a time calls this. A program sees the new number at once. */
static void carrier_count(u64 *counter, u32 n)
{
	WRITE_ONCE(*counter, *counter + n);
}

static int carrier_post_recv(struct carrier_side *side)
{
	struct ib_sge sge = { side->dma, CARRIER_BYTES, side->pd->local_dma_lkey };
	struct ib_recv_wr wr = {
		.wr_cqe = &side->recv_cqe, .sg_list = &sge, .num_sge = 1,
	};

	return ib_post_recv(side->qp, &wr, NULL);
}

static void carrier_received(struct ib_cq *cq, struct ib_wc *wc)
{
	struct carrier_side *side = cq->cq_context;

	if (wc->status != IB_WC_SUCCESS) {
		carrier_fail(side, wc->status);
		return;
	}
	carrier_count(&side->page->received, 1);
	if (carrier_post_recv(side))
		carrier_fail(side, IB_WC_GENERAL_ERR);
}

static void carrier_completed(struct carrier_side *side, struct ib_wc *wc, u32 n)
{
	if (wc->status != IB_WC_SUCCESS) {
		carrier_fail(side, wc->status);
		return;
	}
	/* First: a program that sees the number may post. */
	atomic_add(n, &side->credits);
	carrier_count(&side->page->sent, n);
}

static void carrier_sent(struct ib_cq *cq, struct ib_wc *wc)
{
	carrier_completed(cq->cq_context, wc, CARRIER_BATCH);
}

static void carrier_moved(struct ib_cq *cq, struct ib_wc *wc)
{
	carrier_completed(cq->cq_context, wc, 1);
}

static int carrier_buffer(struct carrier_side *side)
{
	side->buf = kzalloc(CARRIER_BYTES, GFP_KERNEL | __GFP_NOWARN);
	if (!side->buf)
		return -ENOMEM;
	side->dma = ib_dma_map_single(side->ib, side->buf, CARRIER_BYTES, DMA_BIDIRECTIONAL);
	if (!ib_dma_mapping_error(side->ib, side->dma))
		return 0;
	side->dma = 0;
	return -EIO;
}

static int carrier_run(void *arg)
{
	struct carrier_side *side = arg;
	struct ib_wc wcs[16];
	int i, n;

	sched_set_fifo_low(current);
	while (!kthread_should_stop()) {
		n = ib_poll_cq(side->cq, ARRAY_SIZE(wcs), wcs);
		for (i = 0; i < n; i++)
			wcs[i].wr_cqe->done(side->cq, &wcs[i]);
		if (n > 0)
			continue;
		set_current_state(TASK_INTERRUPTIBLE);
		/* Some may have come since the last poll. */
		if (!kthread_should_stop() &&
		    ib_req_notify_cq(side->cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS) <= 0)
			schedule();
		__set_current_state(TASK_RUNNING);
	}
	return 0;
}

/* &ib_cq.comp_handler */
static void carrier_wake(struct ib_cq *cq, void *arg)
{
	struct carrier_side *side = cq->cq_context;

	wake_up_process(side->thread);
}

static void carrier_event(struct ib_event *event, void *arg)
{
	/* Nothing arrives any more, and the program gives up. */
}

static int carrier_start(struct carrier_side *side)
{
	const struct ib_cq_init_attr attr = { .cqe = CARRIER_DEPTH + CARRIER_RECVS + 2 };
	struct task_struct *thread;
	struct ib_cq *cq;

	if (side->context == CARRIER_SOFTIRQ)
		cq = ib_alloc_cq(side->ib, side, attr.cqe, 0, IB_POLL_SOFTIRQ);
	else
		cq = ib_create_cq(side->ib, carrier_wake, carrier_event, side, &attr);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	side->cq = cq;
	if (side->context == CARRIER_SOFTIRQ)
		return 0;
	thread = kthread_create(carrier_run, side, "keel_carrier");
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	/* A device may call carrier_wake() until its CQ is destroyed. */
	get_task_struct(thread);
	side->thread = thread;
	/* It asks for events only now. */
	wake_up_process(thread);
	return 0;
}

static void carrier_stop(struct carrier_side *side)
{
	if (side->thread)
		kthread_stop(side->thread);
	if (side->cq && side->context == CARRIER_SOFTIRQ)
		ib_free_cq(side->cq);
	else if (side->cq)
		ib_destroy_cq(side->cq);
	side->cq = NULL;
	if (side->thread)
		put_task_struct(side->thread);
	side->thread = NULL;
}

static int carrier_objects(struct carrier_side *side)
{
	struct ib_qp_init_attr init = {
		.cap = {
			/* One more each for ib_drain_qp(). */
			.max_send_wr = CARRIER_DEPTH + 1,
			.max_recv_wr = CARRIER_RECVS + 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_RC,
	};
	struct ib_pd *pd;
	struct ib_qp *qp;
	int ret;

	/* rxe then looks for no page of an MR: less is not possible. */
	pd = ib_alloc_pd(side->ib, IB_PD_UNSAFE_GLOBAL_RKEY);
	if (IS_ERR(pd))
		return PTR_ERR(pd);
	side->pd = pd;
	ret = carrier_start(side);
	if (ret)
		return ret;
	init.send_cq = side->cq;
	init.recv_cq = side->cq;
	qp = ib_create_qp(pd, &init);
	if (IS_ERR(qp))
		return PTR_ERR(qp);
	side->qp = qp;
	return 0;
}

/**
 * carrier_begin() - give a side its objects, and bring its QP to INIT
 * @side: the side, which has a device
 *
 * Context: may sleep.
 * Return: 0 or a negative errno: the caller calls carrier_end() in both cases.
 */
int carrier_begin(struct carrier_side *side)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT,
		.port_num = CARRIER_PORT,
		.qp_access_flags = IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ,
	};
	int i, ret;

	side->send_cqe.done = carrier_sent;
	side->rdma_cqe.done = carrier_moved;
	side->recv_cqe.done = carrier_received;
	atomic_set(&side->credits, CARRIER_DEPTH);
	side->sends = 0;
	memset(side->page, 0, sizeof(*side->page));
	ret = carrier_buffer(side);
	ret = ret ?: carrier_objects(side);
	ret = ret ?: ib_modify_qp(side->qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT |
				  IB_QP_ACCESS_FLAGS);
	side->began = !ret;
	for (i = 0; i < CARRIER_RECVS && !ret; i++)
		ret = carrier_post_recv(side);
	return ret;
}

/**
 * carrier_end() - undo carrier_begin(), as far as it came
 * @side: the side, for which nothing is posted any more; after this, it has no device
 *
 * Context: may sleep.
 */
void carrier_end(struct carrier_side *side)
{
	if (side->began)
		ib_drain_qp(side->qp);
	side->began = false;
	if (side->qp)
		ib_destroy_qp(side->qp);
	side->qp = NULL;
	carrier_stop(side);
	if (side->pd)
		ib_dealloc_pd(side->pd);
	side->pd = NULL;
	if (side->dma)
		ib_dma_unmap_single(side->ib, side->dma, CARRIER_BYTES, DMA_BIDIRECTIONAL);
	side->dma = 0;
	kfree(side->buf);
	side->buf = NULL;
	side->ib = NULL;
}

static int carrier_mtu(const struct carrier_side *side, enum ib_mtu *mtu)
{
	struct ib_port_attr port;
	int ret = ib_query_port(side->ib, CARRIER_PORT, &port);

	if (!ret)
		*mtu = min(*mtu, port.active_mtu);
	return ret;
}

/**
 * carrier_join() - bring the QP of a side from INIT to RTS
 * @side: the side
 * @peer: the other one
 *
 * Context: may sleep.
 * Return: 0 or a negative errno.
 */
int carrier_join(struct carrier_side *side, struct carrier_side *peer)
{
	const struct ib_device_attr *mine = &side->ib->attrs;
	const struct ib_device_attr *other = &peer->ib->attrs;
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_RTR,
		.path_mtu = IB_MTU_4096,
		.dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = min(mine->max_qp_rd_atom, CARRIER_READS),
		.min_rnr_timer = CARRIER_RNR_TIMER,
		.ah_attr.type = RDMA_AH_ATTR_TYPE_ROCE,
	};
	union ib_gid gid;
	int ret;

	side->remote = peer->dma;
	side->rkey = peer->pd->unsafe_global_rkey;
	ret = rdma_query_gid(peer->ib, CARRIER_PORT, peer->gid_index, &gid);
	ret = ret ?: carrier_mtu(side, &attr.path_mtu);
	ret = ret ?: carrier_mtu(peer, &attr.path_mtu);
	if (ret)
		return ret;
	rdma_ah_set_port_num(&attr.ah_attr, CARRIER_PORT);
	rdma_ah_set_grh(&attr.ah_attr, &gid, 0, side->gid_index, 1, 0);
	ret = ib_modify_qp(side->qp, &attr, IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU |
			   IB_QP_DEST_QPN | IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC |
			   IB_QP_MIN_RNR_TIMER);
	if (ret)
		return ret;
	attr.qp_state = IB_QPS_RTS;
	attr.timeout = CARRIER_ACK_TIMEOUT;
	attr.retry_cnt = CARRIER_RETRIES;
	attr.rnr_retry = CARRIER_RETRIES;
	attr.max_rd_atomic = min3(mine->max_qp_init_rd_atom, other->max_qp_rd_atom,
				  CARRIER_READS);
	return ib_modify_qp(side->qp, &attr, IB_QP_STATE | IB_QP_TIMEOUT | IB_QP_RETRY_CNT |
			    IB_QP_RNR_RETRY | IB_QP_SQ_PSN | IB_QP_MAX_QP_RD_ATOMIC);
}

/**
 * carrier_post() - post a message
 * @side: the side that posts
 * @what: the message, as a program has written it
 *
 * Context: may sleep.
 * Return: 0 or a negative errno: -EAGAIN: CARRIER_DEPTH messages have not completed.
 */
int carrier_post(struct carrier_side *side, const struct carrier_post *what)
{
	static const enum ib_wr_opcode opcodes[] = {
		[CARRIER_SEND] = IB_WR_SEND,
		[CARRIER_WRITE] = IB_WR_RDMA_WRITE,
		[CARRIER_READ] = IB_WR_RDMA_READ,
	};
	struct ib_rdma_wr wr = {};
	struct ib_sge sge;
	int ret;

	if (what->op >= ARRAY_SIZE(opcodes) || !what->bytes || what->bytes > CARRIER_BYTES)
		return -EINVAL;
	guard(mutex)(&side->lock);
	if (!side->up)
		return -ENOTCONN;
	if (atomic_dec_if_positive(&side->credits) < 0)
		return -EAGAIN;
	sge = (struct ib_sge){ side->dma, what->bytes, side->pd->local_dma_lkey };
	wr.wr.sg_list = &sge;
	wr.wr.num_sge = 1;
	wr.wr.opcode = opcodes[what->op];
	if (what->op == CARRIER_SEND) {
		wr.wr.wr_cqe = &side->send_cqe;
		if (side->sends % CARRIER_BATCH == CARRIER_BATCH - 1)
			wr.wr.send_flags = IB_SEND_SIGNALED;
	} else {
		wr.wr.wr_cqe = &side->rdma_cqe;
		wr.wr.send_flags = IB_SEND_SIGNALED;
		wr.remote_addr = side->remote;
		wr.rkey = side->rkey;
	}
	ret = ib_post_send(side->qp, &wr.wr, NULL);
	if (ret)
		atomic_inc(&side->credits);
	else if (what->op == CARRIER_SEND)
		side->sends++;
	return ret;
}
