// SPDX-License-Identifier: GPL-2.0
/*
 * Everything at once: eight processes of two threads each are linked by QPs of
 * every type. They send all kinds of messages from and to all kinds of memory.
 * Meanwhile they destroy objects in use, and the test kills some of them.
 * Hostile processes stall each other beside them.
 *
 * SOAK_SECONDS is the least duration; scripts/soak runs the long test. The soak
 * goes on after it until each operation has succeeded once, because chance draws
 * them, and a slow machine draws few.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "hostile.h"
#include "link.h"
#include "peer.h"
#include "t.h"

#define WORKERS		8
#define HOSTILES	2
#define LINKS		(3 * WORKERS)
#define SECOND		1000000000ULL
/* The seconds that a soak may take longer to test everything. */
#define SEARCH		240
#define INODE		"/tmp/soak-xrcd"

static struct board {
	atomic_bool stop;
	struct link_stats stats;
	struct link_side sides[LINKS][2];
	atomic_ullong pairs;
} *board;

struct worker {
	pid_t pid;
	uint64_t seed;
};

/* A thread of a worker, and its ends of links. */
struct thread {
	pthread_t thread;
	struct link_end ends[LINKS];
	int count;
};

static unsigned long long kills;

/*
 * Return the worker that owns an end: links join neighbours, more distant
 * workers, or a worker with itself.
 */
static int link_owner(int link, int side)
{
	static const int distance[] = { 1, 3, 0 };
	int from = link % WORKERS;

	return side ? (from + distance[link / WORKERS]) % WORKERS : from;
}

static enum link_type link_type(int link)
{
	return (link + link / WORKERS) % LINK_TYPES;
}

static void *work(void *arg)
{
	static const struct timespec nap = { .tv_nsec = 200000 };
	struct thread *t = arg;
	bool some;
	int i;

	while (!atomic_load(&board->stop)) {
		for (some = false, i = 0; i < t->count; i++)
			some |= link_step(&t->ends[i]);
		if (!some)
			nanosleep(&nap, NULL);
	}
	for (i = 0; i < t->count; i++)
		link_close(&t->ends[i]);
	return NULL;
}

static void add_end(struct thread *t, const struct link_end *like, int link,
		    int side)
{
	struct link_end *e = &t->ends[t->count++];

	*e = *like;
	e->type = link_type(link);
	e->me = &board->sides[link][side];
	e->peer = &board->sides[link][!side];
	e->random += 2 * (2 * link + side);
}

static void worker_run(int me, uint64_t seed)
{
	static struct thread threads[2];
	struct link_end end = {
		.ctx = dev_open(KEEL0), .stats = &board->stats,
		.random = seed | 1,
	};
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = SYS(open(INODE, O_RDONLY | O_CLOEXEC)),
		.oflags = O_CREAT,
	};
	int i;

	end.xrcd = MUST(ibv_open_xrcd(end.ctx, &attr));
	for (i = 0; i < 2 * LINKS; i++)
		if (link_owner(i / 2, i % 2) == me)
			add_end(&threads[(i + i / 2) % 2], &end, i / 2, i % 2);
	for (i = 0; i < 2; i++)
		CHECK_OK(pthread_create(&threads[i].thread, NULL, work,
					&threads[i]));
	for (i = 0; i < 2; i++)
		pthread_join(threads[i].thread, NULL);
	CHECK_OK(ibv_close_xrcd(end.xrcd));
	CHECK_OK(ibv_close_device(end.ctx));
}

static void worker_start(struct worker *workers, int i)
{
	struct worker *w = &workers[i];

	t_random(&w->seed);
	w->pid = SYS(fork());
	if (!w->pid) {
		worker_run(i, w->seed);
		_exit(0);
	}
}

/* Kill a worker, and publish that its ends do not exist any more. */
static void worker_kill(struct worker *workers, int i)
{
	int link, side, status;

	SYS(kill(workers[i].pid, SIGKILL));
	SYS(waitpid(workers[i].pid, &status, 0));
	if (WIFEXITED(status))
		FAIL("worker %d: got exit status %d, want it to live", i,
		     WEXITSTATUS(status));
	kills++;
	for (link = 0; link < LINKS; link++)
		for (side = 0; side < 2; side++)
			if (link_owner(link, side) == i)
				atomic_store(&board->sides[link][side].gen, 0);
}

static pid_t hostiles[HOSTILES];

/*
 * Start processes that start hostile pairs. No pair is connected to a worker.
 */
static void hostiles_start(void)
{
	int i;

	for (i = 0; i < HOSTILES; i++) {
		hostiles[i] = SYS(fork());
		if (hostiles[i])
			continue;
		hostile_rounds(&board->stop, 77 + i, &board->pairs);
		_exit(0);
	}
}

static void hostiles_stop(void)
{
	int i, status;

	for (i = 0; i < HOSTILES; i++) {
		SYS(waitpid(hostiles[i], &status, 0));
		if (status)
			FAIL("hostile pairs: got status 0x%x at the end, want 0",
			     status);
	}
	t_note("%llu hostile pairs", atomic_load(&board->pairs));
	CHECK(atomic_load(&board->pairs) > 0);
}

/* Fail if a process has ended on its own. */
static void check_alive(struct worker *workers)
{
	int i, status;

	for (i = 0; i < HOSTILES; i++)
		if (SYS(waitpid(hostiles[i], &status, WNOHANG)))
			FAIL("hostile pairs: got status 0x%x, want them to go on",
			     status);

	for (i = 0; i < WORKERS; i++)
		if (SYS(waitpid(workers[i].pid, &status, WNOHANG)))
			FAIL("worker %d: got status 0x%x, want it to live", i,
			     status);
}

static void progress(uint64_t seconds)
{
	struct link_stats *s = &board->stats;

	t_note("%3llu s: %llu messages, %llu MiB, %llu links opened, %llu kills, %llu destroys, %llu errors, %llu lost, mismatches %llu, %llu hostile pairs",
	       (unsigned long long)seconds, s->messages, s->bytes >> 20,
	       s->opened, kills, s->destroys, s->errors, s->lost,
	       s->mismatches, atomic_load(&board->pairs));
}

static void stop_workers(struct worker *workers)
{
	int i, status;

	atomic_store(&board->stop, true);
	for (i = 0; i < WORKERS; i++) {
		SYS(waitpid(workers[i].pid, &status, 0));
		if (status)
			FAIL("worker %d: got status 0x%x at the end, want 0", i,
			     status);
	}
}

/* Fail if any operation never succeeded: the soak has not tested it. */
static void check_coverage(void)
{
	struct link_stats *s = &board->stats;
	char line[200];
	int type, op, n;

	for (type = 0; type < LINK_TYPES; type++) {
		for (n = 0, op = 0; op < LINK_OPS; op++)
			n += snprintf(line + n, sizeof(line) - n, " %s %llu",
				      link_ops[op], s->done[type][op]);
		t_note("%-3s%s", link_types[type], line);
	}
	for (op = 0; op < LINK_MEMS; op++)
		t_note("%s memory: %llu", link_mems[op], s->mem[op]);
	for (type = 0; type < LINK_TYPES; type++)
		for (op = 0; op < LINK_OPS; op++)
			if (link_can(type, op) && !s->done[type][op])
				FAIL("%s on %s links: got 0, want some",
				     link_ops[op], link_types[type]);
	for (op = 0; op < LINK_MEMS; op++)
		if (!s->mem[op])
			FAIL("messages with %s memory: got 0, want some",
			     link_mems[op]);
}

/* Whether each operation succeeded, with each type and memory. */
static bool all_done(void)
{
	struct link_stats *s = &board->stats;
	int type, op;

	for (type = 0; type < LINK_TYPES; type++)
		for (op = 0; op < LINK_OPS; op++)
			if (link_can(type, op) && !s->done[type][op])
				return false;
	for (op = 0; op < LINK_MEMS; op++)
		if (!s->mem[op])
			return false;
	return atomic_load(&board->pairs) > 0;
}

static void soak(struct worker *workers, uint64_t seconds)
{
	const struct timespec tick = { .tv_nsec = 20000000 };
	uint64_t start = link_now(), now = start, seed = 20261121;
	uint64_t next_kill = start + SECOND, next_word = start + 10 * SECOND;
	int victim;

	while (now < start + seconds * SECOND ||
	       (now < start + (seconds + SEARCH) * SECOND && !all_done())) {
		nanosleep(&tick, NULL);
		check_alive(workers);
		now = link_now();
		if (now >= next_kill) {
			victim = t_random(&seed) % WORKERS;
			worker_kill(workers, victim);
			worker_start(workers, victim);
			next_kill = now + t_random(&seed) % SECOND;
		}
		if (now >= next_word) {
			progress((now - start) / SECOND);
			next_word += 10 * SECOND;
		}
	}
}

TEST(all_at_once, "PD-3,PD-4,XRC-9,SPD-7,DM-4,DM-7", "processes that send, destroy and die beside hostile ones get correct data and explained errors, and leave nothing behind")
{
	const char *asked = getenv("SOAK_SECONDS");
	uint64_t seconds = asked ? strtoull(asked, NULL, 10) : 12;
	struct worker workers[WORKERS];
	struct link_stats *s;
	uint64_t start;
	int i;

	/* The longest duration, and time to shut everything down. */
	alarm(seconds + SEARCH + 120);
	board = peer_shared(sizeof(*board));
	s = &board->stats;
	start = link_now();
	close(SYS(open(INODE, O_RDWR | O_CREAT | O_CLOEXEC, 0600)));
	for (i = 0; i < WORKERS; i++) {
		workers[i].seed = 1000 + i;
		worker_start(workers, i);
	}
	hostiles_start();
	soak(workers, seconds);
	stop_workers(workers);
	hostiles_stop();
	unlink(INODE);
	progress((link_now() - start) / SECOND);
	t_note("%llu refused as they must be, errors without a reason %llu",
	       s->refused, s->unexplained);
	check_coverage();
	CHECK_EQ(s->mismatches, 0);
	CHECK_EQ(s->unexplained, 0);
}
