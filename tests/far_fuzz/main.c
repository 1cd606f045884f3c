// SPDX-License-Identifier: GPL-2.0
/*
 * The fuzzer of links: see world.h. scripts/torture.d/far-fuzz runs it, with these variables
 * in the environment:
 *   FAR_FUZZ_SECONDS  time of fuzzing (default 20)
 *   FAR_FUZZ_DIR      folder that the host shares: corpus/ has inputs, and gets new ones;
 *                     last/ gets the inputs that were executed last
 *   FAR_FUZZ_REPORTS  file of regular expressions: lines of the kernel log that are findings
 *   FAR_FUZZ_REPLAY   folder of inputs that are executed in the order of their names, each
 *                     several times, and no others
 *
 * A process executes a batch of inputs, and then destroys all its objects. The fuzzer checks
 * that nothing is left of it, and that the honest pair has gone on meanwhile.
 */
#include <glob.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "../fuzz/kernel_log.h"
#include "../fuzz/text.h"
#include "groups.h"
#include "t.h"
#include "tree.h"
#include "world.h"

#define DEVICE		"keel_a"
#define LINKS		"/sys/kernel/debug/keel/" DEVICE "/links"
#define LIMIT		36000
#define BATCH		50
#define MAX_CORPUS	8192
#define HISTORY		16
#define REPEATS		5
/* Until an input hangs; until nothing is left of a process; until an idle link is closed. */
#define INPUT_MS	60000
#define LEFT_MS		20000
#define IDLE_MS		60000
/* A run may leave so much in the slabs: caches of the kernel grow at first. */
#define SLAB_GROWTH	(32 << 20)

struct input {
	uint16_t n;
	uint8_t data[MAX_INPUT];
};

/* Memory that the process of a batch shares with the fuzzer. */
static struct {
	unsigned int ncorpus, next;	/* inputs, and those that were executed as they are */
	unsigned long execs;
	uint64_t seed;
	struct input corpus[MAX_CORPUS];
} *f;

static const char *folder;
static time_t started, until;

void t_end(void)
{
	stranger_net_down();
	hosts_down();
}

static void log_open(void)
{
	const char *path = getenv("FAR_FUZZ_REPORTS"), *why = path ? kernel_log_open(path) : NULL;

	if (why)
		FAIL("the kernel log cannot be checked: %s", why);
}

static void log_check(void)
{
	const char *text = kernel_log_report();

	if (text)
		FAIL("kernel report: %s", text);
}

static void write_input(const char *path, const struct input *input)
{
	FILE *file = MUST(fopen(path, "we"));

	text_print(file, input->data, input->n);
	/* The guest may end at any time. */
	fdatasync(fileno(file));
	fclose(file);
}

/* Before it is executed. */
static void remember(const struct input *input)
{
	char path[256];

	if (!folder)
		return;
	snprintf(path, sizeof(path), "%s/last/%02lu.calls", folder, f->execs % HISTORY);
	write_input(path, input);
}

static void corpus_add(const struct input *input, bool is_new)
{
	char path[256];

	if (f->ncorpus == MAX_CORPUS)
		return;
	f->corpus[f->ncorpus++] = *input;
	if (!folder || !is_new)
		return;
	snprintf(path, sizeof(path), "%s/corpus/%08lx-%06lu.calls", folder,
		 (unsigned long)started, f->execs);
	write_input(path, input);
}

static void corpus_read(const char *pattern)
{
	struct input input;
	glob_t paths;
	size_t i;

	if (glob(pattern, 0, NULL, &paths))
		return;
	for (i = 0; i < paths.gl_pathc; i++) {
		input.n = text_read(paths.gl_pathv[i], input.data);
		corpus_add(&input, false);
	}
	globfree(&paths);
}

/* Those of the repository are beside the program. */
static void corpus_read_all(void)
{
	char path[300], own[200];
	ssize_t n = SYS(readlink("/proc/self/exe", own, sizeof(own) - 1));

	own[n] = 0;
	*MUST(strrchr(own, '/')) = 0;
	snprintf(path, sizeof(path), "%s/corpus/*.calls", own);
	corpus_read(path);
	if (!folder)
		return;
	snprintf(path, sizeof(path), "%s/corpus/*.calls", folder);
	corpus_read(path);
}

/* One of the corpus, rather a late one. */
static const struct input *corpus_pick(void)
{
	unsigned int n = f->ncorpus;

	if (n > 32 && t_random(&f->seed) % 2)
		return &f->corpus[n - 1 - t_random(&f->seed) % 32];
	return &f->corpus[t_random(&f->seed) % n];
}

static struct input input_next(void)
{
	struct input input = {}, other;
	int i, n;

	if (f->next < f->ncorpus)
		return f->corpus[f->next++];
	if (f->ncorpus && t_random(&f->seed) % 16)
		input = *corpus_pick();
	if (f->ncorpus && !(t_random(&f->seed) % 8)) {
		other = *corpus_pick();
		input.n = text_cross(input.data, input.n, other.data, other.n, input.data,
				     MAX_INPUT, t_random(&f->seed));
	}
	n = input.n ? t_random(&f->seed) % 3 + 1 : 6;
	for (i = 0; i < n; i++)
		input.n = text_mutate(input.data, input.n, MAX_INPUT, t_random(&f->seed));
	return input;
}

static void execute(const struct input *input)
{
	struct call call;
	size_t at;

	remember(input);
	far_world_begin();
	for (at = 0; at + sizeof(call) <= input->n; at += sizeof(call)) {
		memcpy(&call, input->data + at, sizeof(call));
		op_of(call.op)->run(call.a);
	}
	far_world_end();
	f->execs++;
	log_check();
}

static void batch_run(void)
{
	struct input input;
	unsigned int next;
	int i;

	far_world_open();
	for (i = 0; i < BATCH && (f->next < f->ncorpus || time(NULL) < until); i++) {
		next = f->next;
		input = input_next();
		execute(&input);
		if (cover_is_new() && f->next == next)
			corpus_add(&input, true);
	}
	far_world_close();
	_exit(0);
}

static void replay_run(void)
{
	unsigned int i;

	far_world_open();
	for (i = 0; i < f->ncorpus * REPEATS; i++)
		execute(&f->corpus[i % f->ncorpus]);
	far_world_close();
	_exit(0);
}

/* Wait until the process has ended, as long as it executes inputs. */
static void batch_wait(pid_t pid)
{
	unsigned long execs = f->execs;
	int ms = 0, status;

	while (!waitpid(pid, &status, WNOHANG)) {
		ms = f->execs == execs ? ms + 10 : 0;
		execs = f->execs;
		if (ms > INPUT_MS) {
			printf("%s\n", t_shell("sed s/^/#\\ / /proc/%d/task/*/stack", pid));
			FAIL("input %lu hangs", execs);
		}
		usleep(10000);
	}
	if (status)
		FAIL("the process of input %lu ends with status 0x%x", execs, status);
}

/*
 * Does the victim still have objects of a process, a link that somebody uses, or a group that is
 * not one of the honest members?
 */
static bool is_left(pid_t pid)
{
	char *links = t_read_file(LINKS), *at, groups[40];
	struct tree tree;
	bool left;
	int i;

	at = strstr(links, "to ::ffff:10.9.1.2 ");
	left = at && strncmp(at, "to ::ffff:10.9.1.2 users 0 ", 27);
	free(links);
	sprintf(groups, "groups %d attached %d ", HONEST_GROUPS, HONEST_GROUPS);
	left |= strncmp(groups_of(0), groups, strlen(groups));
	tree_read(DEVICE, &tree);
	for (i = 0; i < tree.count; i++)
		left |= tree.objs[i].pid == pid;
	tree_free(&tree);
	return left;
}

static void batch(void (*run)(void))
{
	pid_t pid = SYS(fork());
	int ms;

	if (!pid)
		run();
	batch_wait(pid);
	for (ms = 0; is_left(pid); ms += 10) {
		if (ms > LEFT_MS)
			FAIL("something is left after input %lu: %s", f->execs,
			     t_shell("cat " LINKS));
		usleep(10000);
	}
}

/* Without the stranger, and without the honest pair, nothing is there any more. */
static void check_empty(void)
{
	char why[200], *links;
	int ms;

	for (ms = 0;; ms += 100) {
		links = t_read_file(LINKS);
		if (!*links && tree_is_empty(DEVICE, why, sizeof(why)))
			break;
		if (ms > IDLE_MS)
			FAIL("left at the end: %s", *links ? links : why);
		free(links);
		usleep(100000);
	}
	free(links);
}

static void begin(void)
{
	int i;

	folder = getenv("FAR_FUZZ_DIR");
	started = time(NULL);
	f = mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(f != MAP_FAILED);
	f->seed = started * 0x9e3779b97f4a7c15ULL | 1;
	hosts_up();
	stranger_net_up();
	forger_net_up();
	for (i = 0; i < W_GROUPS; i++) {
		host_joins(0, &world_groups[i]);
		host_joins(1, &world_groups[i]);
	}
	log_open();
	cover_open();
}

static void report(void)
{
	time_t took = time(NULL) - started + 1;

	/* A replay has not looked for it. */
	cover_is_new();
	cover_print();
	t_note("total: %lu inputs in %ld s, corpus %u, %d of %d branches of links", f->execs,
	       (long)took, f->ncorpus, cover_count(), cover_total());
}

static void fuzz(void)
{
	long before, after;
	pid_t honest;

	corpus_read_all();
	honest = honest_start();
	honest_check(honest);
	before = t_kmalloc();
	/* The known inputs are executed in any case. */
	until = time(NULL) + atoi(getenv("FAR_FUZZ_SECONDS") ?: "20");
	while (f->next < f->ncorpus || time(NULL) < until) {
		batch(batch_run);
		honest_check(honest);
	}
	CHECK(f->execs > 0);
	honest_end(honest);
	check_empty();
	log_check();
	after = t_kmalloc();
	report();
	t_note("the slabs have grown by %ld KiB", (after - before) / 1024);
	CHECK(after - before < SLAB_GROWTH);
}

static void replay(const char *dir)
{
	char pattern[300];
	pid_t honest;

	snprintf(pattern, sizeof(pattern), "%s/*.calls", dir);
	corpus_read(pattern);
	CHECK(f->ncorpus > 0);
	honest = honest_start();
	batch(replay_run);
	honest_check(honest);
	honest_end(honest);
	check_empty();
	log_check();
	report();
}

TEST_SLOW(frames, "HOST-3", "whatever a host sends, the kernel reports no error, and other links go on", LIMIT)
{
	const char *dir = getenv("FAR_FUZZ_REPLAY");

	begin();
	if (dir)
		replay(dir);
	else
		fuzz();
}
