/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A small test harness.
 *
 * A program is a file of TEST()s. Each runs in a process of its own, in a
 * process group of its own: what it leaves behind the kernel must clean up,
 * and the harness checks that it did. A failed CHECK ends the process that
 * made it, be it the test or a process that the test started, and is the
 * test's failure. Output is TAP, with the requirements that a test proves at
 * the start of its title.
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

/* The device that "insmod keel.ko" brings up. */
#define KEEL0	"keel0"

struct t_case {
	const char *ids;
	const char *title;
	void (*run)(void);
	unsigned int limit;	/* seconds; 0: the default */
	const char *not_uml;	/* why it is not run there, or NULL */
	const char *not_kernel;	/* likewise, on such a release, e.g. "6.1." */
	const char *not_kernel_why;
	const char *not_debug;	/* likewise, where the kernel checks everything */
	const char *not_pat;	/* likewise, on x86 before pfnmap_track() */
	struct t_case *next;
};

void t_add(struct t_case *c);

/*
 * A program may define this: the harness calls it after each test, however
 * that ended, to undo what outlives a process.
 */
void t_after(void) __attribute__((weak));

/*
 * TEST(name, "PD-1,PD-2", "what is shown") { ... }
 * TEST_SLOW() may take so many seconds. TEST_NOT_UML() is for what User Mode
 * Linux itself cannot do: there the test is named in a comment, with the
 * reason, and is neither ok nor not ok.
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

void t_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
/* A "# ..." line between the results. */
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

/* A call that returns 0 or a positive errno. */
#define CHECK_RET(call, want)	\
	t_check_err(__FILE__, __LINE__, #call, call, want)
#define CHECK_OK(call)		CHECK_RET(call, 0)

/* A call that returns -1 and errno (want != 0), or something else. */
#define CHECK_SYS(call, want)						\
	do {								\
		long got_ = (errno = 0, (long)(call));			\
									\
		t_check_err(__FILE__, __LINE__, #call,			\
			    got_ == -1 ? errno : 0, want);		\
	} while (0)

/* A call that must return NULL and this errno. */
#define CHECK_NULL(call, want)						\
	do {								\
		const void *got_ = (errno = 0, (call));			\
									\
		t_check_null(__FILE__, __LINE__, #call, got_, errno,	\
			     want);					\
	} while (0)

/* A call that must return a pointer: the value is that. */
#define MUST(call)							\
	({								\
		typeof(call) got_ = (errno = 0, (call));		\
									\
		if (!got_)						\
			FAIL("%s: got %s, want a pointer", #call,	\
			     t_errname(errno));				\
		got_;							\
	})

/* A system call that must not return -1: the value is what it returns. */
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

/* Is this the build of the kernel that checks everything, and takes longer? */
bool t_debug_kernel(void);
/* Is it User Mode Linux? */
bool t_uml(void);
/* Does the kernel's release begin so? */
bool t_kernel(const char *release);

/* So many rounds of something, or fewer where each takes longer. */
int t_rounds(int n);
/* Bytes that the kernel has allocated with kmalloc() and not freed, or more. */
long t_kmalloc(void);
/* The next of a series that the seed, which must not be 0, decides. */
uint64_t t_random(uint64_t *seed);

/* Run a shell command: its output, without the last newline. */
char *t_shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* ... and its exit status. */
int t_shell_status(const char *fmt, ...)
	__attribute__((format(printf, 1, 2)));

/* A whole file, terminated; to be freed. */
char *t_read_file(const char *path);
/* 0 or a positive errno. */
int t_write_file(const char *path, const char *text);

/* The context of a device by its name. */
struct ibv_context *dev_open(const char *name);

#endif /* T_H */
