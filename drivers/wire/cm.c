// SPDX-License-Identifier: GPL-2.0
/*
 * How a connection is established over RoCE: by ib_cm, because rdma_cm takes any device with
 * the address, even the one of keel.
 *
 * Handlers of ib_cm only note what has happened. The work of the link does the rest.
 */
#include <linux/err.h>
#include <linux/netdevice.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_sa.h>

#include "keel_conn.h"

/* "keel". ib_cm lets no other range of numbers be chosen. */
#define KEEL_SERVICE_ID		cpu_to_be64(0x1000006b65656c01ULL)
/* 4.096 us * 2^n: the answer of the other side to a message of ib_cm, 1 s. */
#define KEEL_CM_TIMEOUT		18
#define KEEL_CM_RETRIES		3
/* Likewise: how long a packet takes; and at most, 1 s. ib_cm keeps something as long. */
#define KEEL_PACKET_TIME	13
#define KEEL_PACKET_TIME_MAX	18
/* Likewise: when a packet is sent again, 67 ms; with 7 retries less than a second. */
#define KEEL_ACK_TIMEOUT	14
/* How long a sender waits that was faster than the receiver, 0.64 ms. */
#define KEEL_RNR_TIMER		12

/* ib_destroy_cm_id() of the connection waits for this. */
static int keel_cm_event(struct ib_cm_id *id, const struct ib_cm_event *event)
{
	struct keel_conn *conn = id->context;

	switch (event->event) {
	case IB_CM_REP_RECEIVED:
		/* Once: a second one must not change it while it is read. */
		if (!conn->active || test_bit(KEEL_CONN_REPLIED, &conn->events))
			break;
		memcpy(&conn->hello, event->private_data, sizeof(conn->hello));
		keel_conn_event(conn, KEEL_CONN_REPLIED);
		break;
	case IB_CM_REQ_ERROR:
	case IB_CM_REP_ERROR:
	case IB_CM_REJ_RECEIVED:
		if (!keel_conn_is_up(conn)) {
			keel_conn_end(conn);
			break;
		}
		fallthrough;
	case IB_CM_DREQ_RECEIVED:
	case IB_CM_TIMEWAIT_EXIT:
		/* Anybody may send this: ask the other side itself. */
		keel_link_event(conn->link, KEEL_LINK_DOUBTED);
		break;
	default:
		break;
	}
	return 0;
}

/* Could keel have sent this? */
static bool keel_cm_is_sane(const struct ib_cm_req_event_param *req, struct keel_ends *ends)
{
	const struct sa_path_rec *path = req->primary_path;

	if (req->qp_type != IB_QPT_RC || !req->ppath_sgid_attr ||
	    req->local_cm_response_timeout > KEEL_CM_TIMEOUT ||
	    req->remote_cm_response_timeout > KEEL_CM_TIMEOUT ||
	    path->packet_life_time > KEEL_PACKET_TIME_MAX)
		return false;
	if (rdma_is_multicast_addr((struct in6_addr *)path->dgid.raw) ||
	    rdma_is_zero_gid((union ib_gid *)&path->dgid))
		return false;
	return keel_ends_of(req->ppath_sgid_attr, &path->dgid, ends) &&
	       !memcmp(&ends->sgid, &path->sgid, sizeof(ends->sgid)) &&
	       memcmp(&ends->dgid, &ends->sgid, sizeof(ends->sgid));
}

/* As keel_cm_request(), for a host that can be reached. */
static int keel_cm_answer(struct keel_lower *lower, struct ib_cm_id *id,
			  struct net_device *netdev, const struct keel_ends *ends,
			  const struct keel_hello *hello)
{
	struct keel_conn *conn = keel_request_new(lower, ends, netdev, hello);

	if (IS_ERR(conn))
		return PTR_ERR(conn);
	conn->id = id;
	id->context = conn;
	id->cm_handler = keel_cm_event;
	return keel_request_offer(conn);
}

/*
 * Another host asks for a connection. Return: 0; else ib_cm destroys @id, and rejects it,
 * unless this is -ENOMEM: then an honest host asks again, and a forged request has no effect.
 */
static int keel_cm_request(struct keel_lower *lower, struct ib_cm_id *id,
			   const struct ib_cm_event *event)
{
	const struct ib_cm_req_event_param *req = &event->param.req_rcvd;
	struct net_device *netdev;
	struct keel_hello hello;
	struct keel_ends ends;
	int ret = -ENOMEM;

	memcpy(&hello, event->private_data, sizeof(hello));
	if (!keel_cm_is_sane(req, &ends))
		return ret;
	netdev = keel_gid_netdev(req->ppath_sgid_attr);
	if (!netdev)
		return ret;
	if (keel_request_begin(lower)) {
		/* Messages to a host that is not there would hold up those to others. */
		if (keel_way_is_known(&ends, netdev))
			ret = keel_cm_answer(lower, id, netdev, &ends, &hello);
		/* Else keel_conn_destroy() does it, or keel_link_adopt(). */
		if (ret)
			keel_request_end(lower);
	}
	dev_put(netdev);
	return ret;
}

static int keel_cm_listener(struct ib_cm_id *id, const struct ib_cm_event *event)
{
	/* keel_lower_remove() destroys the listener first: the device exists. */
	if (event->event != IB_CM_REQ_RECEIVED)
		return 0;
	return keel_cm_request(id->context, id, event);
}

/* &keel_cm_ops.listen */
static int keel_cm_listen(struct keel_lower *lower)
{
	struct ib_cm_id *id = ib_create_cm_id(lower->ib, keel_cm_listener, lower);
	int ret;

	if (IS_ERR(id))
		return PTR_ERR(id);
	ret = ib_cm_listen(id, KEEL_SERVICE_ID);
	if (ret) {
		ib_destroy_cm_id(id);
		return ret;
	}
	lower->listen = id;
	return 0;
}

/* &keel_cm_ops.unlisten: ib_destroy_cm_id() waits for handlers. */
static void keel_cm_unlisten(struct keel_lower *lower)
{
	ib_destroy_cm_id(lower->listen);
}

static void keel_cm_path(struct sa_path_rec *path, const struct keel_conn *conn,
			 const struct ib_gid_attr *attr, const struct rdma_dev_addr *addr)
{
	memset(path, 0, sizeof(*path));
	path->rec_type = SA_PATH_REC_TYPE_ROCE_V2;
	path->roce.route_resolved = true;
	sa_path_set_dmac(path, (u8 *)addr->dst_dev_addr);
	path->sgid = conn->link->ends.sgid;
	path->dgid = conn->link->ends.dgid;
	path->hop_limit = addr->hoplimit ?: 64;
	path->pkey = cpu_to_be16(0xffff);
	path->reversible = 1;
	path->numb_path = 1;
	path->mtu_selector = IB_SA_EQ;
	path->mtu = keel_gid_mtu(attr);
	path->rate_selector = IB_SA_EQ;
	path->rate = IB_RATE_PORT_CURRENT;
	path->packet_life_time_selector = IB_SA_EQ;
	path->packet_life_time = KEEL_PACKET_TIME;
}

/* &keel_cm_ops.connect: the result comes as an event. */
static int keel_cm_connect(struct keel_conn *conn, const struct ib_gid_attr *attr,
			   const struct rdma_dev_addr *addr)
{
	struct sa_path_rec path;
	struct keel_hello hello;
	struct ib_cm_req_param req = {
		.primary_path = &path,
		.ppath_sgid_attr = attr,
		.service_id = KEEL_SERVICE_ID,
		.qp_num = conn->qp->qp_num,
		.qp_type = IB_QPT_RC,
		.starting_psn = conn->psn,
		.private_data = &hello,
		.private_data_len = sizeof(hello),
		.responder_resources = 1,
		.initiator_depth = 1,
		.remote_cm_response_timeout = KEEL_CM_TIMEOUT,
		.local_cm_response_timeout = KEEL_CM_TIMEOUT,
		.retry_count = 7,
		.rnr_retry_count = 7,
		.max_cm_retries = KEEL_CM_RETRIES,
	};

	keel_hello_set(&hello, conn, KEEL_LINK_RECVS);
	keel_cm_path(&path, conn, attr, addr);
	conn->active = true;
	conn->id = ib_create_cm_id(conn->lower->ib, keel_cm_event, conn);
	if (IS_ERR(conn->id)) {
		int ret = PTR_ERR(conn->id);

		conn->id = NULL;
		return ret;
	}
	return ib_send_cm_req(conn->id, &req);
}

/* Not as the other side wants it: it can ask for values that the lower device has not. */
static int keel_cm_modify(struct keel_conn *conn, enum ib_qp_state state)
{
	struct ib_qp_attr attr = { .qp_state = state };
	int mask, ret;

	ret = ib_cm_init_qp_attr(conn->id, &attr, &mask);
	if (ret)
		return ret;
	mask &= ~(IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE);
	/* The other side has a key for its chunks, and for nothing else. */
	attr.qp_access_flags = IB_ACCESS_REMOTE_WRITE;
	attr.path_mtu = clamp(attr.path_mtu, IB_MTU_256, IB_MTU_4096);
	attr.max_dest_rd_atomic = 1;
	attr.max_rd_atomic = 1;
	attr.min_rnr_timer = KEEL_RNR_TIMER;
	/* ib_cm does not set that of the side that accepts. */
	if (state == IB_QPS_RTR)
		attr.rq_psn = conn->psn;
	attr.timeout = KEEL_ACK_TIMEOUT;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	return ib_modify_qp(conn->qp, &attr, mask);
}

/* Make the QP ready to receive and to send. */
static int keel_cm_ready(struct keel_conn *conn)
{
	int ret = keel_cm_modify(conn, IB_QPS_INIT);

	ret = ret ?: keel_conn_post(conn, KEEL_LINK_SPARE);
	ret = ret ?: keel_cm_modify(conn, IB_QPS_RTR);
	return ret ?: keel_cm_modify(conn, IB_QPS_RTS);
}

/* &keel_cm_ops.accept */
static int keel_cm_accept(struct keel_conn *conn)
{
	struct keel_hello hello;
	struct ib_cm_rep_param rep = {
		.starting_psn = conn->psn,
		.private_data = &hello,
		.private_data_len = sizeof(hello),
		.responder_resources = 1,
		.initiator_depth = 1,
		.rnr_retry_count = 7,
	};
	int ret;

	ret = keel_cm_ready(conn);
	if (ret)
		return ret;
	rep.qp_num = conn->qp->qp_num;
	/* keel_conn_up() gives credits for the others: a guest cannot send answers. */
	keel_hello_set(&hello, conn, KEEL_LINK_SPARE);
	return ib_send_cm_rep(conn->id, &rep);
}

/* &keel_cm_ops.replied */
static int keel_cm_replied(struct keel_conn *conn)
{
	int ret;

	if (!keel_hello_is_known(&conn->hello))
		return -EPROTO;
	ret = keel_cm_ready(conn);
	ret = ret ?: keel_conn_fill(conn);
	return ret ?: ib_send_cm_rtu(conn->id, NULL, 0);
}

/* &keel_cm_ops.end: ib_destroy_cm_id() waits for handlers, and until the last message is sent. */
static void keel_cm_end(struct keel_conn *conn)
{
	ib_destroy_cm_id(conn->id);
}

const struct keel_cm_ops keel_cm_ib = {
	.listen = keel_cm_listen,
	.unlisten = keel_cm_unlisten,
	.connect = keel_cm_connect,
	.accept = keel_cm_accept,
	.replied = keel_cm_replied,
	.end = keel_cm_end,
};
