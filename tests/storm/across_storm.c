// SPDX-License-Identifier: GPL-2.0
/*
 * Faults of a link while programs of Debian use it. Each fault comes once, or as often as the
 * environment says: ACROSS_ROUNDS. scripts/torture.d/across does so.
 */
#include <signal.h>
#include <sys/wait.h>

#include "hosts.h"
#include "qp.h"
#include "t.h"

#define LIMIT	14400
/* Atomics before, and after, a fault. */
#define FEW	20
#define MANY	100

static struct end a, b;
/* The next value of the word of each end. */
static uint64_t sums[HOSTS];
static pid_t crowd[3];

/* Give up after about 4 s. */
static const struct joint hasty = {
	.timeout = 18, .retry_cnt = 3, .rnr_retry = 7, .rnr_timer = 1, .psn = 0x123456,
};

void t_end(void)
{
	hosts_down();
}

static int rounds(void)
{
	const char *n = getenv("ACROSS_ROUNDS");

	return n ? atoi(n) : 1;
}

/* Pingpongs between the hosts, one after the other. They may fail, and are killed in time. */
static pid_t crowd_start(const char *kind, int port)
{
	char command[400];
	pid_t pid;

	snprintf(command, sizeof(command),
		 "while sleep 0.1; do "
		 "timeout 10 ibv_%s_pingpong -d keel_b -g %d -p %d -n 5000 & sleep 0.3; "
		 "timeout 9 ibv_%s_pingpong -d keel_a -g %d -p %d -n 5000 127.0.0.1; wait; done "
		 ">/dev/null 2>&1", kind, b.sgid, port, kind, a.sgid, port);
	pid = SYS(fork());
	if (!pid) {
		setpgid(0, 0);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	setpgid(pid, pid);
	return pid;
}

static void crowd_end(void)
{
	size_t i;

	for (i = 0; i < sizeof(crowd) / sizeof(*crowd); i++) {
		if (!crowd[i])
			continue;
		kill(-crowd[i], SIGKILL);
		waitpid(crowd[i], NULL, 0);
		crowd[i] = 0;
	}
	/* Those that timeout has started. */
	t_shell_status("pkill -KILL pingpong; while pgrep pingpong; do sleep 0.1; done >/dev/null");
}

static void ends_new(const struct joint *j)
{
	a = end_new(0);
	b = end_new(1);
	ends_join(&a, &b, j);
	sums[0] = 0;
	sums[1] = 0;
}

static void begin(void)
{
	hosts_up();
	ends_new(&joint_patient);
	crowd[0] = crowd_start("rc", 19001);
	crowd[1] = crowd_start("srq", 19002);
	crowd[2] = crowd_start("ud", 19003);
}

static void ends_free(void)
{
	end_free(&a);
	end_free(&b);
}

static void end(void)
{
	crowd_end();
	ends_free();
}

static void add_post(struct end *from, struct end *to, uint64_t wr_id)
{
	post_add(from->qp, wr_id, (struct mem){ from->mem + 64, 8, from->mr->lkey },
		 (uintptr_t)to->mem, to->mr->rkey, 1);
}

/* The atomic was done once, and returned what was there before. */
static void add_done(struct end *from, struct end *to, uint64_t wr_id, uint64_t *sum)
{
	CHECK_WC(from->cq, wr_id, IBV_WC_SUCCESS);
	CHECK_EQ(*(uint64_t *)(from->mem + 64), *sum);
	++*sum;
	CHECK_EQ(*(volatile uint64_t *)to->mem, *sum);
}

static void adds(int n)
{
	for (; n; n--) {
		add_post(&a, &b, n);
		add_post(&b, &a, n);
		add_done(&a, &b, n, &sums[0]);
		add_done(&b, &a, n, &sums[1]);
	}
}

/* Run a fault in another process, while atomics go on. */
static void during(void (*fault)(int round), int round)
{
	pid_t pid = SYS(fork());

	if (!pid) {
		usleep(20000);
		fault(round);
		_exit(0);
	}
	adds(MANY);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	adds(FEW);
}

static void storm(void (*fault)(int round))
{
	int i;

	begin();
	for (i = 0; i < rounds(); i++) {
		adds(FEW);
		during(fault, i);
	}
	end();
}

static void lower(int round)
{
	host_lower(round % 2, 0);
	usleep(20000);
	host_lower(round % 2, 1);
}

TEST_SLOW(lower, "HOST-2", "lower devices are removed and added while both sides and programs use the link", LIMIT)
{
	storm(lower);
}

static void cable(int round)
{
	free(host_shell(1, "ip link set keel_b down"));
	usleep(round % 2 ? 50000 : 1000000);
	free(host_shell(1, "ip link set keel_b up"));
	host_address(1);
	/* The GSI of rxe may be in error for ever: Documentation/upstream.rst. */
	lower(0);
	lower(1);
}

TEST_SLOW(cable, "HOST-2", "the netdev is down for a while, while both sides and programs use the link", LIMIT)
{
	storm(cable);
}

/* The link ends, and then both sides ask for a connection at once. */
TEST_SLOW(both, "HOST-2", "both sides ask for a connection at once, and one remains", LIMIT)
{
	int i;

	begin();
	for (i = 0; i < rounds(); i++) {
		adds(FEW);
		host_lower(0, 0);
		host_lower(1, 0);
		add_post(&a, &b, 1);
		add_post(&b, &a, 2);
		host_lower(0, 1);
		host_lower(1, 1);
		add_done(&a, &b, 1, &sums[0]);
		add_done(&b, &a, 2, &sums[1]);
	}
	end();
}

/* Let packets be lost that a host sends: percent. */
static void lose(int host, int percent)
{
	free(host_shell(host, "tc qdisc replace dev keel_%c root netem loss %d%%", 'a' + host,
			percent));
}

static void some(int round)
{
	lose(0, 1);
	lose(1, 1);
	usleep(round % 2 ? 100000 : 1000000);
	lose(0, 0);
	lose(1, 0);
}

TEST_SLOW(some, "HOST-2", "one packet of a hundred is lost for a while, both ways, while both sides and programs use the link", LIMIT)
{
	storm(some);
}

/* A while that is too short to end the connection, or long enough; of each host in turn. */
static void all(int round)
{
	lose(round / 2 % 2, 100);
	usleep(round % 2 ? 100000 : 3000000);
	lose(round / 2 % 2, 0);
}

TEST_SLOW(all, "HOST-2", "all packets of a host are lost for a while, while both sides and programs use the link", LIMIT)
{
	storm(all);
}

/* The message is done, or fails when its timers are over. */
static bool ends_somehow(struct end *from, uint64_t wr_id)
{
	struct ibv_wc wc = wc_get(from->cq);

	CHECK_EQ(wc.wr_id, wr_id);
	if (wc.status != IBV_WC_SUCCESS)
		CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
	return wc.status == IBV_WC_SUCCESS;
}

TEST_SLOW(silence, "HOST-2", "the other host is silent: messages fail when their timers are over, and new queue pairs work", LIMIT)
{
	int i;

	begin();
	ends_free();
	for (i = 0; i < rounds(); i++) {
		/* These wait until the link is up again. */
		ends_new(&joint_patient);
		adds(FEW);
		ends_free();
		ends_new(&hasty);
		lose(i % 2, 100);
		add_post(&a, &b, 1);
		add_post(&b, &a, 2);
		if (ends_somehow(&a, 1) || ends_somehow(&b, 2))
			FAIL("a message has reached a host to which nothing comes, or from which");
		lose(i % 2, 0);
		ends_free();
	}
	crowd_end();
}

TEST_SLOW(keel, "HOST-2", "the device of keel of a host is removed and added again, while programs use the link", LIMIT)
{
	int i;

	begin();
	ends_free();
	for (i = 0; i < rounds(); i++) {
		struct end *left = i % 2 ? &b : &a, *gone = i % 2 ? &a : &b;
		int host = gone == &b;
		char name = 'a' + host;

		ends_new(&hasty);
		adds(FEW);
		add_post(left, gone, 1);
		free(t_shell("rdma link delete keel_%c", name));
		free(host_shell(host, "rdma link add keel_%c type keel netdev keel_%c", name, name));
		add_post(left, gone, 2);
		ends_somehow(left, 1);
		if (wc_get(left->cq).status == IBV_WC_SUCCESS)
			FAIL("a message has reached a queue pair that is gone");
		end_free(left);
		end_drop(gone);
	}
	crowd_end();
}
