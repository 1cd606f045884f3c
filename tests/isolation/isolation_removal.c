// SPDX-License-Identifier: GPL-2.0
/*
 * A device is removed while memory of a send or of a receive WQE cannot be
 * faulted in.
 *
 * ib_uverbs itself waits for some things on device removal, which these tests
 * leave out. It takes the mmap_lock of a process that has device memory mapped.
 * It also waits for calls, which may be copying their arguments or pinning
 * memory: see Documentation/isolation.rst.
 */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "dev.h"
#include "iso.h"
#include "qp.h"
#include "stall.h"
#include "t.h"

void t_after(void)
{
	dev_del();
	module_restore();
}

/* The limit of a command that nobody holds up. */
#define CONTROL_MS	20000

static const char *dev;
static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));

/* Send from memory that cannot be faulted in. */
static void bad_sender(struct peer *parent)
{
	struct ibv_mr *mr;
	struct iso_end e;

	iso_open(&e, dev, NULL, ISO_RC);
	mr = iso_mr(&e, stall_memory(ISO_PAGE), IBV_ACCESS_ON_DEMAND);
	iso_meet(&e, parent);
	stall_hold();
	peer_tell(parent);
	iso_send(&e, 1, mr);
	pause();
}

/* Receive into memory that cannot be faulted in. */
static void bad_receiver(struct peer *parent)
{
	struct ibv_mr *mr;
	struct iso_end e;

	iso_open(&e, dev, NULL, ISO_RC);
	mr = iso_mr(&e, stall_memory(ISO_PAGE), IBV_ACCESS_ON_DEMAND);
	iso_meet(&e, parent);
	iso_post_recv(&e, 1, mr);
	stall_hold();
	peer_tell(parent);
	pause();
}

/* Post a receive WQE, and send. */
static void neighbour(struct peer *parent)
{
	struct iso_end e;

	iso_open(&e, dev, NULL, ISO_RC);
	e.mr = iso_mr(&e, page, 0);
	iso_meet(&e, parent);
	iso_post_recv(&e, 2, e.mr);
	peer_tell(parent);
	peer_wait(parent);
	iso_send(&e, 3, e.mr);
	peer_tell(parent);
	pause();
}

static const char *command;

static void runner(struct peer *parent)
{
	CHECK_EQ(t_shell_status("%s", command), 0);
	peer_tell(parent);
}

static int ms_since(const struct timespec *start)
{
	struct timespec now;

	SYS(clock_gettime(CLOCK_MONOTONIC, &now));
	return (now.tv_sec - start->tv_sec) * 1000 +
	       (now.tv_nsec - start->tv_nsec) / 1000000;
}

/*
 * Start both processes; the neighbour sends. isolation_recv.c tests that its
 * send returns.
 */
static void start(struct stall *s, struct peer *n, const char *name,
		  void (*bad)(struct peer *parent))
{
	dev = name;
	stall_start(s, bad);
	peer_start(n, neighbour);
	iso_introduce(&s->peer, n);
	peer_wait(n);
	peer_wait(&s->peer);
	stall_settle(s);
	peer_tell(n);
	iso_told(n, 100);
}

/* Run a command, which must return in time. Return how long it took. */
static int check_command(const char *line, int ms)
{
	struct timespec start;
	struct peer p;
	int took;

	command = line;
	SYS(clock_gettime(CLOCK_MONOTONIC, &start));
	peer_start(&p, runner);
	iso_within(__FILE__, __LINE__, &p, ms, command);
	took = ms_since(&start);
	peer_end(&p);
	t_note("%s took %d ms of %d", line, took, ms);
	return took;
}

/*
 * With checkers, on a slow machine, and beside other guests, a command itself takes
 * long. So the bound is what the stalled process may add: return the bound, from the
 * time of a removal in use by two processes that do not stall.
 */
static int removal_ms(const char *name, const char *with)
{
	struct peer a, b;
	int took;

	dev = name;
	peer_start(&a, neighbour);
	peer_start(&b, neighbour);
	iso_introduce(&a, &b);
	peer_wait(&a);
	peer_wait(&b);
	peer_tell(&a);
	peer_wait(&a);
	took = check_command(with, CONTROL_MS);
	CHECK_KILL(&a, "a process whose device has gone");
	CHECK_KILL(&b, "a process whose device has gone");
	return took + ISO_MS;
}

static void check_removed(const char *name, const char *with, int ms,
			  void (*bad)(struct peer *parent))
{
	struct stall s;
	struct peer n;

	start(&s, &n, name, bad);
	check_command(with, ms);
	CHECK_KILL(&n, "a process whose device has gone");
	stall_end(&s);
}

static void check_link(void (*bad)(struct peer *parent))
{
	static const char with[] = "rdma link delete " KEEL1;
	int ms;

	dev_add();
	ms = removal_ms(KEEL1, with);
	dev_del();
	dev_add();
	check_removed(KEEL1, with, ms, bad);
	CHECK(!dev_exists(KEEL1));
	dev_del();
	/* The name is free. */
	dev_add();
	dev_check_works(KEEL1);
	dev_del();
}

static void check_module(void (*bad)(struct peer *parent))
{
	static const char with[] = "rmmod keel";
	int ms;

	module_will_go();
	ms = removal_ms(KEEL0, with);
	if (!module_loaded()) {
		module_load(module_usual());
		module_will_go();
	}
	check_removed(KEEL0, with, ms, bad);
	CHECK(!module_loaded());
	module_load(module_usual());
	dev_check_works(KEEL0);
}

/* Only query the device, without a removal. */
static void check_seen(void (*bad)(struct peer *parent))
{
	static const char *const queries[] = {
		"rdma resource show qp", "rdma resource show mr",
		"cat /sys/kernel/debug/keel/" KEEL0 "/objects",
	};
	int ms[sizeof(queries) / sizeof(*queries)];
	struct stall s;
	struct peer n;
	size_t i;

	for (i = 0; i < sizeof(queries) / sizeof(*queries); i++)
		ms[i] = check_command(queries[i], CONTROL_MS) + ISO_MS;
	start(&s, &n, KEEL0, bad);
	for (i = 0; i < sizeof(queries) / sizeof(*queries); i++)
		check_command(queries[i], ms[i]);
	stall_end(&s);
	peer_kill(&n, SIGKILL);
	iso_check_empty(KEEL0);
}

#define LINK	"rdma link delete takes at most 1 s longer "
#define RMMOD	"rmmod takes at most 1 s longer "
#define SENDER	"while a process sends from memory that cannot be faulted in"
#define RECEIVER "while a process sends to a receive WQE whose memory cannot be faulted in"

TEST(link_sender, "ISO-1,DEV-3", LINK SENDER)
{
	check_link(bad_sender);
}

TEST(link_receiver, "ISO-1,DEV-3", LINK RECEIVER)
{
	check_link(bad_receiver);
}

TEST(module_sender, "ISO-1,DEV-3", RMMOD SENDER)
{
	check_module(bad_sender);
}

TEST(module_receiver, "ISO-1,DEV-3", RMMOD RECEIVER)
{
	check_module(bad_receiver);
}

#define SEEN	"rdma resource show and the object tree in debugfs take at most 1 s longer "

TEST(seen_sender, "ISO-1", SEEN SENDER)
{
	check_seen(bad_sender);
}

TEST(seen_receiver, "ISO-1", SEEN RECEIVER)
{
	check_seen(bad_receiver);
}

/* The worker of a QP is a thread of the process, and runs code of the module. */
static void qp_owner(struct peer *parent)
{
	struct iso_end e;

	iso_open(&e, KEEL0, NULL, ISO_RC);
	peer_tell(parent);
	pause();
}

TEST_CASE(module_stopped, "DEV-3,ISO-1", "rmmod ends although a process that has a worker is stopped: the kernel kills that process, and the module can be loaded again",
	  .limit = 60, ISO_NEEDS_THREADS)
{
	struct peer p;
	int status;

	module_will_go();
	peer_start(&p, qp_owner);
	peer_wait(&p);
	SYS(kill(p.pid, SIGSTOP));
	SYS(waitpid(p.pid, &status, WUNTRACED));
	CHECK(WIFSTOPPED(status));
	free(t_shell("rmmod keel"));
	CHECK(!module_loaded());
	SYS(waitpid(p.pid, &status, 0));
	CHECK(WIFSIGNALED(status));
	CHECK_EQ(WTERMSIG(status), SIGKILL);
	close(p.fd);
	module_load(module_usual());
	dev_check_works(KEEL0);
}
