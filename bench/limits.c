// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * limits UVERBS-NODE... : what this machine can do at best, one JSON object.
 *
 * The limits that a device is compared with: a message cannot cost less than the system
 * call that posts it, nor move faster than memcpy() does, and two threads do
 * not get further than the processors let them.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/rdma_user_ioctl_cmds.h>

#include "bench.h"

#define COPY_SIZE	(1024 * 1024)
#define SECONDS		0.3

static double copy_rate(void)
{
	char *from = aligned_alloc(4096, COPY_SIZE);
	char *to = aligned_alloc(4096, COPY_SIZE);
	double start, took;
	long n = 0;

	if (!from || !to)
		die("no memory");
	memset(from, 1, COPY_SIZE);
	memset(to, 2, COPY_SIZE);
	start = now();
	do {
		memcpy(to, from, COPY_SIZE);
		/* The compiler must not see that nobody reads it. */
		__asm__ volatile("" : : "r"(to) : "memory");
		n++;
		took = now() - start;
	} while (took < SECONDS);
	free(from);
	free(to);
	return n / took;
}

/* Empty system calls a second. */
static double call_rate(void)
{
	double start = now(), took;
	long n = 0;
	int i;

	do {
		for (i = 0; i < 1000; i++)
			syscall(SYS_getppid);
		n += i;
		took = now() - start;
	} while (took < SECONDS);
	return n / took;
}

static void *call_thread(void *rate)
{
	*(double *)rate = call_rate();
	return NULL;
}

/* The work of two threads together, in units of that of one alone. */
static double scaling(double alone)
{
	pthread_t thread;
	double other, mine;

	if (pthread_create(&thread, NULL, call_thread, &other))
		die("no thread");
	mine = call_rate();
	pthread_join(thread, NULL);
	return (mine + other) / alone;
}

/* An ioctl of an object that does not exist: the way in and out, no more. */
static double ioctl_rate(const char *node)
{
	struct ib_uverbs_ioctl_hdr hdr = {
		.length = sizeof(hdr),
		.object_id = 0xfff,
		.method_id = 0,
	};
	int fd = open(node, O_RDWR | O_CLOEXEC), i;
	double start, took;
	long n = 0;

	if (fd < 0)
		die("%s", node);
	start = now();
	do {
		for (i = 0; i < 1000; i++)
			if (!ioctl(fd, RDMA_VERBS_IOCTL, &hdr))
				die("%s takes any ioctl", node);
		n += i;
		took = now() - start;
	} while (took < SECONDS);
	close(fd);
	return n / took;
}

int main(int argc, char **argv)
{
	double calls = call_rate();
	int i;

	printf("{\"memcpy\": %.1f, \"syscall\": %.4f, \"scaling\": %.3f",
	       copy_rate(), 1e6 / calls, scaling(calls));
	for (i = 1; i < argc; i++)
		printf(", \"%s\": %.4f", argv[i], 1e6 / ioctl_rate(argv[i]));
	printf("}\n");
	return 0;
}
