// SPDX-License-Identifier: GPL-2.0
/*
 * model [--seed N] [--seeds N] [--steps N] [--save DIR] [--no-shrink] [--talk]
 * model --replay FILE...
 *
 * Walk at random, and compare keel with the model. Prints TAP. A divergence is
 * shrunk, and the shortest sequence printed and written to DIR. --replay runs such
 * files; of a single one, it also prints what each step does.
 *
 * Exit status: 1 if anything diverged, 2 if the program cannot work.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "model.h"

#define IDS	"PD-2,PD-3,PD-4,TD-2,PDM-3,PDM-9,XRC-7,SPD-3,SPD-6,SPD-9,DM-5,DM-7,DM-8,DM-10,DEV-4"

/* The sums of all walks. */
static struct result sum;
static int cases, failures;

static void ok(bool good, const char *title, const char *why)
{
	cases++;
	failures += !good;
	printf("%sok %d - %s%s%s\n", good ? "" : "not ", cases, title,
	       good ? "" : "  # ", good ? "" : why);
	fflush(stdout);
}

static void add_result(void)
{
	const long *from = (const long *)result;
	long *to = (long *)&sum;
	size_t i;

	for (i = 0; i < offsetof(struct result, diverged) / sizeof(long); i++)
		to[i] += from[i];
}

static double seconds_since(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec - start->tv_sec +
	       (now.tv_nsec - start->tv_nsec) / 1e9;
}

static long percent(long part, long of)
{
	return of ? part * 100 / of : 0;
}

/* --- walks ----------------------------------------------------------------- */

static void save(const char *dir, uint64_t seed, const struct step *steps,
		 long n, const char *text)
{
	char path[400];
	FILE *f;
	long i;
	int j;

	snprintf(path, sizeof(path), "%s/seed-%lu.steps", dir,
		 (unsigned long)seed);
	f = fopen(path, "we");
	if (!f) {
		perror(path);
		return;
	}
	fprintf(f, "# SPDX-License-Identifier: GPL-2.0\n# %s\n", text);
	for (i = 0; i < n; i++) {
		fprintf(f, "%s", ops[steps[i].op].name);
		for (j = 0; j < STEP_ARGS; j++)
			fprintf(f, " %u", steps[i].a[j]);
		fprintf(f, "\n");
	}
	fclose(f);
}

static bool no_shrink, talk_all;

/* @text is changed to that of the shortest sequence. */
static void report_divergence(const char *dir, uint64_t seed,
			      struct step *steps, long n,
			      char text[sizeof(result->text)])
{
	printf("# seed %lu diverged at step %ld: %s\n", (unsigned long)seed,
	       result->at, result->text);
	fflush(stdout);
	if (no_shrink)
		return;
	n = shrink(steps, n);
	printf("# the shortest sequence has %ld steps:\n", n);
	/* The last run shows what the steps do. */
	if (!objects_left()) {
		run_steps(steps, n, true);
		strcpy(text, result->text);
	}
	printf("# %s\n", text);
	if (dir)
		save(dir, seed, steps, n, text);
}

static void walk(uint64_t seed, long n, const char *dir)
{
	struct step *steps = malloc(n * sizeof(*steps));
	struct timespec start;
	char title[400], text[sizeof(result->text)];
	uint64_t random = seed;
	bool bad;
	long i;

	if (!steps) {
		perror("model");
		exit(2);
	}
	for (i = 0; i < n; i++)
		steps[i] = step_random(&random);
	clock_gettime(CLOCK_MONOTONIC, &start);
	bad = run_steps(steps, n, talk_all);
	add_result();
	printf("# seed %lu: %ld steps, %.0f a second\n", (unsigned long)seed,
	       result->steps, result->steps / seconds_since(&start));
	snprintf(title, sizeof(title), IDS ": seed %lu: %ld steps agree with the model",
		 (unsigned long)seed, n);
	strcpy(text, result->text);
	if (bad)
		report_divergence(dir, seed, steps, n, text);
	ok(!bad, title, text);
	free(steps);
}

static void report(void)
{
	char missing[600] = "";
	long calls = sum.good + sum.refused;
	int i;

	printf("# total: %ld steps\n", sum.steps);
	printf("# %ld calls succeeded and %ld were refused: %ld %%; %ld steps had nothing to do\n",
	       sum.good, sum.refused, percent(sum.good, calls), sum.idle);
	printf("# send work requests: %ld of %ld succeeded: %ld %%\n",
	       sum.sends_good, sum.sends, percent(sum.sends_good, sum.sends));
	printf("# receive work requests: %ld of %ld succeeded: %ld %%\n",
	       sum.recvs_good, sum.recvs, percent(sum.recvs_good, sum.recvs));
	printf("# completions:");
	for (i = 0; i < COUNT(sum.by_status); i++)
		if (sum.by_status[i])
			printf(" %ld %s;", sum.by_status[i],
			       ibv_wc_status_str(i));
	printf("\n# %ld comparisons of all objects; %ld messages to themselves\n",
	       sum.trees, sum.adopted);
	for (i = 0; ops[i].name; i++)
		if (!sum.good_by_op[i])
			snprintf(missing + strlen(missing),
				 sizeof(missing) - strlen(missing), " %s",
				 ops[i].name);
	ok(!*missing, "DEV-4: each operation succeeds at least once", missing);
	ok(sum.sends && sum.sends_good * 2 >= sum.sends,
	   "DEV-4: at least half of the send work requests succeed",
	   "see above");
}

/* --- replays --------------------------------------------------------------- */

static long load(const char *path, struct step **steps)
{
	char line[200];
	long n = 0, room = 0;
	FILE *f = fopen(path, "re");
	int ret;

	*steps = NULL;
	if (!f) {
		perror(path);
		exit(2);
	}
	while (fgets(line, sizeof(line), f)) {
		if (n == room) {
			room = room ? 2 * room : 64;
			*steps = realloc(*steps, room * sizeof(**steps));
		}
		ret = step_parse(line, &(*steps)[n]);
		if (ret < 0) {
			fprintf(stderr, "model: %s: not a step: %s", path,
				line);
			exit(2);
		}
		n += ret;
	}
	fclose(f);
	if (!n) {
		fprintf(stderr, "model: %s: no steps\n", path);
		exit(2);
	}
	return n;
}

static void replay(const char *path, bool talk)
{
	const char *name = strrchr(path, '/');
	struct step *steps;
	char title[400];
	long n = load(path, &steps);
	bool bad = run_steps(steps, n, talk);

	snprintf(title, sizeof(title), "DEV-4: %s: %ld steps agree with the model",
		 name ? name + 1 : path, n);
	ok(!bad, title, result->text);
	free(steps);
}

/* --- options --------------------------------------------------------------- */

static void usage(void)
{
	fprintf(stderr, "usage: model [--seed N] [--seeds N] [--steps N] [--save DIR] [--no-shrink] [--talk]\n"
		"       model --replay FILE...\n");
	exit(2);
}

static long number(const char *text)
{
	char *end;
	long n = strtol(text, &end, 0);

	if (*end || n < 1)
		usage();
	return n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "seeds", required_argument, NULL, 'n' },
		{ "steps", required_argument, NULL, 'c' },
		{ "save", required_argument, NULL, 'd' },
		{ "replay", no_argument, NULL, 'r' },
		{ "no-shrink", no_argument, NULL, 'l' },
		{ "talk", no_argument, NULL, 't' },
		{ }
	};
	long seed = 1, seeds = 1, steps = 100000, i;
	const char *dir = NULL;
	bool replays = false;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 's')
			seed = number(optarg);
		else if (opt == 'n')
			seeds = number(optarg);
		else if (opt == 'c')
			steps = number(optarg);
		else if (opt == 'd')
			dir = optarg;
		else if (opt == 'r')
			replays = true;
		else if (opt == 'l')
			no_shrink = true;
		else if (opt == 't')
			talk_all = true;
		else
			usage();
	}
	if (replays ? optind == argc : optind != argc)
		usage();
	result = mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (result == MAP_FAILED) {
		perror("model");
		return 2;
	}
	for (i = optind; i < argc; i++)
		replay(argv[i], argc - optind == 1);
	for (i = 0; !replays && i < seeds; i++)
		walk(seed + i, steps, dir);
	if (!replays)
		report();
	printf("1..%d\n", cases);
	return failures > 0;
}
