// SPDX-License-Identifier: GPL-2.0
/*
 * Inputs are executed in a process of its own, which the fuzzer starts again if
 * it ends. These are findings, and end the guest: a report of the kernel, a
 * process that cannot be killed, and an object that outlives its input. See
 * watch.h.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"
#include "kernel_log.h"
#include "report.h"
#include "watch.h"

/* Seconds that an input may take, and that a killed process may take to end. */
#define PATIENCE	30
#define PATIENCE_KILL	30
#define OBJECTS		"/sys/kernel/debug/keel/keel0/objects"
#define TEXT		"/sys/module/keel/sections/.text"

struct shared *sh;
static pid_t executor;
static bool guest;

void watch_alloc(void)
{
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED ||
	    mmap(counters, COUNTERS, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
		perror("fuzz: mmap");
		exit(2);
	}
}

/* A file that a check needs. */
static FILE *need(const char *path)
{
	FILE *f = fopen(path, "r");

	if (!f && guest) {
		fprintf(stderr, "fuzz: a check is impossible without %s\n", path);
		exit(2);
	}
	return f;
}

void watch_init(void)
{
	const char *why, *reports = getenv("FUZZ_REPORTS");
	FILE *text, *objects, *kcov;
	unsigned long long at;

	guest = getenv("FUZZ_GUEST");
	text = need(TEXT);
	objects = need(OBJECTS);
	kcov = need(KCOV_FILE);
	if (text && fscanf(text, "%llx", &at) == 1)
		sh->text = at;
	why = reports || guest ? kernel_log_open(reports) : NULL;
	if (why) {
		fprintf(stderr, "fuzz: a check of the kernel log is impossible: %s\n", why);
		exit(2);
	}
	if (text)
		fclose(text);
	if (objects)
		fclose(objects);
	if (kcov)
		fclose(kcov);
}

void watch_finding(const char *what)
{
	FILE *f = fopen("/dev/kmsg", "w");

	if (f) {
		fprintf(f, "<0>BUG: keel-fuzz: %s\n", what);
		fclose(f);
	}
	fprintf(stderr, "fuzz: %s\n", what);
	sync();
	usleep(200000);
	if (getenv("FUZZ_GUEST"))
		reboot(RB_POWER_OFF);
	_exit(3);
}

/* Not all reports of the kernel make it panic. */
static void check_log(void)
{
	const char *text = kernel_log_report();

	if (text)
		watch_finding(text);
}

/* Objects may live a little longer, because the kernel's thread has them. */
static void check_objects(void)
{
	char text[160];
	int i, fd;
	ssize_t n = 0;

	for (i = 0; i < 5000; i++) {
		fd = open(OBJECTS, O_RDONLY | O_CLOEXEC);
		if (fd < 0 && guest)
			watch_finding("the list of objects cannot be read");
		n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
		if (fd >= 0)
			close(fd);
		if (!n)
			return;
		if (n < 0)
			watch_finding("the list of objects cannot be read");
		usleep(1000);
	}
	text[n] = 0;
	fprintf(stderr, "fuzz: left: %s\n", text);
	watch_finding("an object outlives its input");
}

static void start_executor(void)
{
	pid_t me = getpid();

	atomic_store(&sh->dies, false);
	executor = fork();
	if (executor < 0)
		watch_finding("fork");
	if (executor)
		return;
	/* It ends with the fuzzer. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != me)
		_exit(0);
	exec_run();
}

void watch_count_end(int status)
{
	bool fault = atomic_load(&sh->fault);

	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
		fprintf(stderr, "fuzz: a child hung\n");
		atomic_fetch_add(&sh->late, 1);
		return;
	}
	fprintf(stderr, "fuzz: a process of the input ended with status 0x%x%s\n",
		status, fault ? " after a fault" : "");
	atomic_fetch_add(fault && WIFSIGNALED(status) ? &sh->spoiled : &sh->died, 1);
}

/* Has the process ended? */
static bool reaped(void)
{
	int status;

	if (waitpid(executor, &status, WNOHANG) != executor)
		return false;
	executor = 0;
	if (!atomic_load(&sh->dies) || !WIFSIGNALED(status) ||
	    WTERMSIG(status) != SIGKILL)
		watch_count_end(status);
	return true;
}

static void print_stacks(void)
{
	char command[128];

	snprintf(command, sizeof(command),
		 "tail -n +1 /proc/%d/task/*/stack /proc/%d/task/*/status >&2",
		 executor, executor);
	if (system(command))
		fprintf(stderr, "fuzz: no stacks\n");
}

/* The process is late: it must at least be possible to kill it. */
static void kill_executor(void)
{
	int i;

	fprintf(stderr, "fuzz: the input is not done after %d s\n", PATIENCE);
	print_stacks();
	atomic_fetch_add(&sh->late, 1);
	atomic_store(&sh->dies, true);
	kill(executor, SIGKILL);
	for (i = 0; i < PATIENCE_KILL * 10; i++) {
		if (reaped())
			return;
		usleep(100000);
	}
	print_stacks();
	watch_finding("a process hangs in the kernel");
}

/* Wait until the input is executed, or its process has ended. */
static void wait_done(unsigned int turn)
{
	struct timespec t = { .tv_nsec = 100000000 };
	int i;

	for (i = 0; i < PATIENCE * 10; i++) {
		if (atomic_load(&sh->done) != turn)
			return;
		syscall(SYS_futex, &sh->done, FUTEX_WAIT, turn, &t, NULL, 0);
		if (atomic_load(&sh->done) == turn && reaped())
			break;
	}
	if (executor)
		kill_executor();
	atomic_store(&sh->done, turn + 1);
}

bool watch_input(const uint8_t *data, size_t size)
{
	unsigned long long odd = sh->late + sh->died;
	unsigned int turn = atomic_load(&sh->turn);
	bool good;

	if (!executor)
		start_executor();
	atomic_store(&sh->fault, false);
	sh->len = size > MAX_INPUT ? MAX_INPUT : size;
	memcpy(sh->input, data, sh->len);
	atomic_store(&sh->turn, turn + 1);
	syscall(SYS_futex, &sh->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
	wait_done(turn);
	good = sh->late + sh->died == odd;
	if (!good)
		report_ended(data, size);
	check_objects();
	check_log();
	return good;
}
