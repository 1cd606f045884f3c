/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Needed by all programs of this folder. */
#ifndef BENCH_H
#define BENCH_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/verbs.h>

static inline double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

/* die() - say what failed and why (errno, unless that is 0), and end. */
static inline __attribute__((noreturn, format(printf, 1, 2)))
void die(const char *format, ...)
{
	int saved = errno;
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	if (saved)
		fprintf(stderr, ": %s", strerror(saved));
	fputc('\n', stderr);
	exit(1);
}

static inline struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	int i;

	for (i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	if (!context)
		die("cannot open device %s", name);
	ibv_free_device_list(list);
	return context;
}

/* The sum of lines of /proc/meminfo, in bytes. */
static inline double meminfo(const char *const *names)
{
	FILE *file = fopen("/proc/meminfo", "r");
	char line[100], name[50];
	double sum = 0;
	long kib;
	int i;

	if (!file)
		die("/proc/meminfo");
	while (fgets(line, sizeof(line), file))
		for (i = 0; names[i]; i++)
			if (sscanf(line, "%49[^:]: %ld kB", name, &kib) == 2 &&
			    !strcmp(name, names[i]))
				sum += kib * 1024.0;
	fclose(file);
	return sum;
}

/* Memory of the kernel in which objects are, in bytes. */
static inline double kernel_bytes(void)
{
	static const char *const names[] = {
		"Slab", "VmallocUsed", "Percpu", "PageTables", NULL
	};

	return meminfo(names);
}

#endif
