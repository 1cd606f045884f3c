// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * scale DEVICE GID-INDEX KIND SECONDS ALIVE...: what an object costs, one JSON object.
 *
 * "levels" has an element for each number ALIVE of objects of this kind, from the least
 * to the greatest: "us", the time to create and destroy one more; "kernel" and "user", the
 * bytes that each object alive takes in the kernel, and in the process. Where a number
 * cannot be reached, "ended" says why.
 *
 * scale DEVICE GID-INDEX KIND SECONDS processes: "one" and "two" have the pairs a second of
 * one process, and of two at the same time.
 *
 * If the device has no such objects, "missing" says with which error it refuses.
 */
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kind.h"

/* Each figure is the median of so many. */
#define PIECES		15
/* No number alive may take longer than this. */
#define MOST_SECONDS	240
/* Memory that the machine keeps. */
#define RESERVE		(512 * MIB)
#define PROCESSES	2

struct world world;

void *keel_call(const char *name)
{
	void *library = dlopen("libkeel.so.1", RTLD_NOW), *call = NULL;

	if (library && !strncmp(world.name, "keel", 4))
		call = dlsym(library, name);
	if (!call)
		errno = EOPNOTSUPP;
	return call;
}

static const struct kind *kind_of(const char *name)
{
	const struct kind *const all[] = {
		domain_kinds, memory_kinds, queue_kinds, floor_kinds
	};
	const struct kind *kind;
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(*all); i++)
		for (kind = all[i]; kind->name; kind++)
			if (!strcmp(kind->name, name))
				return kind;
	errno = 0;
	die("there is no kind %s", name);
}

/* Prints why, and ends, if the device has no such objects. */
static void open_world(const struct kind *kind)
{
	void *first = NULL;

	if (strncmp(kind->name, "floor", 5)) {
		world.ctx = open_device(world.name);
		world.pd = ibv_alloc_pd(world.ctx);
		if (!world.pd)
			die("PD");
	}
	if (!kind->prepare || !kind->prepare())
		first = kind->make();
	if (!first) {
		printf("{\"missing\": \"%s\"}\n", strerror(errno));
		exit(0);
	}
	errno = kind->unmake(first);
	if (errno)
		die("destroying the first object");
}

static void pair(const struct kind *kind)
{
	void *obj = kind->make();

	if (!obj)
		die("creating one more");
	errno = kind->unmake(obj);
	if (errno)
		die("destroying it");
}

static int by_value(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

/* Microseconds of a pair. */
static double pair_cost(const struct kind *kind, double seconds)
{
	double cost[PIECES], start, took;
	int i, n;

	/* The first ones fill the allocators' caches. */
	for (i = 0; i < 4; i++)
		pair(kind);
	for (i = 0; i < PIECES; i++) {
		start = now();
		n = 0;
		do {
			pair(kind);
			n++;
			took = now() - start;
		} while (took < seconds / PIECES);
		cost[i] = took / n * 1e6;
	}
	qsort(cost, PIECES, sizeof(*cost), by_value);
	return cost[PIECES / 2];
}

static double available_bytes(void)
{
	static const char *const names[] = { "MemAvailable", NULL };

	return meminfo(names);
}

static double user_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long size, resident;

	if (!file || fscanf(file, "%ld %ld", &size, &resident) != 2)
		die("/proc/self/statm");
	fclose(file);
	return resident * (double)PAGE;
}

/**
 * struct crowd - objects that are alive
 * @objs: room for the greatest number
 * @n: how many there are
 * @kernel: kernel_bytes() before the first one
 * @user: user_bytes() likewise
 */
struct crowd {
	void **objs;
	long n;
	double kernel, user;
};

/* Until there are @most. Returns NULL, or why there are less. */
static const char *crowd_grow(struct crowd *crowd, const struct kind *kind, long most)
{
	double start = now(), least = available_bytes();
	static char why[100];
	long first = crowd->n;

	while (crowd->n < most) {
		crowd->objs[crowd->n] = kind->make();
		if (!crowd->objs[crowd->n]) {
			snprintf(why, sizeof(why), "%s at %ld", strerror(errno), crowd->n);
			return why;
		}
		crowd->n++;
		if (crowd->n % 256)
			continue;
		least = available_bytes();
		if (least < RESERVE) {
			snprintf(why, sizeof(why), "no memory left at %ld", crowd->n);
			return why;
		}
		if (now() - start > MOST_SECONDS) {
			snprintf(why, sizeof(why), "%ld took %d s", crowd->n - first,
				 MOST_SECONDS);
			return why;
		}
	}
	return NULL;
}

static void levels(const struct kind *kind, double seconds, int n, char **alive)
{
	struct crowd crowd = {};
	const char *why = NULL;
	int i;

	crowd.objs = calloc(atol(alive[n - 1]) + 1, sizeof(*crowd.objs));
	if (!crowd.objs)
		die("no memory");
	pair_cost(kind, seconds);
	/* Objects that were destroyed are freed after a grace period, some of it later. */
	sleep(1);
	crowd.kernel = kernel_bytes();
	crowd.user = user_bytes();
	printf("{\"levels\": [");
	for (i = 0; i < n; i++) {
		why = crowd_grow(&crowd, kind, atol(alive[i]));
		if (why)
			break;
		/* Before the pairs: they leave objects to be freed. */
		printf("%s{\"alive\": %ld, \"kernel\": %.0f, \"user\": %.0f", i ? ", " : "",
		       crowd.n, (kernel_bytes() - crowd.kernel) / (crowd.n ?: 1),
		       (user_bytes() - crowd.user) / (crowd.n ?: 1));
		printf(", \"us\": %.3f}", pair_cost(kind, seconds));
		fflush(stdout);
	}
	printf("]");
	if (why)
		printf(", \"ended\": \"%s\"", why);
	printf("}\n");
	fflush(stdout);
	/* The end of the process destroys them all, each in the way that is best. */
}

struct shared {
	int ready;
	int go;
	double rate[PROCESSES];
};

static void wait_for(const int *what, int want)
{
	while (__atomic_load_n(what, __ATOMIC_ACQUIRE) < want)
		usleep(1000);
}

static void process(struct shared *shared, int self, const struct kind *kind, double seconds)
{
	double start;
	long n = 0;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL))
		die("prctl()");
	open_world(kind);
	pair_cost(kind, seconds / 10);
	__atomic_add_fetch(&shared->ready, 1, __ATOMIC_ACQ_REL);
	wait_for(&shared->go, 1);
	start = now();
	do {
		pair(kind);
		n++;
	} while (now() - start < seconds);
	shared->rate[self] = n / (now() - start);
	exit(0);
}

/* The pairs a second of @n processes together. */
static double rate(const struct kind *kind, int n, double seconds)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int i, status;
	double sum = 0;

	if (shared == MAP_FAILED)
		die("no memory");
	for (i = 0; i < n; i++)
		if (!fork())
			process(shared, i, kind, seconds);
	while (__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE) < n) {
		errno = 0;
		/* The others end with this process. */
		if (waitpid(-1, &status, WNOHANG) > 0)
			die("a process ended");
		usleep(1000);
	}
	__atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
	for (i = 0; i < n; i++) {
		errno = 0;
		if (wait(&status) < 0 || status)
			die("a process failed");
	}
	for (i = 0; i < n; i++)
		sum += shared->rate[i];
	return sum;
}

int main(int argc, char **argv)
{
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	const struct kind *kind;
	double seconds;

	if (argc < 6)
		die("usage: scale DEVICE GID-INDEX KIND SECONDS ALIVE...|processes");
	world.name = argv[1];
	world.gid_index = atoi(argv[2]);
	kind = kind_of(argv[3]);
	seconds = atof(argv[4]);
	if (setrlimit(RLIMIT_MEMLOCK, &all))
		die("RLIMIT_MEMLOCK");
	if (!strcmp(argv[5], "processes")) {
		double one = rate(kind, 1, seconds);

		printf("{\"one\": %.1f, \"two\": %.1f}\n", one,
		       rate(kind, PROCESSES, seconds));
		return 0;
	}
	open_world(kind);
	levels(kind, seconds, argc - 5, argv + 5);
	return 0;
}
