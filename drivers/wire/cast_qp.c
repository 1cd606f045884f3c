// SPDX-License-Identifier: GPL-2.0
/*
 * Multicast to and from other hosts: the QP of a lower device. Any host can send to it, so
 * what it receives is checked before anything is done with it.
 */
#include <linux/err.h>
#include <linux/slab.h>
#include <net/if_inet6.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <rdma/ib_cache.h>

#include "keel.h"
#include "keel_cast.h"

/*
 * The Q_Key of all datagrams. It is a controlled one: to have it, a QP of a user needs
 * CAP_NET_RAW.
 */
#define KEEL_CAST_QKEY		0xeb65656c

/**
 * struct keel_cast_head - what a lower device writes in front of the data
 * @grh: the header of the packet
 * @frame: header of the frame
 */
struct keel_cast_head {
	union rdma_network_hdr grh;
	struct keel_frame frame;
};

static_assert(sizeof(struct keel_cast_head) == 40 + sizeof(struct keel_frame));

#define KEEL_CAST_STRIDE	ALIGN(sizeof(struct keel_cast_head), ARCH_DMA_MINALIGN)

/**
 * struct keel_cast_buf - a buffer to receive
 * @cqe: for the completion
 * @cqp: the QP
 * @head: the headers
 * @data: the bytes behind them: a page
 * @head_dma: address of @head for the device, or 0
 * @data_dma: the same for @data
 */
struct keel_cast_buf {
	struct ib_cqe cqe;
	struct keel_cast_qp *cqp;
	struct keel_cast_head *head;
	void *data;
	u64 head_dma;
	u64 data_dma;
};

/**
 * struct keel_cast_qp - QP of a lower device for all groups of a device
 * @cast: the device
 * @lower: the lower device, with a reference
 * @port: its port
 * @broken: the QP works no more
 * @ready: it may receive, so that it has to be drained
 * @sends: one of the QP, and one for each datagram that was posted
 * @sent: completed when @sends is 0
 * @cq: completions, which a workqueue handles one after the other
 * @qp: the QP
 * @heads: memory of all headers
 * @recvs: buffers to receive
 */
struct keel_cast_qp {
	struct keel_cast *cast;
	struct keel_lower *lower;
	u32 port;
	bool broken;
	bool ready;
	struct kref sends;
	struct completion sent;
	struct ib_cq *cq;
	struct ib_qp *qp;
	void *heads;
	struct keel_cast_buf recvs[KEEL_CAST_RECVS];
};

/* The work makes another one. */
static void keel_cast_qp_fail(struct keel_cast_qp *cqp)
{
	WRITE_ONCE(cqp->broken, true);
	keel_cast_run(cqp->cast);
}

/**
 * keel_cast_qp_is_broken() - does a QP work no more?
 * @cqp: the QP
 *
 * Context: any.
 * Return: true if so.
 */
bool keel_cast_qp_is_broken(const struct keel_cast_qp *cqp)
{
	return READ_ONCE(cqp->broken) || READ_ONCE(cqp->lower->lost);
}

/**
 * keel_cast_qp_is_at() - is a QP one of a port?
 * @cqp: the QP
 * @lower: a lower device
 * @port: its port
 *
 * Context: any.
 * Return: true if so.
 */
bool keel_cast_qp_is_at(const struct keel_cast_qp *cqp, const struct keel_lower *lower,
			u32 port)
{
	return cqp->lower == lower && cqp->port == port;
}

/**
 * keel_cast_qp_device() - the lower device of a QP
 * @cqp: the QP
 *
 * Context: any.
 * Return: its name, which is valid as long as the QP.
 */
const char *keel_cast_qp_device(const struct keel_cast_qp *cqp)
{
	return cqp->lower->ib->name;
}

/* @ends gets the group as its own side. Return: false if keel has not sent this to a group. */
static bool keel_cast_is_sane(const struct keel_cast_qp *cqp, const struct ib_wc *wc,
			      const struct keel_cast_head *head, struct keel_ends *ends)
{
	enum rdma_network_type type = RDMA_NETWORK_IPV6;

	if (wc->opcode != IB_WC_RECV || !(wc->wc_flags & IB_WC_GRH) ||
	    wc->byte_len < sizeof(head->grh) ||
	    !keel_frame_is_group(&head->frame, wc->byte_len - sizeof(head->grh)))
		return false;
	/* The lower device may return what this device has sent: its members have it already. */
	if (head->frame.cookie == cqp->cast->cookie)
		return false;
	if (ib_get_rdma_header_version(&head->grh) == 4)
		type = RDMA_NETWORK_IPV4;
	memset(ends, 0, sizeof(*ends));
	if (ib_get_gids_from_rdma_hdr(&head->grh, type, &ends->dgid, &ends->sgid))
		return false;
	return rdma_is_multicast_addr((struct in6_addr *)ends->sgid.raw) &&
	       !rdma_is_multicast_addr((struct in6_addr *)ends->dgid.raw) &&
	       !rdma_is_zero_gid(&ends->dgid);
}

static int keel_cast_post_recv(struct keel_cast_buf *buf)
{
	u32 lkey = buf->cqp->lower->pd->local_dma_lkey;
	struct ib_sge sge[] = {
		{ buf->head_dma, sizeof(*buf->head), lkey },
		{ buf->data_dma, KEEL_CAST_DATA, lkey },
	};
	struct ib_recv_wr wr = {
		.wr_cqe = &buf->cqe, .sg_list = sge, .num_sge = ARRAY_SIZE(sge),
	};

	return ib_post_recv(buf->cqp->qp, &wr, NULL);
}

static void keel_cast_received(struct ib_cq *cq, struct ib_wc *wc)
{
	struct keel_cast_buf *buf = container_of(wc->wr_cqe, struct keel_cast_buf, cqe);
	struct keel_cast_qp *cqp = buf->cqp;
	struct ib_device *ib = cqp->lower->ib;
	struct keel_cast_head head;
	struct keel_ends ends;

	if (wc->status != IB_WC_SUCCESS) {
		keel_cast_qp_fail(cqp);
		return;
	}
	ib_dma_sync_single_for_cpu(ib, buf->head_dma, sizeof(head), DMA_FROM_DEVICE);
	ib_dma_sync_single_for_cpu(ib, buf->data_dma, KEEL_CAST_DATA, DMA_FROM_DEVICE);
	head = *buf->head;
	if (keel_cast_is_sane(cqp, wc, &head, &ends))
		keel_wire_group(container_of(cqp->cast, struct keel_dev, cast), &ends,
				&head.frame, buf->data);
	ib_dma_sync_single_for_device(ib, buf->head_dma, sizeof(head), DMA_FROM_DEVICE);
	ib_dma_sync_single_for_device(ib, buf->data_dma, KEEL_CAST_DATA, DMA_FROM_DEVICE);
	if (keel_cast_post_recv(buf))
		keel_cast_qp_fail(cqp);
}

static void keel_cast_unmap(struct keel_cast_qp *cqp, struct keel_cast_buf *buf)
{
	struct ib_device *ib = cqp->lower->ib;

	if (buf->head_dma)
		ib_dma_unmap_single(ib, buf->head_dma, sizeof(*buf->head), DMA_FROM_DEVICE);
	if (buf->data_dma)
		ib_dma_unmap_single(ib, buf->data_dma, KEEL_CAST_DATA, DMA_FROM_DEVICE);
	free_page((unsigned long)buf->data);
}

static int keel_cast_map(struct keel_cast_qp *cqp, struct keel_cast_buf *buf, int i)
{
	struct ib_device *ib = cqp->lower->ib;

	buf->cqe.done = keel_cast_received;
	buf->cqp = cqp;
	buf->head = cqp->heads + i * KEEL_CAST_STRIDE;
	buf->data = (void *)get_zeroed_page(GFP_KERNEL);
	if (!buf->data)
		return -ENOMEM;
	buf->head_dma = ib_dma_map_single(ib, buf->head, sizeof(*buf->head), DMA_FROM_DEVICE);
	if (ib_dma_mapping_error(ib, buf->head_dma)) {
		buf->head_dma = 0;
		return -EIO;
	}
	buf->data_dma = ib_dma_map_single(ib, buf->data, KEEL_CAST_DATA, DMA_FROM_DEVICE);
	if (ib_dma_mapping_error(ib, buf->data_dma)) {
		buf->data_dma = 0;
		return -EIO;
	}
	return 0;
}

static int keel_cast_fill(struct keel_cast_qp *cqp)
{
	int i, ret;

	cqp->heads = kcalloc(KEEL_CAST_RECVS, KEEL_CAST_STRIDE, GFP_KERNEL);
	if (!cqp->heads)
		return -ENOMEM;
	for (i = 0; i < KEEL_CAST_RECVS; i++) {
		ret = keel_cast_map(cqp, &cqp->recvs[i], i);
		ret = ret ?: keel_cast_post_recv(&cqp->recvs[i]);
		if (ret)
			return ret;
	}
	return 0;
}

static int keel_cast_begin(struct keel_cast_qp *cqp)
{
	struct ib_qp_init_attr init = {
		.cap = {
			.max_send_wr = KEEL_CAST_SENDS,
			/* One more for ib_drain_rq(). */
			.max_recv_wr = KEEL_CAST_RECVS + 1,
			.max_send_sge = 1,
			.max_recv_sge = 2,
		},
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_UD,
	};

	cqp->cq = ib_alloc_cq_any(cqp->lower->ib, cqp, KEEL_CAST_SENDS + KEEL_CAST_RECVS + 1,
				  IB_POLL_UNBOUND_WORKQUEUE);
	if (IS_ERR(cqp->cq)) {
		/* Nobody asks why. */
		cqp->cq = NULL;
		return -ENODEV;
	}
	init.send_cq = cqp->cq;
	init.recv_cq = cqp->cq;
	cqp->qp = ib_create_qp(cqp->lower->pd, &init);
	if (!IS_ERR(cqp->qp))
		return 0;
	/* Likewise. */
	cqp->qp = NULL;
	return -ENODEV;
}

static int keel_cast_ready(struct keel_cast_qp *cqp)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT, .port_num = cqp->port, .qkey = KEEL_CAST_QKEY,
	};
	int ret;

	ret = ib_modify_qp(cqp->qp, &attr,
			   IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY);
	cqp->ready = !ret;
	ret = ret ?: keel_cast_fill(cqp);
	attr.qp_state = IB_QPS_RTR;
	ret = ret ?: ib_modify_qp(cqp->qp, &attr, IB_QP_STATE);
	attr.qp_state = IB_QPS_RTS;
	return ret ?: ib_modify_qp(cqp->qp, &attr, IB_QP_STATE | IB_QP_SQ_PSN);
}

/**
 * keel_cast_qp_new() - make the QP of a device
 * @cast: the device
 * @lower: the lower device; the caller has a reference, of which the QP gets its own
 * @port: its port
 *
 * Context: may sleep.
 * Return: the QP, for keel_cast_qp_destroy(); or ERR_PTR().
 */
struct keel_cast_qp *keel_cast_qp_new(struct keel_cast *cast, struct keel_lower *lower,
				      u32 port)
{
	struct keel_cast_qp *cqp = kzalloc_obj(*cqp, GFP_KERNEL);
	int ret;

	if (!cqp)
		return ERR_PTR(-ENOMEM);
	keel_lower_get(lower);
	cqp->lower = lower;
	cqp->cast = cast;
	cqp->port = port;
	kref_init(&cqp->sends);
	init_completion(&cqp->sent);
	ret = keel_cast_begin(cqp);
	ret = ret ?: keel_cast_ready(cqp);
	if (!ret)
		return cqp;
	keel_cast_qp_destroy(cqp);
	return ERR_PTR(ret);
}

static void keel_cast_sends_over(struct kref *ref)
{
	complete(&container_of(ref, struct keel_cast_qp, sends)->sent);
}

static void keel_cast_send_end(struct keel_cast_qp *cqp)
{
	kref_put(&cqp->sends, keel_cast_sends_over);
}

/*
 * Wait for all completions. Nothing is posted any more. ib_drain_qp() posts an RDMA write, which
 * rxe refuses for a UD QP.
 */
static void keel_cast_drain(struct keel_cast_qp *cqp)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	ib_modify_qp(cqp->qp, &attr, IB_QP_STATE);
	ib_drain_rq(cqp->qp);
	keel_cast_send_end(cqp);
	wait_for_completion(&cqp->sent);
}

/**
 * keel_cast_qp_destroy() - destroy the QP of a device
 * @cqp: the QP, which is attached to no group
 *
 * Context: may sleep.
 */
void keel_cast_qp_destroy(struct keel_cast_qp *cqp)
{
	int i;

	if (cqp->ready)
		keel_cast_drain(cqp);
	if (cqp->qp && ib_destroy_qp(cqp->qp)) {
		/* It is still attached to a group: what it may write to stays. */
		dev_err(&cqp->lower->ib->dev, "keel cannot destroy a queue pair\n");
		keel_lower_put(cqp->lower);
		return;
	}
	if (cqp->cq)
		ib_free_cq(cqp->cq);
	for (i = 0; i < KEEL_CAST_RECVS; i++)
		keel_cast_unmap(cqp, &cqp->recvs[i]);
	kfree(cqp->heads);
	keel_lower_put(cqp->lower);
	kfree(cqp);
}

/**
 * keel_cast_qp_attach() - attach a QP to a group
 * @cqp: the QP
 * @group: the group
 *
 * Context: may sleep.
 * Return: 0 or a negative errno.
 */
int keel_cast_qp_attach(struct keel_cast_qp *cqp, struct keel_cast_group *group)
{
	return ib_attach_mcast(cqp->qp, &group->gid, 0);
}

/**
 * keel_cast_qp_detach() - undo keel_cast_qp_attach()
 * @cqp: the QP
 * @group: the group
 *
 * Context: may sleep.
 */
void keel_cast_qp_detach(struct keel_cast_qp *cqp, struct keel_cast_group *group)
{
	int ret = ib_detach_mcast(cqp->qp, &group->gid, 0);

	if (ret)
		dev_warn(&cqp->lower->ib->dev, "keel cannot leave the group %pI6c: %pe\n",
			 group->gid.raw, ERR_PTR(ret));
}

/* Undo what keel_cast_qp_send() has done. */
static void keel_cast_unsend(struct keel_cast_qp *cqp, struct keel_cast_msg *msg)
{
	if (msg->dma)
		ib_dma_unmap_single(cqp->lower->ib, msg->dma, sizeof(msg->frame) + msg->len,
				    DMA_TO_DEVICE);
	msg->dma = 0;
	if (msg->ah)
		rdma_destroy_ah(msg->ah, RDMA_DESTROY_AH_SLEEPABLE);
	msg->ah = NULL;
}

static void keel_cast_sent(struct ib_cq *cq, struct ib_wc *wc)
{
	struct keel_cast_msg *msg = container_of(wc->wr_cqe, struct keel_cast_msg, cqe);
	struct keel_cast_qp *cqp = cq->cq_context;

	keel_cast_unsend(cqp, msg);
	if (wc->status == IB_WC_SUCCESS) {
		keel_cast_msg_free(msg);
	} else {
		keel_cast_msg_drop(msg);
		keel_cast_qp_fail(cqp);
	}
	/* The QP may be destroyed from here on. */
	keel_cast_send_end(cqp);
}

/* The address of a group. ib_core sets the MAC address for users only. */
static struct ib_ah *keel_cast_address(const struct keel_cast_qp *cqp,
				       struct keel_cast_msg *msg,
				       const struct ib_gid_attr *attr)
{
	const struct in6_addr *to = (const struct in6_addr *)msg->ends.dgid.raw;
	struct rdma_ah_attr ah = { .type = RDMA_AH_ATTR_TYPE_ROCE };

	rdma_ah_set_port_num(&ah, cqp->port);
	/* uverbs checks neither, and drivers put them beside other bits. */
	rdma_ah_set_sl(&ah, msg->sl & 0xf);
	rdma_ah_set_grh(&ah, &msg->ends.dgid,
			le32_to_cpu(msg->frame.datagram.flow_label) & 0xfffff,
			attr->index, msg->frame.datagram.hop_limit,
			msg->frame.datagram.tclass);
	if (ipv6_addr_v4mapped(to))
		ip_eth_mc_map(to->s6_addr32[3], (char *)ah.roce.dmac);
	else
		ipv6_eth_mc_map(to, (char *)ah.roce.dmac);
	return rdma_create_ah(cqp->lower->pd, &ah, RDMA_CREATE_AH_SLEEPABLE);
}

static int keel_cast_prepare(struct keel_cast_qp *cqp, struct keel_cast_msg *msg,
			     const struct ib_gid_attr *attr)
{
	struct ib_device *ib = cqp->lower->ib;
	struct ib_ah *ah = keel_cast_address(cqp, msg, attr);

	if (IS_ERR(ah))
		return PTR_ERR(ah);
	msg->ah = ah;
	msg->dma = ib_dma_map_single(ib, &msg->frame, sizeof(msg->frame) + msg->len,
				     DMA_TO_DEVICE);
	if (!ib_dma_mapping_error(ib, msg->dma))
		return 0;
	msg->dma = 0;
	return -EIO;
}

/**
 * keel_cast_qp_send() - send a datagram
 * @cqp: the QP
 * @msg: the datagram
 * @attr: its source GID, of the lower device
 *
 * Context: may sleep.
 * Return: 0: a completion frees the datagram; or a negative errno: -EMSGSIZE: it does not fit
 * into one packet.
 */
int keel_cast_qp_send(struct keel_cast_qp *cqp, struct keel_cast_msg *msg,
		      const struct ib_gid_attr *attr)
{
	struct ib_sge sge = {
		.length = sizeof(msg->frame) + msg->len,
		.lkey = cqp->lower->pd->local_dma_lkey,
	};
	struct ib_ud_wr wr = {
		.wr = {
			.wr_cqe = &msg->cqe,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IB_WR_SEND,
			.send_flags = IB_SEND_SIGNALED,
		},
		.remote_qpn = IB_MULTICAST_QPN,
		.remote_qkey = KEEL_CAST_QKEY,
		.port_num = cqp->port,
	};
	int ret;

	if (sge.length > ib_mtu_enum_to_int(keel_gid_mtu(attr)))
		return -EMSGSIZE;
	msg->cqe.done = keel_cast_sent;
	ret = keel_cast_prepare(cqp, msg, attr);
	sge.addr = msg->dma;
	wr.ah = msg->ah;
	kref_get(&cqp->sends);
	ret = ret ?: ib_post_send(cqp->qp, &wr.wr, NULL);
	if (!ret)
		return 0;
	keel_cast_send_end(cqp);
	keel_cast_unsend(cqp, msg);
	return ret;
}
