// SPDX-License-Identifier: GPL-2.0
/*
 * Inputs are executed in a process of its own, which the fuzzer starts again if
 * it dies. The fuzzer watches it: a process that cannot be killed is a finding,
 * and so is an object that outlives its input.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proc.h"
#include "t.h"

#define THREADS		2
/* Seconds that an input may take, and that a killed process may take to end. */
#define PATIENCE	10
#define PATIENCE_KILL	30
#define OBJECTS		"/sys/kernel/debug/keel/keel0/objects"

struct shared *sh;
static pid_t executor;

/* A thread that waits for calls to run beside the main thread. */
struct worker {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	const struct call *calls;
	int n;
	bool busy;
	int fd;
	struct kcov kcov;
};

static struct worker workers[THREADS];
static __thread bool is_main;

/* tests/lib/raw.c needs these three. */
void t_fail(const char *file, int line, const char *fmt, ...)
{
	fprintf(stderr, "fuzz: %s:%d: %s\n", file, line, fmt);
	_exit(2);
}

const char *t_errname(int err)
{
	return strerror(err);
}

char *t_shell(const char *fmt, ...)
{
	return strdup("");
}

bool proc_is_main(void)
{
	return is_main;
}

static void futex_wait(atomic_uint *word, unsigned int old, int ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

	syscall(SYS_futex, word, FUTEX_WAIT, old, &t, NULL, 0);
}

static void futex_wake(atomic_uint *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void *worker_run(void *arg)
{
	struct worker *me = arg;

	kcov_open(&me->kcov);
	pthread_mutex_lock(&me->lock);
	for (;;) {
		while (!me->busy)
			pthread_cond_wait(&me->cond, &me->lock);
		pthread_mutex_unlock(&me->lock);
		kcov_start(&me->kcov);
		cmd_reset();
		cmd_set_fd(me->fd);
		run_calls(me->calls, me->n);
		kcov_collect(&me->kcov);
		pthread_mutex_lock(&me->lock);
		me->busy = false;
		pthread_cond_broadcast(&me->cond);
	}
	return NULL;
}

/* Without an idle thread, and in a child or a thread, the calls run here. */
void exec_thread(const struct call *calls, int n)
{
	int i;

	for (i = 0; i < THREADS && is_main; i++) {
		pthread_mutex_lock(&workers[i].lock);
		if (!workers[i].busy) {
			workers[i].calls = calls;
			workers[i].n = n;
			workers[i].fd = cmd_fd();
			workers[i].busy = true;
			pthread_cond_broadcast(&workers[i].cond);
			pthread_mutex_unlock(&workers[i].lock);
			return;
		}
		pthread_mutex_unlock(&workers[i].lock);
	}
	run_calls(calls, n);
}

static void join_threads(void)
{
	int i;

	for (i = 0; i < THREADS; i++) {
		pthread_mutex_lock(&workers[i].lock);
		while (workers[i].busy)
			pthread_cond_wait(&workers[i].cond, &workers[i].lock);
		pthread_mutex_unlock(&workers[i].lock);
	}
}

static void start_threads(void)
{
	int i;

	for (i = 0; i < THREADS; i++) {
		pthread_mutex_init(&workers[i].lock, NULL);
		pthread_cond_init(&workers[i].cond, NULL);
		pthread_create(&workers[i].thread, NULL, worker_run,
			       &workers[i]);
	}
	/* Their files must be open before those of the first input. */
	usleep(50000);
}

/* Work may be left to the kernel's thread of this process. */
static void last_completions(void)
{
	int i;

	cq_drain();
	for (i = 0; i < 4 && atomic_load(&w.waiting) > 0; i++) {
		usleep(100 << i);
		cq_drain();
	}
}

static void execute(struct kcov *kcov)
{
	kcov_start(kcov);
	cmd_reset();
	world_open();
	run_calls((const struct call *)sh->input,
		  sh->len / sizeof(struct call));
	join_threads();
	proc_reap();
	last_completions();
	world_close();
	kcov_collect(kcov);
}

static void executor_run(void)
{
	struct kcov kcov;
	unsigned int turn;
	int i;

	is_main = true;
	/* libFuzzer's handlers are for the fuzzer itself. */
	for (i = 1; i < SIGRTMIN; i++)
		signal(i, i == SIGPIPE ? SIG_IGN : SIG_DFL);
	world_init();
	kcov_open(&kcov);
	start_threads();
	for (;;) {
		turn = atomic_load(&sh->done);
		while (atomic_load(&sh->turn) == turn)
			futex_wait(&sh->turn, turn, 1000);
		execute(&kcov);
		atomic_store(&sh->done, turn + 1);
		futex_wake(&sh->done);
	}
}

static void start_executor(void)
{
	executor = fork();
	if (executor < 0)
		exec_finding("fork");
	if (!executor) {
		/* It ends with the fuzzer. */
		syscall(SYS_prctl, 1, SIGKILL, 0, 0, 0);
		executor_run();
	}
}

void exec_init(void)
{
	char line[64] = "";
	FILE *f;

	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED ||
	    mmap(counters, COUNTERS, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
		perror("fuzz: mmap");
		exit(2);
	}
	f = fopen("/sys/module/keel/sections/.text", "r");
	if (f && fgets(line, sizeof(line), f))
		sh->text = strtoull(line, NULL, 16);
	if (f)
		fclose(f);
}

/* End the guest: after a finding, nothing in it can be trusted. */
void exec_finding(const char *what)
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

static void print_stacks(void)
{
	char command[128];

	snprintf(command, sizeof(command),
		 "tail -n +1 /proc/%d/task/*/stack /proc/%d/task/*/status >&2",
		 executor, executor);
	if (system(command))
		fprintf(stderr, "fuzz: no stacks\n");
}

static bool reaped(void)
{
	return waitpid(executor, NULL, WNOHANG) == executor;
}

/* The process is late: it must at least be possible to kill it. */
static void kill_executor(void)
{
	int i;

	kill(executor, SIGKILL);
	for (i = 0; i < PATIENCE_KILL * 10; i++) {
		if (reaped())
			return;
		usleep(100000);
	}
	print_stacks();
	exec_finding("a process hangs in the kernel");
}

/* Objects may live a little longer, because the kernel's thread has them. */
static void check_objects(void)
{
	char text[160];
	int i, fd;
	ssize_t n = 0;

	for (i = 0; i < 5000; i++) {
		fd = open(OBJECTS, O_RDONLY | O_CLOEXEC);
		n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
		if (fd >= 0)
			close(fd);
		if (n <= 0)
			return;
		usleep(1000);
	}
	text[n] = 0;
	fprintf(stderr, "fuzz: left: %s\n", text);
	exec_finding("an object outlives its input");
}

void exec_input(const uint8_t *data, size_t size)
{
	unsigned int turn = atomic_load(&sh->turn);
	int i;

	if (!executor)
		start_executor();
	sh->len = size > MAX_INPUT ? MAX_INPUT : size;
	memcpy(sh->input, data, sh->len);
	atomic_store(&sh->turn, turn + 1);
	futex_wake(&sh->turn);
	for (i = 0; i < PATIENCE * 10; i++) {
		if (atomic_load(&sh->done) != turn)
			break;
		futex_wait(&sh->done, turn, 100);
		if (atomic_load(&sh->done) == turn && reaped())
			executor = 0;
		if (!executor)
			break;
	}
	if (atomic_load(&sh->done) == turn) {
		if (executor)
			kill_executor();
		executor = 0;
		atomic_store(&sh->done, turn + 1);
	}
	check_objects();
}
