// SPDX-License-Identifier: GPL-2.0
/*
 * How a connection is established over iWARP: by iw_cm, for the same reason as in cm.c.
 *
 * An iWARP device has one GID, made of the MAC, so that a link finds it by its netdev. The
 * GID of the link has the address to connect from.
 *
 * siw makes its sockets in the network namespace of the calling thread (sock_create()), and
 * other drivers use only the initial one. Threads of the kernel belong to that one. So links
 * over iWARP are only there, and all sockets are made by threads of the kernel.
 *
 * Handlers of iw_cm only note what has happened. The work of the link does the rest.
 */
#include <kunit/visibility.h>
#include <linux/err.h>
#include <linux/in6.h>
#include <linux/kthread.h>
#include <linux/netdevice.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <rdma/ib_addr.h>
#include <rdma/iw_cm.h>

#include "keel_conn.h"

/* On both sides the port is below PROT_SOCK: nobody but root of a host poses as that host. */
#define KEEL_TCP_PORT		791
/* As sunrpc: management controllers of some NICs take packets to ports below. */
#define KEEL_TCP_LOCAL		665
/* How often a thread that is to give up is told so. */
#define KEEL_GIVE_UP_TIME	(HZ / 20 ?: 1)

/**
 * keel_iw_netdev() - the netdev of an iWARP device
 * @ib: the device
 *
 * Context: any but interrupts.
 * Return: the netdev, for dev_put(); or NULL: it has none, or one in another network
 * namespace.
 */
static struct net_device *keel_iw_netdev(struct ib_device *ib)
{
	struct net_device *netdev;
	u32 port;

	rdma_for_each_port(ib, port) {
		if (!rdma_cap_iw_cm(ib, port))
			continue;
		netdev = ib_device_get_netdev(ib, port);
		if (!netdev)
			continue;
		if (net_eq(dev_net(netdev), &init_net))
			return netdev;
		dev_put(netdev);
	}
	return NULL;
}

/* iw_destroy_cm_id() of the connection waits for this. */
static int keel_iw_event(struct iw_cm_id *id, struct iw_cm_event *event)
{
	struct keel_conn *conn = id->context;

	switch (event->event) {
	case IW_CM_EVENT_CONNECT_REPLY:
		if (event->status || event->private_data_len < sizeof(conn->hello)) {
			keel_conn_end(conn);
			break;
		}
		memcpy(&conn->hello, event->private_data, sizeof(conn->hello));
		keel_conn_event(conn, KEEL_CONN_REPLIED);
		break;
	case IW_CM_EVENT_CLOSE:
		/* No need to ask the other side, as cm.c does: TCP is closed, and so is the QP. */
		keel_conn_end(conn);
		break;
	default:
		break;
	}
	/* Else iw_cm would destroy the ID. */
	return 0;
}

/**
 * keel_iw_ends() - the ends of a link from two addresses
 * @netdev: the netdev of this side
 * @local: address of this side
 * @remote: address of the other side
 * @ends: is set
 *
 * Return: false if they cannot be those of a link.
 */
VISIBLE_IF_KUNIT bool keel_iw_ends(const struct net_device *netdev,
				   struct sockaddr_storage *local,
				   struct sockaddr_storage *remote, struct keel_ends *ends)
{
	/* It is compared as a whole. */
	memset(ends, 0, sizeof(*ends));
	/* All links over iWARP are there. The netdev may be elsewhere by now. */
	ends->net = init_net.net_cookie;
	ends->netdev = netdev->ifindex;
	return local->ss_family == remote->ss_family &&
	       !rdma_ip2gid((struct sockaddr *)local, &ends->sgid) &&
	       !rdma_ip2gid((struct sockaddr *)remote, &ends->dgid) &&
	       memcmp(&ends->dgid, &ends->sgid, sizeof(ends->sgid));
}
EXPORT_SYMBOL_IF_KUNIT(keel_iw_ends);

static __be16 *keel_iw_port(struct sockaddr_storage *addr)
{
	return addr->ss_family == AF_INET ? &((struct sockaddr_in *)addr)->sin_port :
					    &((struct sockaddr_in6 *)addr)->sin6_port;
}

/**
 * keel_iw_is_root() - has root of the other host made this connection?
 * @addr: address of the other side
 *
 * Return: true if its port is below PROT_SOCK: by default, only root binds those.
 */
VISIBLE_IF_KUNIT bool keel_iw_is_root(struct sockaddr_storage *addr)
{
	return ntohs(*keel_iw_port(addr)) < PROT_SOCK;
}
EXPORT_SYMBOL_IF_KUNIT(keel_iw_is_root);

/* As keel_iw_request(), with the netdev of the device. */
static int keel_iw_answer(struct keel_lower *lower, struct net_device *netdev,
			  struct iw_cm_id *id, struct iw_cm_event *event)
{
	struct keel_hello hello;
	struct keel_conn *conn;
	struct keel_ends ends;

	/* Those of TCP. iwpmd replaces those of @event by what any host tells it. */
	if (event->private_data_len < sizeof(hello) || !keel_iw_is_root(&id->m_remote_addr) ||
	    !keel_iw_ends(netdev, &id->m_local_addr, &id->m_remote_addr, &ends))
		return -EINVAL;
	memcpy(&hello, event->private_data, sizeof(hello));
	conn = keel_request_new(lower, &ends, netdev, &hello);
	if (IS_ERR(conn))
		return PTR_ERR(conn);
	conn->iw = id;
	id->context = conn;
	id->cm_handler = keel_iw_event;
	return keel_request_offer(conn);
}

/*
 * Another host asks for a connection. Return: 0; else iw_cm rejects it, and destroys @id. The
 * way back is known, because a TCP connection is established: nobody forges a request in the
 * name of a host that is not there.
 */
static int keel_iw_request(struct iw_cm_id *id, struct iw_cm_event *event)
{
	/* keel_lower_remove() destroys the listeners first: the device exists. */
	struct keel_lower *lower = id->context;
	struct net_device *netdev;
	int ret = -EBUSY;

	if (event->event != IW_CM_EVENT_CONNECT_REQUEST)
		return 0;
	netdev = keel_iw_netdev(lower->ib);
	if (!netdev)
		return -ENODEV;
	if (keel_request_begin(lower)) {
		ret = keel_iw_answer(lower, netdev, id, event);
		/* Else keel_conn_destroy() does it, or keel_link_adopt(). */
		if (ret)
			keel_request_end(lower);
	}
	dev_put(netdev);
	return ret;
}

/* A listener for any address of a family. siw takes only the netdev of the device then. */
static struct iw_cm_id *keel_iw_listener(struct keel_lower *lower, int family)
{
	struct iw_cm_id *id = iw_create_cm_id(lower->ib, keel_iw_request, lower);
	int ret;

	if (IS_ERR(id))
		return id;
	id->local_addr.ss_family = family;
	*keel_iw_port(&id->local_addr) = htons(KEEL_TCP_PORT);
	/* The other listener has those of IPv4. */
	id->afonly = family == AF_INET6;
	ret = iw_cm_listen(id, KEEL_REQUESTS_MAX);
	if (!ret)
		return id;
	iw_destroy_cm_id(id);
	return ERR_PTR(ret);
}

/* &keel_cm_ops.unlisten: iw_destroy_cm_id() waits for handlers. */
static void keel_iw_unlisten(struct keel_lower *lower)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(lower->iw_listen); i++)
		if (lower->iw_listen[i])
			iw_destroy_cm_id(lower->iw_listen[i]);
}

/* A call of keel_iw_listen(). */
struct keel_iw_listen {
	struct work_struct work;
	struct keel_lower *lower;
	int ret;
};

static void keel_iw_listen_work(struct work_struct *work)
{
	struct keel_iw_listen *call = container_of(work, struct keel_iw_listen, work);
	static const int families[] = { AF_INET, AF_INET6 };
	struct keel_lower *lower = call->lower;
	struct iw_cm_id *id;
	int i;

	for (i = 0; i < ARRAY_SIZE(families); i++) {
		id = keel_iw_listener(lower, families[i]);
		if (!IS_ERR(id)) {
			lower->iw_listen[i] = id;
			continue;
		}
		/* IPv6 may be absent, or off. */
		if (families[i] == AF_INET6 && PTR_ERR(id) == -EAFNOSUPPORT)
			continue;
		keel_iw_unlisten(lower);
		call->ret = PTR_ERR(id);
		return;
	}
}

/* &keel_cm_ops.listen. The caller may be a process of another network namespace. */
static int keel_iw_listen(struct keel_lower *lower)
{
	struct net_device *netdev = keel_iw_netdev(lower->ib);
	struct keel_iw_listen call = { .lower = lower };

	if (!netdev)
		return -EOPNOTSUPP;
	dev_put(netdev);
	INIT_WORK_ONSTACK(&call.work, keel_iw_listen_work);
	schedule_work(&call.work);
	flush_work(&call.work);
	destroy_work_on_stack(&call.work);
	return call.ret;
}

/* Make the QP ready to receive; the driver does the rest when the connection is established. */
static int keel_iw_ready(struct keel_conn *conn)
{
	enum ib_qp_state state[] = { IB_QPS_INIT, IB_QPS_RTR };
	struct ib_qp_attr attr = {};
	int i, mask, ret;

	for (i = 0; i < ARRAY_SIZE(state); i++) {
		attr.qp_state = state[i];
		ret = iw_cm_init_qp_attr(conn->iw, &attr, &mask);
		/* The other side has a key for its chunks, and for nothing else. */
		attr.qp_access_flags = IB_ACCESS_REMOTE_WRITE;
		ret = ret ?: ib_modify_qp(conn->qp, &attr, mask);
		if (ret)
			return ret;
	}
	return keel_conn_post(conn, KEEL_LINK_SPARE);
}

/**
 * keel_iw_addr() - the address of an end of a link
 * @gid: the end
 * @netdev: index of the netdev
 * @addr: is set
 */
VISIBLE_IF_KUNIT void keel_iw_addr(const union ib_gid *gid, int netdev,
				   struct sockaddr_storage *addr)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)addr;

	memset(addr, 0, sizeof(*addr));
	rdma_gid2ip((struct sockaddr *)addr, gid);
	if (addr->ss_family == AF_INET6 &&
	    __ipv6_addr_needs_scope_id(ipv6_addr_type(&in6->sin6_addr)))
		in6->sin6_scope_id = netdev;
}
EXPORT_SYMBOL_IF_KUNIT(keel_iw_addr);

static void keel_iw_param(struct iw_cm_conn_param *param, struct keel_conn *conn,
			  const struct keel_hello *hello)
{
	*param = (struct iw_cm_conn_param){
		.private_data = hello,
		.private_data_len = sizeof(*hello),
		.ord = 1,
		.ird = 1,
		.qpn = conn->qp->qp_num,
	};
}

/* The thread that connects: see keel_iw_connect(). */
static int keel_iw_call(void *data)
{
	struct keel_conn *conn = data;
	struct iw_cm_conn_param param;
	struct keel_hello hello;

	/* Nobody else may send it. */
	allow_kernel_signal(SIGTERM);
	keel_hello_set(&hello, conn, KEEL_LINK_RECVS);
	keel_iw_param(&param, conn, &hello);
	if (iw_cm_connect(conn->iw, &param))
		keel_conn_end(conn);
	complete(&conn->called);
	return 0;
}

/*
 * &keel_cm_ops.connect: siw_connect() waits until the other side has answered by TCP, for two
 * minutes if that is silent. So a thread does it, which keel_iw_end() interrupts. The result
 * comes as an event.
 */
static int keel_iw_connect(struct keel_conn *conn, const struct ib_gid_attr *attr,
			   const struct rdma_dev_addr *addr)
{
	const struct keel_ends *ends = &conn->link->ends;
	struct iw_cm_id *id = iw_create_cm_id(conn->lower->ib, keel_iw_event, conn);
	struct task_struct *thread;
	int ret;

	if (IS_ERR(id))
		return PTR_ERR(id);
	conn->iw = id;
	conn->active = true;
	keel_iw_addr(&ends->sgid, ends->netdev, &id->local_addr);
	keel_iw_addr(&ends->dgid, ends->netdev, &id->remote_addr);
	*keel_iw_port(&id->remote_addr) = htons(KEEL_TCP_PORT);
	/* If another connection to this host has it, the link tries again, with another one. */
	*keel_iw_port(&id->local_addr) =
		htons(KEEL_TCP_LOCAL + get_random_u32() % (KEEL_TCP_PORT - KEEL_TCP_LOCAL));
	ret = keel_iw_ready(conn);
	if (ret)
		return ret;
	init_completion(&conn->called);
	thread = kthread_create(keel_iw_call, conn, "keel_connect");
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	conn->caller = get_task_struct(thread);
	wake_up_process(thread);
	return 0;
}

/* &keel_cm_ops.accept */
static int keel_iw_accept(struct keel_conn *conn)
{
	struct iw_cm_conn_param param;
	struct keel_hello hello;
	int ret = keel_iw_ready(conn);

	if (ret)
		return ret;
	/*
	 * As keel_cm_accept(). Besides, the lower device does not repeat a message that finds no
	 * buffer, but ends the connection.
	 */
	keel_hello_set(&hello, conn, KEEL_LINK_SPARE);
	keel_iw_param(&param, conn, &hello);
	return iw_cm_accept(conn->iw, &param);
}

/* &keel_cm_ops.replied */
static int keel_iw_replied(struct keel_conn *conn)
{
	/* The other side sends nothing before the first frame of this side: MPA has this rule. */
	return keel_hello_is_known(&conn->hello) ? keel_conn_fill(conn) : -EPROTO;
}

/*
 * &keel_cm_ops.end: iw_destroy_cm_id() waits for handlers; and, if the other side has answered
 * by TCP, but not by MPA, until the driver gives up: siw does so after 10 s.
 */
static void keel_iw_end(struct keel_conn *conn)
{
	if (conn->caller) {
		/* It may not have called allow_kernel_signal() yet. */
		do
			send_sig(SIGTERM, conn->caller, 1);
		while (!wait_for_completion_timeout(&conn->called, KEEL_GIVE_UP_TIME));
		/* It runs code of this module until here. */
		kthread_stop(conn->caller);
		put_task_struct(conn->caller);
	}
	iw_destroy_cm_id(conn->iw);
}

const struct keel_cm_ops keel_cm_iw = {
	.by_netdev = true,
	.listen = keel_iw_listen,
	.unlisten = keel_iw_unlisten,
	.connect = keel_iw_connect,
	.accept = keel_iw_accept,
	.replied = keel_iw_replied,
	.end = keel_iw_end,
};
