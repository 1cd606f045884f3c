/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The common part of the stations of the tour: find keel0, print what happens,
 * and stop if a call does not return what was announced. An application does
 * not need any of this to use keel.
 */
#ifndef SAY_H
#define SAY_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define TREE "/sys/kernel/debug/keel/keel0/objects"

/* Print a sentence before a call. */
__attribute__((format(printf, 1, 2)))
static inline void say(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	printf("\n  ");
	vprintf(fmt, args);
	printf("\n");
	va_end(args);
	fflush(stdout);
}

/* Print a call and its result. */
__attribute__((format(printf, 1, 2)))
static inline void did(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	printf("    [%d] ", getpid());
	vprintf(fmt, args);
	printf("\n");
	va_end(args);
	fflush(stdout);
}

/* Go on only if @ok; otherwise print the call and exit. */
#define must(ok)							\
do {									\
	if (!(ok)) {							\
		printf("  FAILED at %s:%d: %s (errno %d, %s)\n",	\
		       __FILE__, __LINE__, #ok, errno, strerror(errno));\
		exit(1);						\
	}								\
} while (0)

/* Check a verb that returns an errno against the announced value. */
#define must_be(call, want)						\
do {									\
	int got_ = (call);						\
									\
	did("%s -> %s", #call, got_ ? strerrorname_np(got_) : "0");	\
	if (got_ != (want)) {						\
		printf("  FAILED at %s:%d: %d is not what was announced\n",\
		       __FILE__, __LINE__, got_);			\
		exit(1);						\
	}								\
} while (0)

/* Print the tree of live objects, as an administrator sees it. */
static inline void tree(void)
{
	char line[512];
	FILE *f = fopen(TREE, "r");
	int lines = 0;

	must(f);
	printf("    | %s\n", TREE);
	while (fgets(line, sizeof(line), f)) {
		printf("    |   %s", line);
		lines++;
	}
	if (!lines)
		printf("    |   (empty)\n");
	fclose(f);
	fflush(stdout);
}

static inline struct ibv_context *open_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	int i;

	must(list);
	for (i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	must(context);
	return context;
}

static inline struct ibv_context *open_keel(void)
{
	return open_named("keel0");
}

/* Two processes take turns with a byte in a pipe. */
static inline void tell(int fd)
{
	must(write(fd, "!", 1) == 1);
}

static inline void wait_for(int fd)
{
	char c;

	must(read(fd, &c, 1) == 1);
}

#endif
