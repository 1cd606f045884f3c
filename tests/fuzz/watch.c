// SPDX-License-Identifier: GPL-2.0
/*
 * Inputs are executed in a process of its own, which the fuzzer starts again if
 * it ends. These are findings, and end the guest: a report of the kernel, a
 * process that cannot be killed, and an object that outlives its input. See
 * watch.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <regex.h>
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
static int kernel_log = -1;
static regex_t kernel_reports;

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
	FILE *f = path ? fopen(path, "r") : NULL;

	if (!f && guest) {
		fprintf(stderr, "fuzz: a check is impossible without %s\n",
			path ? path : "$FUZZ_REPORTS");
		exit(2);
	}
	return f;
}

/* A file of extended regular expressions becomes one of them. */
static void read_reports(FILE *f)
{
	char all[4096] = "", line[256];
	size_t n = 0;

	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (*line && *line != '#')
			n += snprintf(all + n, sizeof(all) - n, "%s%s",
				      n ? "|" : "", line);
		if (n >= sizeof(all))
			break;
	}
	if (f && (!n || n >= sizeof(all) ||
		  regcomp(&kernel_reports, all, REG_EXTENDED | REG_NOSUB))) {
		fprintf(stderr, "fuzz: bad patterns in $FUZZ_REPORTS\n");
		exit(2);
	}
}

void watch_init(void)
{
	FILE *text, *objects, *kcov, *reports;
	unsigned long long at;

	guest = getenv("FUZZ_GUEST");
	text = need(TEXT);
	objects = need(OBJECTS);
	kcov = need(KCOV_FILE);
	reports = need(getenv("FUZZ_REPORTS"));
	if (text && fscanf(text, "%llx", &at) == 1)
		sh->text = at;
	read_reports(reports);
	if (reports) {
		kernel_log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		if (kernel_log < 0 || lseek(kernel_log, 0, SEEK_END) < 0) {
			perror("fuzz: /dev/kmsg");
			exit(2);
		}
		fclose(reports);
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
	char record[8192], *text;
	ssize_t n;

	while (kernel_log >= 0) {
		n = read(kernel_log, record, sizeof(record) - 1);
		/* The kernel has overwritten the next record. */
		if (n < 0 && errno == EPIPE)
			continue;
		if (n <= 0)
			return;
		record[n] = 0;
		text = strchr(record, ';');
		if (!text)
			continue;
		text[strcspn(text, "\n")] = 0;
		if (!regexec(&kernel_reports, ++text, 0, NULL, 0))
			watch_finding(text);
	}
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
