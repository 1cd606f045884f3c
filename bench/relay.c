// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * relay CONTEXT DEVICE GID-INDEX DEVICE GID-INDEX ROW COUNT: messages from the first device to the
 * second one by the module of carrier/, and how fast they are. CONTEXT, thread or softirq, handles
 * completions. A process for each side polls, as those of perftest do. ROW and COUNT are as in
 * across, which calls this. Prints JSON.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "carrier/carrier.h"

#define NODE		"/dev/keel_carrier"
/* The most seconds that this takes. */
#define PATIENCE	50
/* Long messages that have not completed. */
#define LONG_DEPTH	8U

/*
 * name: the row
 * bytes: of a message
 * run: measures the row; returns the value
 * serve: what the process of side 1 does, or NULL: it ends
 */
struct row {
	const char *name;
	__u32 bytes;
	double (*run)(const struct row *row, int count);
	void (*serve)(const struct row *row, int count);
};

static int node;
/* Of the side that this process has. */
static __u32 side;
static const struct carrier_page *page;
/*
 * Memory of all processes.
 * first, last: when the first message was posted, and when the last one had arrived, or 0
 * value: of the row
 * seconds: that a message takes
 */
static struct shared {
	double first, last, value, seconds;
} *shared;

static void post(enum carrier_op op, __u32 bytes)
{
	struct carrier_post what = { .side = side, .op = op, .bytes = bytes };

	if (ioctl(node, CARRIER_IOC_POST, &what))
		die("message of side %u", side);
}

/* Wait until a counter of the page is @n. */
static void await(const __u64 *counter, __u64 n)
{
	__u64 failed;

	while (__atomic_load_n(counter, __ATOMIC_ACQUIRE) < n) {
		failed = __atomic_load_n(&page->failed, __ATOMIC_RELAXED);
		errno = 0;
		if (failed)
			die("side %u: a message completed with status %llu", side, failed);
	}
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* The other side answers each message. */
static double run_pingpong(const struct row *row, int count)
{
	double *took = calloc(count, sizeof(*took));
	double start, typical;
	int i;

	if (!took)
		die("no memory");
	for (i = 0; i < count; i++) {
		start = now();
		post(CARRIER_SEND, row->bytes);
		await(&page->received, i + 1);
		took[i] = now() - start;
	}
	qsort(took, count, sizeof(*took), compare);
	typical = took[count / 2];
	free(took);
	return typical / 2 * 1e6;
}

static void serve_pingpong(const struct row *row, int count)
{
	int i;

	for (i = 0; i < count; i++) {
		await(&page->received, i + 1);
		post(CARRIER_SEND, row->bytes);
	}
}

/* Millions a second, until the last one has arrived: serve_sends(). */
static double run_sends(const struct row *row, int count)
{
	double last = 0;
	int i;

	shared->first = now();
	for (i = 0; i < count; i++) {
		if (i >= (int)CARRIER_DEPTH)
			await(&page->sent, i + 1 - CARRIER_DEPTH);
		post(CARRIER_SEND, row->bytes);
	}
	while (!last)
		__atomic_load(&shared->last, &last, __ATOMIC_ACQUIRE);
	return count / (last - shared->first) * 1e-6;
}

static void serve_sends(const struct row *row, int count)
{
	double last;

	(void)row;
	await(&page->received, count);
	last = now();
	__atomic_store(&shared->last, &last, __ATOMIC_RELEASE);
}

static double run_rdma(enum carrier_op op, const struct row *row, int count)
{
	double start = now();
	int i;

	for (i = 0; i < count; i++) {
		if (i >= (int)LONG_DEPTH)
			await(&page->sent, i + 1 - LONG_DEPTH);
		post(op, row->bytes);
	}
	await(&page->sent, count);
	return (double)count * row->bytes / (now() - start) / (1 << 20);
}

static double run_writes(const struct row *row, int count)
{
	return run_rdma(CARRIER_WRITE, row, count);
}

static double run_reads(const struct row *row, int count)
{
	return run_rdma(CARRIER_READ, row, count);
}

static const struct row rows[] = {
	{ "write_bw_1m", CARRIER_BYTES, run_writes, NULL },
	{ "read_bw_1m", CARRIER_BYTES, run_reads, NULL },
	{ "send_lat_64", 64, run_pingpong, serve_pingpong },
	{ "send_bw_64", 64, run_sends, serve_sends },
};

static const struct row *row_of(const char *name)
{
	unsigned int i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strcmp(rows[i].name, name))
			return &rows[i];
	errno = 0;
	die("no row %s", name);
}

static __attribute__((noreturn)) void usage(void)
{
	errno = 0;
	die("usage: relay thread|softirq DEVICE GID-INDEX DEVICE GID-INDEX ROW COUNT");
}

/* Both sides have a QP from here on. */
static void connect_sides(char *const *args)
{
	struct carrier_connect how = {};
	int i;

	if (!strcmp(*args, "softirq"))
		how.context = CARRIER_SOFTIRQ;
	else if (strcmp(*args, "thread"))
		usage();
	args++;
	node = open(NODE, O_RDWR | O_CLOEXEC);
	if (node < 0)
		die("%s", NODE);
	for (i = 0; i < 2; i++) {
		snprintf(how.devices[i].name, CARRIER_NAME, "%s", args[2 * i]);
		how.devices[i].gid_index = atoi(args[2 * i + 1]);
	}
	if (ioctl(node, CARRIER_IOC_CONNECT, &how))
		die("connect %s and %s", args[0], args[2]);
}

/* This process is that of a side. */
static void take_side(__u32 which)
{
	long size = sysconf(_SC_PAGESIZE);

	side = which;
	page = mmap(NULL, size, PROT_READ, MAP_SHARED, node, which * size);
	if (page == MAP_FAILED)
		die("counters");
	alarm(PATIENCE);
}

static void run_side(const struct row *row, int count)
{
	double start = now();

	if (side) {
		if (row->serve)
			row->serve(row, count);
		return;
	}
	shared->value = row->run(row, count);
	shared->seconds = (now() - start) / count;
}

/* Begin the process of a side. */
static pid_t start_side(const struct row *row, int count, __u32 which)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		die("fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	take_side(which);
	run_side(row, count);
	_exit(0);
}

/* If a process fails, the other one may wait for it. */
static void wait_for(const pid_t *pids)
{
	int i, status;
	pid_t pid;

	for (i = 0; i < 2; i++) {
		pid = wait(&status);
		if (pid < 0)
			die("wait");
		if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
			fprintf(stderr, "relay: not through after %d s\n", PATIENCE);
		if (!status)
			continue;
		if (!i)
			kill(pids[pid == pids[0]], SIGKILL);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	const struct row *row;
	pid_t pids[2];
	int count;

	count = argc == 8 ? atoi(argv[7]) : 0;
	if (count < 1)
		usage();
	row = row_of(argv[6]);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("memory");
	connect_sides(argv + 1);
	pids[1] = start_side(row, count, 1);
	pids[0] = start_side(row, count, 0);
	wait_for(pids);
	printf("{\"value\": %.6g, \"seconds\": %.6g}\n", shared->value, shared->seconds);
	return 0;
}
