/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A small test harness.
 *
 * A test program is a file of TEST()s. The harness runs each test in a process
 * and a process group of its own. The kernel must clean up what the test leaves
 * behind, and the harness checks this. A failed CHECK ends its process, the
 * test or a process that the test started, and fails the test. Output is TAP.
 * The title of a test starts with the requirements that the test proves.
 */
#ifndef T_H
#define T_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <infiniband/verbs.h>

/* The device that "insmod keel.ko" creates. */
#define KEEL0	"keel0"

struct t_case {
	const char *ids;
	const char *title;
	void (*run)(void);
	unsigned int limit;	/* seconds; 0: the default */
	const char *not_uml;	/* why the test does not run on UML, or NULL */
	const char *not_kernel;	/* likewise, on such a release, e.g. "6.1." */
	const char *not_kernel_why;
	const char *not_debug;	/* likewise, on a kernel with checkers */
	const char *only_debug;	/* likewise, on one without */
	const char *not_pat;	/* likewise, on x86 before pfnmap_track() */
	const char *not_arm64;	/* likewise, on arm64 */
	struct t_case *next;
};

void t_add(struct t_case *c);

/*
 * A program may define this function. The harness calls it after each test,
 * however the test ended, to undo what outlives a process.
 */
void t_after(void) __attribute__((weak));
/* Likewise, after all tests, to undo what several tests have used. */
void t_end(void) __attribute__((weak));

/*
 * TEST(name, "PD-1,PD-2", "what the test proves") { ... }
 * TEST_SLOW() sets a limit in seconds. TEST_NOT_UML() is for tests that User
 * Mode Linux itself cannot run: there the harness names the test in a comment,
 * with the reason, and reports neither ok nor not ok.
 */
#define TEST_CASE(fn, its_ids, its_title, ...)				\
	static void test_##fn(void);					\
	static struct t_case case_##fn = {				\
		.ids = its_ids, .title = its_title, .run = test_##fn,	\
		__VA_ARGS__						\
	};								\
	__attribute__((constructor)) static void add_##fn(void)	\
	{								\
		t_add(&case_##fn);					\
	}								\
	static void test_##fn(void)
#define TEST(fn, its_ids, its_title)	TEST_CASE(fn, its_ids, its_title, )
#define TEST_SLOW(fn, its_ids, its_title, seconds)			\
	TEST_CASE(fn, its_ids, its_title, .limit = seconds)
#define TEST_NOT_UML(fn, its_ids, its_title, why)			\
	TEST_CASE(fn, its_ids, its_title, .not_uml = why)
#define TEST_NOT_DEBUG(fn, its_ids, its_title, why)			\
	TEST_CASE(fn, its_ids, its_title, .not_debug = why)

#define TEST_ONLY_DEBUG(fn, its_ids, its_title, why, seconds)		\
	TEST_CASE(fn, its_ids, its_title, .only_debug = why, .limit = seconds)

void t_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
/* Print a "# ..." line between the results. */
void t_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
const char *t_errname(int err);
void t_check_err(const char *file, int line, const char *what, int got,
		 int want);
void t_check_null(const char *file, int line, const char *what,
		  const void *got, int err, int want);
void t_check_mem(const char *file, int line, const char *what,
		 const void *got, const void *want, size_t len);
void t_check_all(const char *file, int line, const char *what,
		 const void *got, int byte, size_t len);

#define FAIL(...)	t_fail(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(cond)							\
	do {								\
		if (!(cond))						\
			FAIL("got false, want %s", #cond);		\
	} while (0)

#define CHECK_EQ(got, want)						\
	do {								\
		long long got_ = (long long)(got);			\
		long long want_ = (long long)(want);			\
									\
		if (got_ != want_)					\
			FAIL("%s: got %lld, want %lld", #got, got_,	\
			     want_);					\
	} while (0)

#define CHECK_STR(got, want)						\
	do {								\
		const char *got_ = (got), *want_ = (want);		\
									\
		if (strcmp(got_, want_))				\
			FAIL("%s: got \"%s\", want \"%s\"", #got, got_,	\
			     want_);					\
	} while (0)

/* Check a call that returns 0 or a positive errno. */
#define CHECK_RET(call, want)	\
	t_check_err(__FILE__, __LINE__, #call, call, want)
#define CHECK_OK(call)		CHECK_RET(call, 0)

/* Check a call that returns -1 and sets errno, or succeeds (want == 0). */
#define CHECK_SYS(call, want)						\
	do {								\
		long got_ = (errno = 0, (long)(call));			\
									\
		t_check_err(__FILE__, __LINE__, #call,			\
			    got_ == -1 ? errno : 0, want);		\
	} while (0)

/* Check a call that must return NULL and set this errno. */
#define CHECK_NULL(call, want)						\
	do {								\
		const void *got_ = (errno = 0, (call));			\
									\
		t_check_null(__FILE__, __LINE__, #call, got_, errno,	\
			     want);					\
	} while (0)

/* Make a call that must return a pointer, and evaluate to this pointer. */
#define MUST(call)							\
	({								\
		typeof(call) got_ = (errno = 0, (call));		\
									\
		if (!got_)						\
			FAIL("%s: got %s, want a pointer", #call,	\
			     t_errname(errno));				\
		got_;							\
	})

/* Make a system call that must not return -1, and evaluate to its result. */
#define SYS(call)							\
	({								\
		long got_ = (errno = 0, (long)(call));			\
									\
		if (got_ == -1)						\
			FAIL("%s: got %s, want success", #call,		\
			     t_errname(errno));				\
		got_;							\
	})

#define CHECK_MEM(got, want, len)	\
	t_check_mem(__FILE__, __LINE__, #got, got, want, len)
#define CHECK_ALL(got, byte, len)	\
	t_check_all(__FILE__, __LINE__, #got, got, byte, len)

/* Return true on a kernel with checkers, on which tests take longer. */
bool t_debug_kernel(void);
/* Return true on User Mode Linux. */
bool t_uml(void);
/* Return true if the kernel's release begins with this text. */
bool t_kernel(const char *release);

/* Return how many rounds to run: fewer than @n on a kernel with checkers. */
int t_rounds(int n);
/* Return the bytes that kmalloc() has allocated, or those of all slabs. */
long t_kmalloc(void);
/* Return the next random number; *seed must not be 0. */
uint64_t t_random(uint64_t *seed);

/*
 * Write to each page of new memory, which begins at a page, in such an order that pages
 * that follow each other are not adjacent for the kernel.
 */
void t_scatter(void *mem, size_t bytes);

/* Run a shell command and return its output without the last newline. */
char *t_shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Run a shell command and return its exit status. */
int t_shell_status(const char *fmt, ...)
	__attribute__((format(printf, 1, 2)));

/* How many processors the calling thread may use. */
int t_processors(void);
/* Let the calling thread, and those that it starts from now on, use one processor. */
void t_one_processor(void);

/* Return the text of a file, terminated with 0; the caller frees it. */
char *t_read_file(const char *path);
/* Return 0 or a positive errno. */
int t_write_file(const char *path, const char *text);

/* Open a device by its name. */
struct ibv_context *dev_open(const char *name);

#endif /* T_H */
