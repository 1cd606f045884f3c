// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams: UD, and the GSI QP of the kernel. A datagram that no QP can
 * receive is dropped, and the requester still reports success.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/sched/signal.h>
#include <linux/udp.h>
#include <net/inet_ecn.h>
#include <net/ip.h>
#include <net/ipv6.h>

#include "keel_far.h"
#include "keel_opcode.h"
#include "keel_resp_lock.h"

/* The destination port of RoCE v2. */
#define KEEL_UDP_PORT	4791
/* If this bit of a work request's Q_Key is set, the QP's own Q_Key is used. */
#define KEEL_QKEY_OF_QP	BIT(31)

static_assert(sizeof(struct ipv6hdr) == KEEL_GRH_BYTES);

/**
 * keel_ud_grh() - write the header that a NIC would put in front of a datagram
 * @av: the address
 * @len: bytes of the datagram
 * @grh: the IPv6 header, or, in the last 20 bytes, the IPv4 header of RoCE v2. A
 *	receiver reads the source address from it, and can reply.
 *
 * Context: any.
 */
void keel_ud_grh(const struct keel_av *av, u32 len, u8 grh[KEEL_GRH_BYTES])
{
	u16 payload = len + sizeof(struct udphdr);
	struct ipv6hdr *ip6 = (struct ipv6hdr *)grh;
	struct iphdr *ip;

	memset(grh, 0, KEEL_GRH_BYTES);
	if (!av->ipv4) {
		ip6_flow_hdr(ip6, av->tclass, htonl(av->flow_label & 0xfffff));
		ip6->payload_len = htons(payload);
		ip6->nexthdr = IPPROTO_UDP;
		ip6->hop_limit = av->hop_limit;
		memcpy(&ip6->saddr, av->sgid.raw, sizeof(ip6->saddr));
		memcpy(&ip6->daddr, av->dgid.raw, sizeof(ip6->daddr));
		return;
	}
	ip = (struct iphdr *)(grh + KEEL_GRH_BYTES - sizeof(*ip));
	ip->version = IPVERSION;
	ip->ihl = sizeof(*ip) / 4;
	ip->tos = av->tclass;
	ip->tot_len = htons(sizeof(*ip) + payload);
	ip->frag_off = htons(IP_DF);
	ip->ttl = av->hop_limit;
	ip->protocol = IPPROTO_UDP;
	memcpy(&ip->saddr, av->sgid.raw + 12, sizeof(ip->saddr));
	memcpy(&ip->daddr, av->dgid.raw + 12, sizeof(ip->daddr));
	ip_send_check(ip);
}

/**
 * keel_ud_takes() - does a QP accept datagrams with a Q_Key?
 * @peer: any QP; RCU or a reference keeps it
 * @qkey: the Q_Key
 *
 * Context: any. As keel_qp_connected().
 * Return: true if so.
 */
bool keel_ud_takes(const struct keel_qp *peer, u32 qkey)
{
	/* The attributes were set before the state. */
	enum ib_qp_state state = context_unsafe(smp_load_acquire(&peer->state));

	if (!keel_qp_is_dgram(peer))
		return false;
	return !keel_qp_is_dying(peer) && state >= IB_QPS_RTR &&
	       state != IB_QPS_ERR && READ_ONCE(peer->attr.qkey) == qkey;
}

/* Copy memory that is present. Return: false if a key was invalidated. */
static bool keel_ud_copy(const struct keel_segs *dst, u64 dst_off,
			 const struct keel_segs *src, u64 len)
{
	struct keel_copy_ctl ctl;

	keel_copy_ctl_init(&ctl, NULL, NULL);
	return keel_copy(dst, dst_off, src, 0, len, &ctl) == KEEL_COPY_DONE;
}

/* Fill the peer's receive WQE, which is large enough. */
static bool keel_ud_fill(struct keel_xfer *x, const u8 *grh)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	const struct keel_mem mem = {
		.type = KEEL_MEM_KERNEL, .start = (uintptr_t)grh,
	};
	struct keel_segs *src = &x->from->segs;
	struct keel_segs *dst = &x->peer->resp.segs;
	struct keel_segs *head = &x->from->remote;

	keel_segs_one(head, &mem, 0, KEEL_GRH_BYTES);
	return keel_ud_copy(dst, 0, head, KEEL_GRH_BYTES) &&
	       keel_ud_copy(dst, KEEL_GRH_BYTES, src, src->len);
}

/*
 * The memory of the receive WQE may be absent, but the requester of a datagram
 * does not wait. So the datagram is kept for the peer, whose owner requests the
 * memory. Until then the peer accepts no other datagram.
 */
static bool keel_ud_keep(struct keel_xfer *x, const u8 *grh,
			 const struct keel_uapi_cqe *cqe)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	struct keel_dgram *dgram = x->peer->resp.dgram;
	const struct keel_mem mem = {
		.type = KEEL_MEM_KERNEL, .start = (uintptr_t)dgram->data,
	};
	struct keel_segs *src = &x->from->segs;
	struct keel_segs *to = &x->from->remote;

	memcpy(dgram->data, grh, KEEL_GRH_BYTES);
	keel_segs_one(to, &mem, KEEL_GRH_BYTES, src->len);
	if (!keel_ud_copy(to, 0, src, src->len))
		return false;
	dgram->len = KEEL_GRH_BYTES + src->len;
	dgram->cqe = *cqe;
	dgram->solicited = x->wqe->flags & IB_SEND_SOLICITED;
	WRITE_ONCE(dgram->pending, true);
	keel_qp_schedule(x->peer);
	return true;
}

/* Take a receive WQE that is large enough. Return: false if there is none. */
static bool keel_ud_take(struct keel_xfer *x, u32 len)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	struct keel_segs *dst = &x->peer->resp.segs;
	enum ib_wc_status status;
	u32 why = KEEL_WHY_NONE;

	if (keel_recv_take(x) <= 0)
		return false;
	status = keel_recv_segs(x->peer, len, &why);
	if (status != IB_WC_SUCCESS) {
		keel_recv_complete(x, status, why, 0, 0);
		return false;
	}
	if (dst->len >= len)
		return true;
	/* The receive WQE stays for a shorter datagram. */
	keel_segs_put(dst);
	return false;
}

/* Return: true if an earlier datagram is kept for the receive WQE. */
static bool keel_ud_is_full(const struct keel_qp *peer)
{
	return peer->resp.dgram && READ_ONCE(peer->resp.dgram->pending);
}

/* Context: the peer's responder lock is held. */
static bool keel_ud_receive(struct keel_xfer *x, const struct keel_av *av)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	u8 flags = KEEL_CQE_F_GRH | (av->ipv4 ? KEEL_CQE_F_IPV4 : 0);
	u32 len = x->from->segs.len;
	struct keel_resp *resp = &x->peer->resp;
	u8 grh[KEEL_GRH_BYTES] __aligned(8);
	struct keel_uapi_cqe cqe;
	bool lacks, filled;

	if (keel_ud_is_full(x->peer))
		return false;
	if (!keel_ud_take(x, KEEL_GRH_BYTES + len))
		return false;
	if (x->wqe->opcode == IB_WR_SEND_WITH_IMM)
		flags |= KEEL_CQE_F_IMM;
	cqe = keel_recv_cqe(x, IB_WC_SUCCESS, KEEL_WHY_NONE,
			    KEEL_GRH_BYTES + len, flags);
	keel_ud_grh(av, len, grh);
	/* Memory of kernel consumers is always present. */
	lacks = resp->dgram && keel_segs_may_lack(&resp->segs);
	filled = lacks ? keel_ud_keep(x, grh, &cqe) : keel_ud_fill(x, grh);
	keel_segs_put(&resp->segs);
	/* Otherwise the receive WQE stays for the next datagram. */
	if (filled && !lacks)
		keel_recv_report(x->peer, &cqe, x->wqe->flags & IB_SEND_SOLICITED);
	return filled;
}

/*
 * Retry to fill the receive WQE, and set the CQE if this has ended. Context: the
 * responder's lock is held.
 */
static enum keel_copy_result keel_dgram_copy(struct keel_qp *qp)
	__must_hold(&qp->resp.lock)
{
	struct keel_dgram *dgram = qp->resp.dgram;
	const struct keel_mem mem = {
		.type = KEEL_MEM_KERNEL, .start = (uintptr_t)dgram->data,
	};
	struct keel_uapi_cqe *cqe = &dgram->cqe;
	enum keel_copy_result copied = KEEL_COPY_DST;
	struct keel_segs src;
	u32 why = KEEL_WHY_FAULT;

	cqe->status = keel_recv_segs(qp, dgram->len, &why);
	if (cqe->status == IB_WC_SUCCESS) {
		keel_segs_one(&src, &mem, 0, dgram->len);
		copied = keel_copy(&qp->resp.segs, 0, &src, 0, dgram->len,
				   &dgram->fetch.ctl);
		keel_segs_put(&qp->resp.segs);
	}
	if (copied == KEEL_COPY_ABSENT)
		return copied;
	if (copied != KEEL_COPY_DONE) {
		if (cqe->status == IB_WC_SUCCESS)
			cqe->status = IB_WC_LOC_PROT_ERR;
		cqe->vendor_err = why;
		cqe->byte_len = 0;
		cqe->flags = 0;
	}
	keel_fetch_discard(&dgram->fetch);
	return copied;
}

/* As keel_dgram_lacks(). @ended is set if the datagram has a result, in its CQE. */
static bool keel_dgram_try(struct keel_qp *qp, struct keel_lack *lack,
			   bool *ended)
	__must_hold(&qp->resp.lock)
{
	struct keel_dgram *dgram = qp->resp.dgram;
	struct keel_fetch *fetch = &dgram->fetch;

	/* A killed process provides no memory, and its QP is destroyed soon. */
	if (!dgram->pending || keel_qp_is_dying(qp) ||
	    keel_fetch_collect(fetch) || fatal_signal_pending(current))
		return false;
	if (keel_dgram_copy(qp) != KEEL_COPY_ABSENT) {
		*ended = true;
		return false;
	}
	if (fetch->ctl.need.kind == KEEL_NEED_CLOSE) {
		keel_fetch_close(fetch);
		return false;
	}
	keel_fetch_take(fetch, lack);
	return lack->need.kind != KEEL_NEED_NONE;
}

/* Return: true if @lack is missing, and was not requested yet. */
static bool keel_dgram_lacks(struct keel_qp *qp, struct keel_lack *lack)
{
	struct keel_dgram *dgram = qp->resp.dgram;
	bool ended = false, lacks;

	if (!keel_resp_enter(qp, keel_ud_is_full))
		return false;
	/* While the QP is full, no requester retries for the lock. */
	keel_resp_relax();
	lacks = keel_dgram_try(qp, lack, &ended);
	/* Requesters retry for the lock from here on, and get it soon. */
	keel_resp_stay();
	if (ended) {
		/*
		 * First: whoever polls the CQE may send the next datagram, which
		 * a full QP would drop.
		 */
		WRITE_ONCE(dgram->pending, false);
		keel_recv_report(qp, &dgram->cqe, dgram->solicited);
	}
	mutex_unlock(&qp->resp.lock);
	keel_resp_relax();
	return lacks;
}

/**
 * keel_ud_run() - receive the datagram that is kept for a QP
 * @qp: the QP, of a user process
 *
 * Only the owner of the QP waits for the memory of its receive WQE.
 *
 * Context: may sleep; no lock is held.
 */
void keel_ud_run(struct keel_qp *qp)
{
	struct keel_lack lack = {};

	while (READ_ONCE(qp->resp.dgram->pending) &&
	       keel_dgram_lacks(qp, &lack))
		keel_fetch_provide(&qp->resp.dgram->fetch, &qp->resp.lock, qp,
				   &lack);
}

/* Return: false if the lock is taken. */
static bool keel_ud_try(struct keel_xfer *x, const struct keel_av *av, u32 qkey,
			bool *taken)
	__must_hold(&x->from->lock)
{
	if (!mutex_trylock(&x->peer->resp.lock))
		return false;
	*taken = keel_ud_takes(x->peer, qkey) && keel_ud_receive(x, av);
	mutex_unlock(&x->peer->resp.lock);
	return true;
}

static bool keel_ud_deliver(struct keel_xfer *x, const struct keel_av *av,
			    struct keel_qp *peer, u32 qkey)
	__must_hold(&x->from->lock)
{
	struct keel_resp_wait wait = {};
	bool taken = false, locked;

	x->peer = peer;
	/*
	 * Do not retry for the lock of a QP that accepts no datagram. A
	 * datagram of a killed process may be lost, as any datagram.
	 */
	while (keel_ud_takes(peer, qkey) && !keel_ud_is_full(peer)) {
		keel_resp_stay();
		locked = keel_ud_try(x, av, qkey, &taken);
		keel_resp_relax();
		if (locked || keel_resp_pause(x->qp, &wait))
			break;
	}
	x->peer = NULL;
	if (!taken)
		keel_count(x->qp->kdev, ud_drops, 1);
	return taken;
}

static enum keel_xfer_result keel_ud_multicast(struct keel_xfer *x, const struct keel_av *av,
					       u32 qkey)
	__must_hold(&x->from->lock)
{
	struct keel_qp **members;
	int i, n;

	/* First, because this may have to be tried again: members of this host get it once. */
	if (av->cast && keel_far_group_send(x, av, qkey) != KEEL_XFER_DONE)
		return KEEL_XFER_UNDERWAY;
	n = keel_mcast_members(x->qp->kdev, &av->dgid, &members);
	if (n < 0 || (!n && !av->cast))
		keel_count(x->qp->kdev, ud_drops, 1);
	for (i = 0; i < n; i++) {
		/* A datagram of a killed process may be lost. */
		if (!fatal_signal_pending(current))
			keel_ud_deliver(x, av, members[i], qkey);
		keel_obj_put(&members[i]->obj);
	}
	kfree(members);
	return KEEL_XFER_DONE;
}

/**
 * keel_ud_arrived() - receive a datagram of another host
 * @x: the datagram; &keel_from.segs has its data, @x->peer is the receiver
 * @av: its addresses
 * @qkey: its Q_Key
 *
 * Context: may sleep; no lock of a responder is held.
 * Return: KEEL_XFER_DONE: it was received or is lost; KEEL_XFER_BUSY: the lock of the
 * responder is taken.
 */
enum keel_xfer_result keel_ud_arrived(struct keel_xfer *x, const struct keel_av *av, u32 qkey)
{
	bool taken = false, locked;

	keel_resp_stay();
	locked = keel_ud_try(x, av, qkey, &taken);
	keel_resp_relax();
	if (!locked)
		return KEEL_XFER_BUSY;
	if (!taken)
		keel_count(x->peer->kdev, ud_drops, 1);
	return KEEL_XFER_DONE;
}

static enum keel_xfer_result keel_ud_unicast(struct keel_xfer *x, const struct keel_av *av,
					     u32 qkey)
	__must_hold(&x->from->lock)
{
	struct keel_qp *peer = av->local ?
			       keel_qp_get(x->qp->kdev, x->wqe->ud.qpn) : NULL;

	if (av->far)
		return keel_far_dgram_send(x, av, qkey);
	if (!peer) {
		keel_count(x->qp->kdev, ud_drops, 1);
		return KEEL_XFER_DONE;
	}
	keel_ud_deliver(x, av, peer, qkey);
	keel_obj_put(&peer->obj);
	return KEEL_XFER_DONE;
}

/*
 * A datagram of a user process is delivered from a copy. So no key is held
 * while the requester retries for the locks of the receivers. And no receiver
 * gets the datagram twice because memory was absent.
 */
static enum keel_copy_result keel_ud_source(struct keel_xfer *x)
	__must_hold(&x->from->lock)
{
	struct keel_dgram *dgram = x->qp->resp.dgram;
	struct keel_from *from = x->from;
	enum keel_copy_result copied;
	u64 len = from->segs.len;
	bool relax;

	/* Inline data is a copy already. */
	if (!dgram || !len || from->segs.seg[0].mem == &x->qp->sq.inline_mem)
		return KEEL_COPY_DONE;
	relax = keel_segs_may_lack(&from->segs);
	dgram->source_mem = (struct keel_mem){
		.type = KEEL_MEM_KERNEL, .start = (uintptr_t)dgram->source,
	};
	keel_segs_one(&from->remote, &dgram->source_mem, 0, len);
	if (relax)
		keel_resp_relax();
	copied = keel_copy(&from->remote, 0, &from->segs, 0, len, &from->fetch.ctl);
	if (relax)
		keel_resp_stay();
	if (copied != KEEL_COPY_DONE)
		return copied;
	keel_segs_put(&from->segs);
	keel_segs_one(&from->segs, &dgram->source_mem, 0, len);
	return KEEL_COPY_DONE;
}

/**
 * keel_ud_qkey() - the Q_Key that a datagram has
 * @qp: the requester
 * @qkey: that of the work request
 *
 * Context: any.
 * Return: the Q_Key.
 */
u32 keel_ud_qkey(const struct keel_qp *qp, u32 qkey)
{
	return qkey & KEEL_QKEY_OF_QP ? READ_ONCE(qp->attr.qkey) : qkey;
}

static enum keel_xfer_result keel_ud_transmit(struct keel_xfer *x)
	__must_hold(&x->from->lock)
{
	struct keel_ah *ah = keel_ah_get(x->qp->kdev, x->wqe->ud.ah);
	u32 qkey = keel_ud_qkey(x->qp, x->wqe->ud.qkey);
	enum keel_xfer_result result = KEEL_XFER_DONE;

	x->status = IB_WC_SUCCESS;
	if (!ah || ah->domain != x->qp->domain) {
		if (ah)
			keel_obj_put(&ah->obj);
		x->status = IB_WC_LOC_QP_OP_ERR;
		x->why = KEEL_WHY_AH;
		return KEEL_XFER_DONE;
	}
	if (ah->av.mcast)
		result = keel_ud_multicast(x, &ah->av, qkey);
	else
		result = keel_ud_unicast(x, &ah->av, qkey);
	keel_obj_put(&ah->obj);
	return result;
}

/**
 * keel_ud_send() - send a datagram
 * @x: the message; &keel_from.segs has its local memory
 *
 * Context: preemption is disabled, but enabled meanwhile; the send queue's lock
 * is held.
 * Return: KEEL_XFER_DONE; KEEL_XFER_UNDERWAY: as keel_far_dgram_send() and
 * keel_far_group_send();
 * KEEL_XFER_ABSENT or KEEL_XFER_STOPPED if reading the memory of the requester was not
 * possible or was stopped.
 */
enum keel_xfer_result keel_ud_send(struct keel_xfer *x)
{
	enum keel_xfer_result result;
	enum keel_copy_result copied;

	if (x->from->segs.len > KEEL_UD_MTU) {
		x->status = IB_WC_LOC_LEN_ERR;
		x->why = KEEL_WHY_LENGTH;
		return KEEL_XFER_DONE;
	}
	copied = keel_ud_source(x);
	if (copied == KEEL_COPY_ABSENT)
		return KEEL_XFER_ABSENT;
	if (copied == KEEL_COPY_STOPPED)
		return KEEL_XFER_STOPPED;
	if (copied != KEEL_COPY_DONE) {
		x->status = IB_WC_LOC_PROT_ERR;
		x->why = KEEL_WHY_FAULT;
		return KEEL_XFER_DONE;
	}
	/* A kernel consumer may hold keys here, but they are its own. */
	keel_resp_relax();
	result = keel_ud_transmit(x);
	keel_resp_stay();
	return result;
}
