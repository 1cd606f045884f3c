// SPDX-License-Identifier: GPL-2.0
/*
 * Polling: the worker of the process looks for send WQEs, and posts need no system call.
 * The counter sq_polls tells how often a worker began.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

#include <infiniband/keeldv.h>

#include "dev.h"
#include "iso.h"
#include "qp.h"
#include "raw.h"
#include "rings.h"
#include "t.h"

#define LEN	64
#define LINKS	4
#define ROUNDS	50
/* Patience for what comes soon. */
#define TRIES	5000

static unsigned char from[LINKS][LEN], to[LINKS][LEN];
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *from_mr, *to_mr;
static struct link links[LINKS];
/* Doorbells of send queues that this process has rung, while it has one thread. */
static long doorbells;

/* The user library calls this one. */
int ioctl(int fd, unsigned long request, ...)
{
	const struct ib_uverbs_ioctl_hdr *hdr;
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	hdr = arg;
	if (request == RDMA_VERBS_IOCTL && hdr->object_id == UVERBS_OBJECT_QP &&
	    hdr->method_id == KEEL_METHOD_QP_DOORBELL)
		doorbells++;
	return syscall(SYS_ioctl, fd, request, arg);
}

/* Links with rings that the test reads: four for each link, its requester's first. */
static void setup(const char *dev, int n, uint32_t us)
{
	int i;

	CHECK(4 * n <= RINGS);
	ctx = dev_open(dev);
	pd = rings_pd(ctx);
	from_mr = MUST(ibv_reg_mr(pd, from, sizeof(from), 0));
	to_mr = MUST(ibv_reg_mr(pd, to, sizeof(to), IBV_ACCESS_LOCAL_WRITE));
	for (i = 0; i < n; i++) {
		links[i] = link_new(pd, pd, IBV_QPT_RC);
		memset(from[i], i + 1, LEN);
	}
	CHECK_RET(keeldv_poll_sends(ctx, us), 0);
}

static bool is_polled_ring(int ring)
{
	return __atomic_load_n(&rings[ring]->flags, __ATOMIC_ACQUIRE) & KEEL_RING_F_POLLED;
}

static bool is_polled(int i)
{
	return is_polled_ring(4 * i);
}

static void receive(int i)
{
	post_recv(links[i].qp[1], i, (struct mem){ to[i], LEN, to_mr->lkey });
}

static void send(int i)
{
	post_send(links[i].qp[0], i, (struct mem){ from[i], LEN, from_mr->lkey });
}

static void check_arrived(int i)
{
	CHECK_WC(links[i].cq[0], i, IBV_WC_SUCCESS);
	CHECK_EQ(CHECK_WC(links[i].cq[1], i, IBV_WC_SUCCESS).byte_len, LEN);
	CHECK_ALL(to[i], i + 1, LEN);
	memset(to[i], 0, LEN);
}

static void one(int i)
{
	receive(i);
	send(i);
	check_arrived(i);
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* Send until the worker polls: it must have run once, and may be busy. */
static void begin(int i)
{
	int tries;

	for (tries = 0; one(i), !is_polled(i); tries++) {
		if (tries == TRIES)
			FAIL("queue %d: got no polling after %d messages", i, tries);
		nap();
	}
}

static void wait_for_end(int i)
{
	int tries;

	for (tries = 0; is_polled(i); tries++) {
		if (tries == TRIES)
			FAIL("queue %d: got polling, want an end", i);
		nap();
	}
}

TEST_CASE(sends, "DEV-4", "posts to a queue that is polled ring no doorbell, and their messages arrive", ISO_NEEDS_THREADS)
{
	long before;
	int i;

	setup(KEEL0, 1, KEELDV_POLL_SENDS_MAX);
	begin(0);
	before = dev_counter("sq_polls");
	CHECK(before > 0);
	doorbells = 0;
	for (i = 0; i < ROUNDS; i++)
		one(0);
	t_note("%ld doorbells for %d messages", doorbells, ROUNDS);
	/*
	 * The time may be over on a busy machine. Then a doorbell begins again, unless the
	 * worker was first.
	 */
	CHECK(dev_counter("sq_polls") - before <= doorbells);
	CHECK(doorbells < ROUNDS / 2);
}

TEST_CASE(ends, "ISO-3,DEV-4", "polling ends after the time without messages, the next doorbell begins again, and a time of 0 ends it for good", ISO_NEEDS_THREADS)
{
	long before;
	int i;

	setup(KEEL0, 1, 1000);
	begin(0);
	wait_for_end(0);
	before = dev_counter("sq_polls");
	begin(0);
	CHECK(dev_counter("sq_polls") > before);
	CHECK_RET(keeldv_poll_sends(ctx, 0), 0);
	wait_for_end(0);
	before = dev_counter("sq_polls");
	doorbells = 0;
	for (i = 0; i < ROUNDS; i++)
		one(0);
	CHECK_EQ(doorbells, ROUNDS);
	CHECK_EQ(dev_counter("sq_polls"), before);
	CHECK(!is_polled(0));
}

TEST_CASE(waits, "ISO-3", "a message that waits for a receive WQE does not keep the worker polling, and arrives later", ISO_NEEDS_THREADS)
{
	setup(KEEL0, 1, 1000);
	begin(0);
	send(0);
	wait_for_end(0);
	CHECK_NO_WC(links[0].cq[0]);
	receive(0);
	check_arrived(0);
}

TEST_CASE(several, "DEV-4,ISO-3", "a worker polls several queues in turn, and one that waits for its peer does not delay the others", ISO_NEEDS_THREADS)
{
	int round, i;

	setup(KEEL0, LINKS, KEELDV_POLL_SENDS_MAX);
	for (i = 0; i < LINKS; i++)
		begin(i);
	send(0);
	for (round = 0; round < ROUNDS; round++) {
		for (i = 1; i < LINKS; i++)
			receive(i);
		for (i = 1; i < LINKS; i++)
			send(i);
		for (i = 1; i < LINKS; i++)
			check_arrived(i);
		CHECK_NO_WC(links[0].cq[0]);
	}
	receive(0);
	check_arrived(0);
}

TEST(alone, "ISO-1", "on one processor, nobody polls, because the worker would keep the application from it")
{
	long before;
	int ret, i;

	t_one_processor();
	setup(KEEL0, 1, 0);
	/* Kernels that give a module no threads in a process refuse it. */
	ret = keeldv_poll_sends(ctx, KEELDV_POLL_SENDS_MAX);
	if (ret)
		CHECK_EQ(ret, EOPNOTSUPP);
	before = dev_counter("sq_polls");
	for (i = 0; i < ROUNDS; i++) {
		one(0);
		CHECK(!is_polled(0));
	}
	CHECK_EQ(dev_counter("sq_polls"), before);
}

/* The method without the library. */
static int ask(int fd, uint32_t us, size_t len)
{
	uint64_t value = us;
	struct raw_cmd cmd;

	raw_init(&cmd, UVERBS_OBJECT_DEVICE, KEEL_METHOD_DEVICE_POLL_SENDS);
	raw_in(&cmd, KEEL_ATTR_DEVICE_POLL_SENDS_US, &value, len);
	return raw_run(fd, &cmd);
}

TEST_CASE(refused, "DEV-4", "a time of more than a second is EINVAL, as an attribute of a wrong length is, and changes nothing", ISO_NEEDS_THREADS)
{
	setup(KEEL0, 1, KEELDV_POLL_SENDS_MAX);
	CHECK_RET(keeldv_poll_sends(ctx, KEELDV_POLL_SENDS_MAX + 1), EINVAL);
	CHECK_RET(keeldv_poll_sends(ctx, ~0U), EINVAL);
	CHECK_RET(ask(ctx->cmd_fd, 0, 2), EINVAL);
	CHECK_RET(ask(ctx->cmd_fd, 0, 8), EINVAL);
	begin(0);
}

TEST_CASE(states, "DEV-4", "a queue that is polled can be reset, drained, moved to the error state, and polled again", ISO_NEEDS_THREADS)
{
	struct ibv_qp **qp = links[0].qp;
	long before;

	setup(KEEL0, 1, KEELDV_POLL_SENDS_MAX);
	begin(0);
	qp_to(qp[0], IBV_QPS_RESET);
	CHECK(!is_polled(0));
	qp_to(qp[1], IBV_QPS_RESET);
	qp_join(qp[0], qp[1]);
	before = dev_counter("sq_polls");
	begin(0);
	CHECK(dev_counter("sq_polls") > before);

	qp_to(qp[0], IBV_QPS_SQD);
	receive(0);
	send(0);
	nap();
	CHECK_NO_WC(links[0].cq[0]);
	qp_to(qp[0], IBV_QPS_RTS);
	check_arrived(0);

	begin(0);
	qp_to(qp[0], IBV_QPS_ERR);
	send(0);
	CHECK_WC(links[0].cq[0], 0, IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE(receives, "ISO-2", "a doorbell for receive WQEs, for which the peer asks, does not begin polling", ISO_NEEDS_THREADS)
{
	int i;

	setup(KEEL0, 1, KEELDV_POLL_SENDS_MAX);
	/* The message of the other queue pair waits. */
	post_send(links[0].qp[1], 1, (struct mem){ from[0], LEN, from_mr->lkey });
	while (is_polled_ring(2))
		nap();
	for (i = 0; i < ROUNDS; i++) {
		send(0);
		while (!(__atomic_load_n(&rings[3]->flags, __ATOMIC_ACQUIRE) &
			 KEEL_RING_F_DOORBELL))
			nap();
		receive(0);
		check_arrived(0);
		CHECK(!is_polled_ring(2));
	}
}

static void asks(struct peer *parent)
{
	int fd = peer_get_fd(parent);

	CHECK_RET(ask(fd, KEELDV_POLL_SENDS_MAX, 4), 0);
	peer_tell(parent);
	peer_wait(parent);
}

TEST_CASE(stranger, "ISO-2", "a process that shares the context asks for its own worker, not for that of another process", ISO_NEEDS_THREADS)
{
	struct peer p;
	long before;
	int i;

	peer_start(&p, asks);
	setup(KEEL0, 1, 0);
	peer_put_fd(&p, ctx->cmd_fd);
	peer_wait(&p);
	before = dev_counter("sq_polls");
	for (i = 0; i < ROUNDS; i++) {
		one(0);
		CHECK(!is_polled(0));
	}
	CHECK_EQ(dev_counter("sq_polls"), before);
	peer_tell(&p);
	peer_end(&p);
}

/* Is polled; then sends at each turn. */
static void polled(struct peer *parent)
{
	setup(KEEL0, 1, KEELDV_POLL_SENDS_MAX);
	begin(0);
	peer_tell(parent);
	for (;;) {
		peer_wait(parent);
		one(0);
		peer_tell(parent);
	}
}

TEST_CASE(stopped, "ISO-1", "a process that is polled can be stopped, continues to send after SIGCONT, and can be killed at once", ISO_NEEDS_THREADS)
{
	struct peer p;
	int i;

	peer_start(&p, polled);
	peer_wait(&p);
	for (i = 0; i < 5; i++) {
		SYS(kill(p.pid, SIGSTOP));
		nap();
		SYS(kill(p.pid, SIGCONT));
		peer_tell(&p);
		CHECK_WITHIN(&p, "message after SIGCONT");
	}
	SYS(kill(p.pid, SIGSTOP));
	CHECK_KILL(&p, "kill of a process that is polled and stopped");
	peer_start(&p, polled);
	peer_wait(&p);
	CHECK_KILL(&p, "kill of a process that is polled");
	iso_check_empty(KEEL0);
}

TEST_CASE(charged, "ISO-2", "the time of a worker that polls is time of its process", ISO_NEEDS_THREADS)
{
	uint64_t before;
	int i;

	setup(KEEL0, 1, KEELDV_POLL_SENDS_MAX);
	for (i = 0; i < 20; i++) {
		begin(0);
		before = iso_process_us(getpid());
		wait_for_end(0);
		/* A tenth of the time that it polls at least. */
		if (iso_process_us(getpid()) - before >= KEELDV_POLL_SENDS_MAX / 10)
			return;
	}
	FAIL("the process: got %llu us, want %u or more",
	     (unsigned long long)(iso_process_us(getpid()) - before), KEELDV_POLL_SENDS_MAX / 10);
}

TEST_CASE(removed, "DEV-3", "a device can be deleted while queues are polled; then the flag is clear, and posts return EIO", ISO_NEEDS_THREADS)
{
	struct ibv_send_wr *bad, *wr;

	dev_add();
	setup(KEEL1, 1, KEELDV_POLL_SENDS_MAX);
	begin(0);
	free(t_shell("rdma link delete " KEEL1));
	CHECK(!is_polled(0));
	wr = send_wr(IBV_WR_SEND, 1, (struct mem){ from[0], LEN, from_mr->lkey });
	CHECK_RET(ibv_post_send(links[0].qp[0], wr, &bad), EIO);
	CHECK(bad == wr);
}

void t_after(void)
{
	dev_del();
}
