// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams: UD, and the GSI QP of the kernel. A datagram that nobody can take
 * is lost, and its sender does not hear of it.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <net/inet_ecn.h>
#include <net/ip.h>
#include <net/ipv6.h>

#include "keel_qp.h"

/* The largest datagram: the MTU. */
#define KEEL_UD_MTU	4096
/* Of RoCE v2. */
#define KEEL_UDP_PORT	4791
/* The upper bit of a Q_Key in a work request asks for that of the QP. */
#define KEEL_QKEY_OF_QP	BIT(31)

static_assert(sizeof(struct ipv6hdr) == KEEL_GRH_BYTES);

/*
 * What a NIC would put in front: the IPv6 header, or, in the last 20 bytes,
 * the IPv4 header of RoCE v2. Receivers learn from it who sent, and answer.
 */
static void keel_ud_grh(const struct keel_av *av, u32 len, u8 grh[KEEL_GRH_BYTES])
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

static bool keel_ud_takes(const struct keel_qp *peer, u32 qkey)
{
	/* Its attributes were set before its state. */
	enum ib_qp_state state = smp_load_acquire(&peer->state);

	if (peer->type != IB_QPT_UD && peer->type != IB_QPT_GSI)
		return false;
	return !READ_ONCE(peer->dying) && state >= IB_QPS_RTR &&
	       state != IB_QPS_ERR && peer->attr.qkey == qkey;
}

/* The peer's receive is there and large enough: fill it. */
static enum keel_copy_result keel_ud_fill(struct keel_xfer *x, const u8 *grh)
{
	const struct keel_mem mem = {
		.type = KEEL_MEM_KERNEL, .start = (uintptr_t)grh,
	};
	struct keel_segs *src = &x->qp->sq.segs;
	struct keel_segs *dst = &x->peer->resp.segs;
	struct keel_segs *head = &x->qp->sq.remote;
	enum keel_copy_result copied;

	keel_segs_one(head, &mem, 0, KEEL_GRH_BYTES);
	copied = keel_copy(dst, 0, head, 0, KEEL_GRH_BYTES, NULL);
	if (copied != KEEL_COPY_DONE)
		return copied;
	return keel_copy(dst, KEEL_GRH_BYTES, src, 0, src->len, NULL);
}

/* Whose memory it was that failed says whose completion tells. */
static void keel_ud_unfilled(struct keel_xfer *x, enum keel_copy_result copied)
{
	if (copied == KEEL_COPY_DST)
		keel_recv_complete(x, IB_WC_LOC_PROT_ERR, KEEL_WHY_FAULT, 0, 0);
	/* Otherwise the receive waits for the next datagram. */
	if (copied != KEEL_COPY_SRC)
		return;
	x->status = IB_WC_LOC_PROT_ERR;
	x->why = KEEL_WHY_FAULT;
}

/* Context: the peer's responder lock is held. */
static bool keel_ud_receive(struct keel_xfer *x, const struct keel_av *av)
{
	u32 len = x->qp->sq.segs.len, why = KEEL_WHY_NONE;
	u8 flags = KEEL_CQE_F_GRH | (av->ipv4 ? KEEL_CQE_F_IPV4 : 0);
	struct keel_segs *dst = &x->peer->resp.segs;
	enum ib_wc_status status;
	u8 grh[KEEL_GRH_BYTES] __aligned(8);
	enum keel_copy_result copied;

	if (keel_recv_take(x) <= 0)
		return false;
	status = keel_recv_segs(x, KEEL_GRH_BYTES + len, &why);
	if (status != IB_WC_SUCCESS) {
		keel_recv_complete(x, status, why, 0, 0);
		return false;
	}
	if (dst->len < KEEL_GRH_BYTES + len) {
		/* The receive stays for a shorter one. */
		keel_segs_put(dst);
		return false;
	}
	keel_ud_grh(av, len, grh);
	copied = keel_ud_fill(x, grh);
	keel_segs_put(dst);
	if (copied != KEEL_COPY_DONE) {
		keel_ud_unfilled(x, copied);
		return false;
	}
	if (x->wqe->opcode == IB_WR_SEND_WITH_IMM)
		flags |= KEEL_CQE_F_IMM;
	keel_recv_complete(x, IB_WC_SUCCESS, KEEL_WHY_NONE,
			   KEEL_GRH_BYTES + len, flags);
	return true;
}

static bool keel_ud_deliver(struct keel_xfer *x, const struct keel_av *av,
			    struct keel_qp *peer, u32 qkey)
{
	bool taken = false;

	x->peer = peer;
	/*
	 * The lock of one who takes nothing is not waited for; and what a
	 * program that is killed was sending can be lost as any datagram.
	 */
	if (keel_ud_takes(peer, qkey) &&
	    !mutex_lock_killable(&peer->resp.lock)) {
		if (keel_ud_takes(peer, qkey))
			taken = keel_ud_receive(x, av);
		mutex_unlock(&peer->resp.lock);
	}
	x->peer = NULL;
	if (!taken)
		keel_count(x->qp->kdev, ud_drops, 1);
	return taken;
}

static void keel_ud_multicast(struct keel_xfer *x, const struct keel_av *av,
			      u32 qkey)
{
	struct keel_qp **members;
	int i, n = keel_mcast_members(x->qp->kdev, &av->dgid, &members);

	if (n <= 0) {
		keel_count(x->qp->kdev, ud_drops, 1);
		return;
	}
	for (i = 0; i < n; i++) {
		keel_ud_deliver(x, av, members[i], qkey);
		keel_obj_put(&members[i]->obj);
	}
	kfree(members);
}

static void keel_ud_unicast(struct keel_xfer *x, const struct keel_av *av,
			    u32 qkey)
{
	struct keel_qp *peer = av->local ?
			       keel_qp_get(x->qp->kdev, x->wqe->ud.qpn) : NULL;

	if (!peer) {
		keel_count(x->qp->kdev, ud_drops, 1);
		return;
	}
	keel_ud_deliver(x, av, peer, qkey);
	keel_obj_put(&peer->obj);
}

/**
 * keel_ud_send() - a datagram goes
 * @x: the message; its local side is there
 *
 * Context: may sleep; the send queue's lock is held.
 * Return: KEEL_XFER_DONE.
 */
enum keel_verdict keel_ud_send(struct keel_xfer *x)
{
	struct keel_qp *qp = x->qp;
	u32 qkey = x->wqe->ud.qkey;
	struct keel_ah *ah;

	if (qp->sq.segs.len > KEEL_UD_MTU) {
		x->status = IB_WC_LOC_LEN_ERR;
		x->why = KEEL_WHY_LENGTH;
		return KEEL_XFER_DONE;
	}
	ah = keel_ah_get(qp->kdev, x->wqe->ud.ah);
	if (!ah || ah->domain != qp->domain) {
		if (ah)
			keel_obj_put(&ah->obj);
		x->status = IB_WC_LOC_QP_OP_ERR;
		x->why = KEEL_WHY_AH;
		return KEEL_XFER_DONE;
	}
	if (qkey & KEEL_QKEY_OF_QP)
		qkey = qp->attr.qkey;
	x->status = IB_WC_SUCCESS;
	if (ah->av.mcast)
		keel_ud_multicast(x, &ah->av, qkey);
	else
		keel_ud_unicast(x, &ah->av, qkey);
	keel_obj_put(&ah->obj);
	return KEEL_XFER_DONE;
}
