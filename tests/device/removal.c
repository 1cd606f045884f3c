// SPDX-License-Identifier: GPL-2.0
/*
 * A device is removed while processes hold an object of every kind, wait for
 * events of every kind, send and copy. scripts/removal runs this test more
 * often than "make test" does.
 *
 * REMOVAL_ROUNDS is the number of rounds. Three variables add another way to
 * create and remove a device: REMOVAL_DEV is its name, and the shell commands
 * REMOVAL_MAKE and REMOVAL_REMOVE create and remove the device.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>

#include <rdma/rdma_cma.h>

#include "dev.h"
#include "hold.h"
#include "peer.h"
#include "qp.h"
#include "t.h"
#include "tree.h"

#define ROUNDS		3
#define ADDRESS		"192.0.2.77"
#define MIB		(1024UL * 1024)

/* One write of the sender; a list of these writes takes a while. */
#define CHUNK		MIB
#define CHUNKS		32

/**
 * struct way - a way to create and remove a device
 * @name: for remarks
 * @dev: the name of the device
 * @netdev: the netdev that gets an address for rdma_cm, or NULL
 * @make: the shell command that creates the device
 * @remove: the shell command that removes the device
 */
struct way {
	const char *name;
	const char *dev;
	const char *netdev;
	const char *make;
	const char *remove;
};

/* The way of this round, set before its processes start. */
static const struct way *way;

void t_after(void)
{
	dev_del();
	module_restore();
}

static int rounds(void)
{
	const char *text = getenv("REMOVAL_ROUNDS");

	return text ? atoi(text) : ROUNDS;
}

/* The kernel adds an address's GID some time after the address. */
static void cm_listen(struct rdma_cm_id *id)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	int i;

	inet_pton(AF_INET, ADDRESS, &addr.sin_addr);
	for (i = 0; i < 500; i++) {
		if (!rdma_bind_addr(id, (struct sockaddr *)&addr))
			break;
		CHECK_EQ(errno, ENODEV);
		usleep(10000);
	}
	CHECK(i < 500);
	CHECK(id->verbs);
	SYS(rdma_listen(id, 1));
}

/* All objects of a process, and its threads that wait for events. */
struct holder {
	struct hold h;
	struct rdma_event_channel *cm;
	struct rdma_cm_id *id;
	pthread_t waits_for_cq, waits_for_cm;
};

/*
 * The only completion that may come is that of the waiting send: if its peer is
 * disassociated much earlier than its own QP, its retries run out.
 */
static void *wait_for_cq(void *arg)
{
	struct holder *h = arg;
	struct ibv_cq *cq;
	void *context;
	int n = 0;

	while (!ibv_get_cq_event(h->h.channel, &cq, &context)) {
		CHECK(cq == h->h.cq);
		ibv_ack_cq_events(cq, 1);
		n++;
	}
	CHECK_EQ(errno, EIO);
	CHECK(n <= 1);
	return NULL;
}

static void *wait_for_cm(void *arg)
{
	struct holder *h = arg;
	struct rdma_cm_event *event;

	SYS(rdma_get_cm_event(h->cm, &event));
	CHECK_EQ(event->event, RDMA_CM_EVENT_DEVICE_REMOVAL);
	CHECK(event->id == h->id);
	SYS(rdma_ack_cm_event(event));
	return NULL;
}

static void wait_for_fatal(struct ibv_context *ctx)
{
	struct ibv_async_event event;

	do {
		CHECK_OK(ibv_get_async_event(ctx, &event));
		ibv_ack_async_event(&event);
		/* The port may become inactive before the device removal. */
	} while (event.event_type != IBV_EVENT_DEVICE_FATAL &&
		 (event.event_type == IBV_EVENT_PORT_ERR ||
		  event.event_type == IBV_EVENT_PORT_ACTIVE ||
		  event.event_type == IBV_EVENT_GID_CHANGE));
	CHECK_EQ(event.event_type, IBV_EVENT_DEVICE_FATAL);
	/*
	 * DEVICE_FATAL is the last event: ib_uverbs blocks a reader that asks
	 * for another event.
	 */
}

static void holder_start(struct holder *h)
{
	hold_all(&h->h, way->dev);
	if (way->netdev) {
		h->cm = MUST(rdma_create_event_channel());
		SYS(rdma_create_id(h->cm, &h->id, NULL, RDMA_PS_TCP));
		cm_listen(h->id);
	}
}

static void holder_wait(struct holder *h)
{
	CHECK_OK(pthread_create(&h->waits_for_cq, NULL, wait_for_cq, h));
	if (h->cm)
		CHECK_OK(pthread_create(&h->waits_for_cm, NULL, wait_for_cm, h));
}

static void holder_join(struct holder *h)
{
	CHECK_OK(pthread_join(h->waits_for_cq, NULL));
	if (!h->cm)
		return;
	CHECK_OK(pthread_join(h->waits_for_cm, NULL));
	SYS(rdma_destroy_id(h->id));
	rdma_destroy_event_channel(h->cm);
}

/* Wait for device removal, try every call, and destroy everything. */
static void tidy(struct peer *parent)
{
	struct holder h = {};

	holder_start(&h);
	holder_wait(&h);
	peer_tell(parent);
	wait_for_fatal(h.h.ctx);
	holder_join(&h);
	hold_check_gone(&h.h, false);
	peer_tell(parent);
	peer_wait(parent);
	hold_check_gone(&h.h, true);
	hold_free(&h.h);
}

/* Exit without destroying anything. */
static void untidy(struct peer *parent)
{
	struct holder h = {};

	holder_start(&h);
	holder_wait(&h);
	peer_tell(parent);
	wait_for_fatal(h.h.ctx);
	peer_tell(parent);
	peer_wait(parent);
}

/* Wait for no event until the test kills this process. */
static void deaf(struct peer *parent)
{
	struct holder h = {};

	holder_start(&h);
	peer_tell(parent);
	peer_tell(parent);
	pause();
}

struct stream {
	struct link l;
	struct ibv_sge sge;
	struct ibv_send_wr wr[CHUNKS];
};

/* Prepare writes to user memory and to device memory, in turn. */
static void stream_init(struct stream *s)
{
	struct ibv_alloc_dm_attr attr = { .length = CHUNK };
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(way->dev)));
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, i;
	char *from = MUST(malloc(CHUNK)), *to = MUST(malloc(CHUNK));
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, from, CHUNK, access));
	struct ibv_mr *target[2];

	memset(from, 's', CHUNK);
	target[0] = MUST(ibv_reg_mr(pd, to, CHUNK, access));
	target[1] = MUST(ibv_reg_dm_mr(pd, MUST(ibv_alloc_dm(pd->context, &attr)),
				       0, CHUNK,
				       access | IBV_ACCESS_ZERO_BASED));
	s->l = link_new(pd, pd, IBV_QPT_RC);
	s->sge = (struct ibv_sge){ (uintptr_t)from, CHUNK, mr->lkey };
	for (i = 0; i < CHUNKS; i++)
		s->wr[i] = (struct ibv_send_wr){
			.opcode = IBV_WR_RDMA_WRITE, .sg_list = &s->sge,
			.num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
			.wr.rdma.remote_addr = i % 2 ? 0 : (uintptr_t)to,
			.wr.rdma.rkey = target[i % 2]->rkey,
			.next = i < CHUNKS - 1 ? &s->wr[i + 1] : NULL,
		};
}

/*
 * The status of in-flight writes does not matter, but there must be in-flight
 * writes.
 */
static void sender(struct peer *parent)
{
	struct ibv_send_wr *bad;
	struct stream s;
	struct ibv_wc wc;
	int ret, n = 0;

	stream_init(&s);
	for (;;) {
		ret = ibv_post_send(s.l.qp[0], s.wr, &bad);
		if (ret == EIO)
			break;
		if (ret != ENOMEM)
			CHECK_OK(ret);
		do
			ret = ibv_poll_cq(s.l.cq[0], 1, &wc);
		while (ret > 0 && ++n);
		if (n >= 2 * CHUNKS) {
			peer_tell(parent);
			n = -1000000000;
		}
	}
	do
		ret = ibv_poll_cq(s.l.cq[0], 1, &wc);
	while (ret > 0);
	CHECK_EQ(ret, -EIO);
	wait_for_fatal(s.l.ctx);
	peer_tell(parent);
	peer_wait(parent);
}

/*
 * Check that each copy that succeeds is complete. This process does not run in
 * UML, whose kernel complains about an access to the mapping just after device
 * removal: see dm_map.c.
 */
static void copier(struct peer *parent)
{
	static unsigned char to[4 * MIB], from[4 * MIB];
	struct ibv_alloc_dm_attr attr = { .length = sizeof(to) };
	struct ibv_context *ctx = dev_open(way->dev);
	struct ibv_dm *dm = MUST(ibv_alloc_dm(ctx, &attr));
	int ret, i;

	for (i = 0; ; i++) {
		memset(to, i | 1, sizeof(to));
		ret = ibv_memcpy_to_dm(dm, 0, to, sizeof(to));
		if (!ret)
			ret = ibv_memcpy_from_dm(from, dm, 0, sizeof(from));
		if (ret)
			break;
		CHECK_ALL(from, i | 1, sizeof(from));
		if (!i)
			peer_tell(parent);
	}
	CHECK_EQ(ret, EIO);
	CHECK(i > 0);
	wait_for_fatal(ctx);
	peer_tell(parent);
	peer_wait(parent);
}

static void made(void)
{
	int i;

	free(t_shell("%s", way->make));
	if (way->netdev)
		free(t_shell("ip address add " ADDRESS "/24 dev %s",
			     way->netdev));
	/* Wait until the device appears. */
	for (i = 0; i < 500 && !dev_exists(way->dev); i++)
		usleep(10000);
	CHECK(dev_exists(way->dev));
}

static void removed(void)
{
	char debugfs[128];
	int i;

	free(t_shell("%s", way->remove));
	/* Removal of a netdev removes its device some time later. */
	snprintf(debugfs, sizeof(debugfs), "/sys/kernel/debug/keel/%s",
		 way->dev);
	for (i = 0; i < 3000 && (dev_exists(way->dev) ||
				 !access(debugfs, F_OK)); i++)
		usleep(10000);
	CHECK(!dev_exists(way->dev));
	CHECK(access(debugfs, F_OK));
}

#define PROCESSES	6
#define DEAF		2

static void (* const process[PROCESSES])(struct peer *) = {
	tidy, untidy, [DEAF] = deaf, sender, sender, copier,
};

/*
 * The device exists at the start, and a new device of the same name exists at
 * the end.
 */
static void round_of(int n_processes)
{
	struct peer p[PROCESSES];
	int i;

	/* Start the processes that use the whole processor last. */
	for (i = 0; i < n_processes; i++) {
		peer_start(&p[i], process[i]);
		if (i >= DEAF)
			peer_wait(&p[i]);
	}
	for (i = 0; i < DEAF; i++)
		peer_wait(&p[i]);
	CHECK(tree_count(way->dev, NULL) > 30);
	removed();
	for (i = 0; i < n_processes; i++)
		peer_wait(&p[i]);
	/* Objects of the old device do not disturb the new device. */
	made();
	dev_check_works(way->dev);
	CHECK_EQ(tree_count(way->dev, NULL), 0);
	for (i = 0; i < n_processes; i++) {
		if (i == DEAF) {
			peer_kill(&p[i], SIGKILL);
		} else {
			peer_tell(&p[i]);
			peer_end(&p[i]);
		}
	}
	CHECK_EQ(tree_count(way->dev, NULL), 0);
}

static void check_way(const struct way *w)
{
	int n = rounds(), i;

	way = w;
	made();
	for (i = 1; i <= n; i++) {
		/*
		 * This is ample time for a round; alarm() detects a round that
		 * hangs.
		 */
		alarm(300);
		round_of(t_uml() ? PROCESSES - 1 : PROCESSES);
		if (i % 10 == 0)
			t_note("%s: round %d of %d", w->name, i, n);
	}
	removed();
	t_note("%s: %d rounds", w->name, n);
}

#define PROVES	": processes that use the device get DEVICE_FATAL and EIO and exit, and a new device works"

/*
 * A netdev's deletion removes its device some time later, so retry until the
 * name is free.
 */
#define ADD_LINK							\
	" && ip link set " KEEL1_NETDEV " up && for i in $(seq 300); do "	\
	"rdma link add " KEEL1 " type keel netdev " KEEL1_NETDEV		\
	" 2>&1 && exit; sleep 0.1; done; exit 1"

TEST(link_deleted, "DEV-3", "rdma link delete" PROVES)
{
	static const struct way w = {
		.name = "link", .dev = KEEL1, .netdev = KEEL1_NETDEV,
		.make = "ip link add " KEEL1_NETDEV " type dummy" ADD_LINK,
		.remove = "rdma link delete " KEEL1
			  " && ip link delete " KEEL1_NETDEV,
	};

	check_way(&w);
}

TEST(netdev_deleted, "DEV-3", "ip link delete of its netdev" PROVES)
{
	static const struct way w = {
		.name = "netdev", .dev = KEEL1, .netdev = KEEL1_NETDEV,
		.make = "ip link add " KEEL1_NETDEV " type veth peer name "
			KEEL1_NETDEV "p && ip link set " KEEL1_NETDEV "p up && "
			"echo 0 >/proc/sys/net/ipv6/conf/" KEEL1_NETDEV
			"/accept_dad"
			ADD_LINK,
		.remove = "ip link delete " KEEL1_NETDEV,
	};

	check_way(&w);
}

TEST(unloaded, "DEV-3", "rmmod" PROVES)
{
	static const struct way w = {
		.name = "module", .dev = KEEL0, .netdev = KEEL0,
		.make = "insmod " MODULE_FILE " $KEEL_PARAMS", .remove = "rmmod keel",
	};

	module_unload();
	check_way(&w);
}

static void test_given(void)
{
	const struct way w = {
		.name = "given", .dev = getenv("REMOVAL_DEV"),
		.make = getenv("REMOVAL_MAKE"),
		.remove = getenv("REMOVAL_REMOVE"),
	};

	check_way(&w);
}

/* Add this test only if the variables are set. */
__attribute__((constructor)) static void add_given(void)
{
	static struct t_case given = {
		.ids = "DEV-3", .title = "REMOVAL_REMOVE" PROVES,
		.run = test_given,
	};

	if (getenv("REMOVAL_DEV") && getenv("REMOVAL_MAKE") &&
	    getenv("REMOVAL_REMOVE"))
		t_add(&given);
}
