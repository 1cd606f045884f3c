// SPDX-License-Identifier: GPL-2.0
/*
 * The host unplugs and replugs the function while processes hold every kind of
 * object, wait for events, and map device memory and transfer to it.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include <infiniband/keeldv.h>
#include <infiniband/shpd.h>

#include "outside.h"
#include "peer.h"
#include "qp.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096
#define LEN	(16 * PAGE)
#define RIGHTS	(IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE |	\
		 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |	\
		 IBV_ACCESS_REMOTE_ATOMIC)
#define ROUNDS	20
/* Tenths of a second that a slow guest may take to change a slot. */
#define PATIENCE	600

static char page[PAGE] __attribute__((aligned(PAGE)));
static unsigned char host[LEN] __attribute__((aligned(PAGE)));

/* One process's objects of the device. */
struct held {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_dm *dm;
	struct ibv_mr *dm_mr, *host_mr;
	struct ibv_comp_channel *channel;
	struct link l;
	unsigned char *map;
	uint64_t start;
	atomic_bool gone;
	atomic_ulong writes;
};

static void hold_domains(struct held *h)
{
	struct ibv_parent_domain_init_attr parent = { .pd = h->pd };
	struct ibv_xrcd_init_attr xrcd = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1, .oflags = O_CREAT,
	};
	struct ibv_srq_init_attr_ex srq = {
		.attr = { .max_wr = 4, .max_sge = 1 }, .pd = h->pd,
		.srq_type = IBV_SRQT_XRC, .cq = cq_new(h->ctx),
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
			     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
	};
	struct ibv_td_init_attr td = {};
	struct ibv_shpd shpd;

	parent.td = MUST(ibv_alloc_td(h->ctx, &td));
	MUST(ibv_reg_mr(MUST(ibv_alloc_parent_domain(h->ctx, &parent)), page,
			PAGE, 0));
	MUST(ibv_alloc_shpd(h->pd, 1234, &shpd));
	MUST(ibv_share_pd(h->ctx, &shpd, 1234));
	srq.xrcd = MUST(ibv_open_xrcd(h->ctx, &xrcd));
	MUST(ibv_create_srq_ex(h->ctx, &srq));
	qp_new_xrc_recv(srq.xrcd);
}

static void hold_keys(struct held *h)
{
	struct ibv_alloc_dm_attr attr = { .length = LEN };
	struct keeldv_dm_attr dv = {};

	h->dm = MUST(ibv_alloc_dm(h->ctx, &attr));
	CHECK_OK(keeldv_query_dm(h->dm, &dv));
	h->start = dv.start;
	h->map = MUST(keeldv_dm_map(h->dm));
	h->dm_mr = MUST(ibv_reg_dm_mr(h->pd, h->dm, 0, LEN, RIGHTS));
	h->host_mr = MUST(ibv_reg_mr(h->pd, host, LEN, IBV_ACCESS_LOCAL_WRITE |
				     IBV_ACCESS_MW_BIND));
	MUST(ibv_reg_mr(h->pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND));
	MUST(ibv_alloc_mw(h->pd, IBV_MW_TYPE_1));
	MUST(ibv_alloc_mw(h->pd, IBV_MW_TYPE_2));
}

static void hold_queues(struct held *h)
{
	struct ibv_cq *cq;

	ah_self(h->pd);
	h->channel = MUST(ibv_create_comp_channel(h->ctx));
	cq = MUST(ibv_create_cq(h->ctx, 16, NULL, h->channel, 0));
	CHECK_OK(ibv_req_notify_cq(cq, 0));
	qp_to_init(qp_new(h->pd, cq, IBV_QPT_UD, srq_new(h->pd)));
	h->l = link_new(h->pd, h->pd, IBV_QPT_RC);
	/* A QP that is connected to a QP with another peer. */
	qp_connect(qp_new(h->pd, cq, IBV_QPT_RC, NULL), h->l.qp[1]->qp_num);
}

/* Write to device memory by RDMA until the device is removed. */
static void *transfer(void *arg)
{
	struct ibv_send_wr *wr, *bad;
	struct held *h = arg;
	struct ibv_wc wc;
	int n;

	for (;;) {
		wr = send_wr(IBV_WR_RDMA_WRITE, 1, (struct mem){
			host, LEN, h->host_mr->lkey });
		wr->wr.rdma.rkey = h->dm_mr->rkey;
		if (ibv_post_send(h->l.qp[0], wr, &bad))
			return NULL;
		do {
			n = ibv_poll_cq(h->l.cq[0], 1, &wc);
		} while (!n && !h->gone);
		if (n != 1 || wc.status)
			return NULL;
		h->writes++;
	}
}

/* Only the device removal ends this blocking read. */
static void *wait_channel(void *arg)
{
	struct held *h = arg;
	struct ibv_cq *cq;
	void *context;

	CHECK_SYS(ibv_get_cq_event(h->channel, &cq, &context), EIO);
	return NULL;
}

static void check_calls(struct held *h)
{
	struct ibv_alloc_dm_attr attr = { .length = PAGE };
	struct ibv_td_init_attr td = {};
	struct ibv_device_attr dev_attr;

	CHECK_NULL(ibv_alloc_pd(h->ctx), EIO);
	CHECK_NULL(ibv_alloc_td(h->ctx, &td), EIO);
	CHECK_NULL(ibv_alloc_dm(h->ctx, &attr), EIO);
	CHECK_NULL(ibv_reg_mr(h->pd, page, PAGE, 0), EIO);
	CHECK_NULL(ibv_alloc_mw(h->pd, IBV_MW_TYPE_1), EIO);
	CHECK_NULL(ibv_create_cq(h->ctx, 16, NULL, NULL, 0), EIO);
	CHECK_RET(ibv_query_device(h->ctx, &dev_attr), EIO);
}

/* Check the file as the host shares it with the guest. */
static void check_file(uint64_t start, int byte, size_t len)
{
	unsigned char got[LEN];
	int fd = SYS(open(FILE0, O_RDONLY | O_CLOEXEC));

	CHECK_EQ(pread(fd, got, len, start), (ssize_t)len);
	CHECK_ALL(got, byte, len);
	SYS(close(fd));
}

static void use_until_gone(struct peer *parent)
{
	pthread_t writer, waiter;
	struct ibv_async_event event;
	struct held h = { .ctx = dev_open(KEEL0) };

	memset(host, 'w', LEN);
	h.pd = MUST(ibv_alloc_pd(h.ctx));
	hold_domains(&h);
	hold_keys(&h);
	hold_queues(&h);
	CHECK_OK(pthread_create(&writer, NULL, transfer, &h));
	CHECK_OK(pthread_create(&waiter, NULL, wait_channel, &h));
	while (h.writes < 3)
		usleep(1000);
	peer_tell(parent);
	do {
		CHECK_OK(ibv_get_async_event(h.ctx, &event));
		ibv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_DEVICE_FATAL);
	peer_wait(parent);
	h.gone = true;
	CHECK_OK(pthread_join(writer, NULL));
	CHECK_OK(pthread_join(waiter, NULL));
	/* Bytes that the process writes now reach no BAR. */
	CHECK_ALL(h.map, 0, LEN);
	memset(h.map, 'x', LEN);
	CHECK_ALL(h.map, 'x', LEN);
	check_file(h.start, 'w', LEN);
	check_calls(&h);
	CHECK_OK(ibv_free_dm(h.dm));
	CHECK_OK(ibv_close_device(h.ctx));
}

static void tell_slots(const char *what)
{
	const char *slots = getenv("KEEL_SLOTS");
	int fd;

	CHECK(slots && *slots);
	fd = SYS(open(slots, O_WRONLY | O_APPEND | O_CLOEXEC));
	CHECK_EQ(write(fd, what, strlen(what)), (ssize_t)strlen(what));
	SYS(close(fd));
}

static bool is_there(void)
{
	return !access("/sys/class/infiniband/" KEEL0, F_OK);
}

static void wait_for_device(bool want)
{
	int i;

	for (i = 0; i < PATIENCE && is_there() != want; i++)
		usleep(100000);
	CHECK_EQ(is_there(), want);
}

/* Check that the function's resources exist, or do not exist. */
static void check_function(bool want)
{
	static const char * const look[] = {
		"grep -q ' : keel$' /proc/iomem",
		"ls /sys/bus/pci/drivers/keel | grep -q ^0000:",
		"ls /sys/class/net | grep -q '^" KEEL0 "$'",
		"ls /sys/kernel/debug/keel | grep -q '^" KEEL0 "$'",
	};
	size_t i;
	int n;

	for (i = 0; i < sizeof(look) / sizeof(*look); i++) {
		for (n = 0; n < PATIENCE; n++) {
			if (!t_shell_status("%s", look[i]) == want)
				break;
			usleep(100000);
		}
		if (n == PATIENCE)
			FAIL("%s: got %s, want otherwise", look[i],
			     want ? "nothing" : "something");
	}
}

/* Check that the new device works. */
static void check_device(void)
{
	struct ibv_alloc_dm_attr attr = { .length = LEN };
	struct ibv_context *ctx;
	struct ibv_dm *dm;

	wait_for_device(true);
	check_function(true);
	ctx = dev_open(KEEL0);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	dm = MUST(ibv_alloc_dm(ctx, &attr));
	CHECK_ALL(MUST(keeldv_dm_map(dm)), 0, LEN);
	CHECK_OK(ibv_free_dm(dm));
	CHECK_OK(ibv_close_device(ctx));
}

static void unplug(bool killed)
{
	struct peer p[2];
	int i;

	for (i = 0; i < 2; i++)
		peer_start(&p[i], use_until_gone);
	for (i = 0; i < 2; i++)
		peer_wait(&p[i]);
	tell_slots("unplug 0\n");
	/* In every other round, kill one process before the removal. */
	if (killed)
		peer_kill(&p[1], SIGKILL);
	wait_for_device(false);
	check_function(false);
	peer_tell(&p[0]);
	peer_end(&p[0]);
	if (!killed) {
		peer_tell(&p[1]);
		peer_end(&p[1]);
	}
	/* The host frees the name after the guest has released the function. */
	sleep(1);
	tell_slots("plug 0\n");
	check_device();
}

TEST_SLOW(unplugged, "DEV-3,DM-6,PD-3", "20 times, hot unplug gives processes DEVICE_FATAL and EIO, their mappings reach no BAR, and a new device works", 1200)
{
	int i;

	for (i = 0; i < ROUNDS; i++) {
		unplug(i % 2);
		t_note("%d of %d", i + 1, ROUNDS);
	}
}
