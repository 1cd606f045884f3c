// SPDX-License-Identifier: GPL-2.0
/*
 * Run steps in child processes, and shrink a sequence that diverges.
 */
#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "model.h"

#define TREE		"/sys/kernel/debug/keel/keel0/objects"
#define DEVICE		"keel0"
/* Seconds without a new step, after which a child hangs. */
#define HANGS		90
/* Steps between two comparisons of all objects. */
#define COMPARE		50
#define SHRINK_SECONDS	900

int patience_ms = 20000;

static struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	int i;

	for (i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), DEVICE))
			ctx = ibv_open_device(list[i]);
	if (!ctx)
		diverge("cannot open " DEVICE);
	return ctx;
}

static void begin(void)
{
	world.ctx[0] = open_device();
	world.ctx[1] = open_device();
	world.ctx[2] = ibv_import_device(dup(world.ctx[0]->cmd_fd));
	if (!world.ctx[2])
		diverge("cannot import " DEVICE);
	if (ibv_query_gid(world.ctx[0], 1, 0, &world.gid))
		diverge(DEVICE " has no GID");
	bytes_init();
	wire_init();
}

static void end(void)
{
	int i;

	world.loose = true;
	for (i = 0; i < world.n[K_CQ]; i++)
		cq_poll(world.live[K_CQ][i], CQ_MAX);
	settle();
	tree_compare();
}

static void run_one(const struct step *s)
{
	long good = result->good, refused = result->refused;

	if (world.talk) {
		printf("%5ld: ", world.step);
		step_print(s);
	}
	world.loose = false;
	ops[s->op].run(s->a);
	result->by_op[s->op]++;
	result->good_by_op[s->op] += result->good > good &&
				     result->refused == refused;
	if (world.talk)
		printf("\n");
}

static void child(const struct step *steps, long n, bool talk)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	world.talk = talk;
	alarm(HANGS);
	begin();
	for (world.step = 0; world.step < n; world.step++) {
		result->steps = world.step;
		alarm(HANGS);
		run_one(&steps[world.step]);
		if (world.step % COMPARE == COMPARE - 1)
			tree_compare();
	}
	world.step = n - 1;
	alarm(HANGS);
	end();
	if (world.talk)
		printf("\n");
	result->steps = n;
	fflush(stdout);
	_exit(0);
}

/* A run has left objects in the kernel. */
static bool left;

/* The kernel destroys the objects of a process that has ended. */
static bool nothing_left(void)
{
	char line[200] = "";
	FILE *f;
	int ms;

	for (ms = 0; ms < 10000; ms += 10) {
		f = fopen(TREE, "re");
		if (!f)
			break;
		if (!fgets(line, sizeof(line), f)) {
			fclose(f);
			return true;
		}
		fclose(f);
		usleep(10000);
	}
	if (!result->diverged)
		snprintf(result->text, sizeof(result->text), "left behind: %s",
			 line);
	return false;
}

static bool run_clean(const struct step *steps, long n, bool talk)
{
	int status = 0;
	pid_t pid;

	memset(result, 0, sizeof(*result));
	fflush(stdout);
	pid = fork();
	if (!pid)
		child(steps, n, talk);
	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		perror("model: cannot run a child");
		exit(2);
	}
	if (!result->diverged && status) {
		result->diverged = true;
		result->at = result->steps < n ? result->steps : n - 1;
		snprintf(result->text, sizeof(result->text),
			 WIFSIGNALED(status) ? "killed by signal %d" :
					       "exit status %d",
			 WIFSIGNALED(status) ? WTERMSIG(status) :
					       WEXITSTATUS(status));
	}
	left = !nothing_left();
	if (left && !result->diverged) {
		result->diverged = true;
		result->at = n - 1;
	}
	return result->diverged;
}

bool run_steps(const struct step *steps, long n, bool talk)
{
	/* Objects of an earlier run would look like a fault of this one. */
	if (left) {
		printf("Bail out! objects are left behind, see above\n");
		fflush(stdout);
		exit(1);
	}
	return run_clean(steps, n, talk);
}

bool objects_left(void)
{
	return left;
}

/* Numbers of a divergence may change; its words may not. */
static void words_of(const char *text, char *words, size_t size)
{
	size_t n = 0;

	for (; *text && n < size - 1; text++) {
		if (!strncmp(text, "0x", 2)) {
			text += 1 + strspn(text + 2, "0123456789abcdef");
			continue;
		}
		if (!isdigit(*text))
			words[n++] = *text;
	}
	words[n] = '\0';
}

static bool still_diverges(const struct step *steps, long n, const char *words)
{
	char now[sizeof(result->text)];

	if (!run_steps(steps, n, false))
		return false;
	words_of(result->text, now, sizeof(now));
	return !strcmp(now, words);
}

long shrink(struct step *steps, long n)
{
	char words[sizeof(result->text)];
	struct step *rest = malloc(n * sizeof(*rest));
	time_t limit = time(NULL) + SHRINK_SECONDS;
	long chunk, at, cut, tries = 0;

	words_of(result->text, words, sizeof(words));
	n = result->at + 1;
	/* Each further run would find what this one has left. */
	if (left)
		goto out;
	/* Most of the sequences diverge, and would wait that long. */
	patience_ms = 2000;
	for (chunk = n / 2; chunk > 0 && !left && time(NULL) < limit;) {
		long before = n;

		for (at = n - chunk;
		     at > -chunk && !left && time(NULL) < limit;
		     at -= chunk) {
			long from = at < 0 ? 0 : at;

			cut = at < 0 ? at + chunk : chunk;
			if (cut > n - from)
				cut = n - from;
			if (cut <= 0 || cut == n)
				continue;
			memcpy(rest, steps, from * sizeof(*rest));
			memcpy(rest + from, steps + from + cut,
			       (n - from - cut) * sizeof(*rest));
			tries++;
			if (!still_diverges(rest, n - cut, words))
				continue;
			n = result->at + 1;
			memcpy(steps, rest, n * sizeof(*rest));
		}
		/* Single steps are tried again until none can go. */
		if (chunk > 1)
			chunk /= 2;
		else if (n == before)
			break;
		fprintf(stderr, "model: %ld steps left after %ld tries\n", n,
			tries);
	}
	patience_ms = 20000;
out:
	free(rest);
	return n;
}
