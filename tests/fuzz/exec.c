// SPDX-License-Identifier: GPL-2.0
/*
 * The process that executes inputs, and its threads. watch.c starts it, and hands
 * over the inputs.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "proc.h"
#include "t.h"

#define THREADS		2

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
/* Their files must be open before those of the first input. */
static pthread_barrier_t started;
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

bool exec_is_main(void)
{
	return is_main;
}

void exec_without_threads(void)
{
	is_main = false;
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

/* A run without KCOV would find nothing. */
static void open_kcov(struct kcov *kcov)
{
	if (!kcov_open(kcov) && getenv("FUZZ_GUEST"))
		_exit(2);
}

static void *worker_run(void *arg)
{
	struct worker *me = arg;

	open_kcov(&me->kcov);
	pthread_barrier_wait(&started);
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

	pthread_barrier_init(&started, NULL, THREADS + 1);
	for (i = 0; i < THREADS; i++) {
		pthread_mutex_init(&workers[i].lock, NULL);
		pthread_cond_init(&workers[i].cond, NULL);
		if (pthread_create(&workers[i].thread, NULL, worker_run,
				   &workers[i]))
			_exit(2);
	}
	pthread_barrier_wait(&started);
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

void exec_run(void)
{
	struct kcov kcov;
	unsigned int turn;
	int i;

	is_main = true;
	/* libFuzzer's handlers are for the fuzzer itself. */
	for (i = 1; i < SIGRTMIN; i++)
		signal(i, i == SIGPIPE ? SIG_IGN : SIG_DFL);
	world_init();
	open_kcov(&kcov);
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
