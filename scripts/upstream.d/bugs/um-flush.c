// SPDX-License-Identifier: GPL-2.0
/*
 * UML: flush_tlb_mm() walks the VMAs of another process without a lock.
 *
 * One process punches holes into a file, so the kernel zaps the mappings that
 * another process has of it. The other process zaps its own memory at the same
 * time. tlb_finish_mmu() finds a nested flush, and flushes the whole mm of the
 * other process, whose mmap_lock the first one does not hold. Lockdep reports
 * this once after each boot.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECONDS	60
#define SIZE	(64 * 4096UL)
#define READ_ALL	3

#define DIE(what) do { perror(what); exit(2); } while (0)

static char *file_map, *own;

/* Zap own pages: the flush of the mm is pending most of the time. */
static void *zap_own(void *arg)
{
	for (;;) {
		memset(own, 1, SIZE);
		madvise(own, SIZE, MADV_DONTNEED);
	}
	return NULL;
}

static void run_child(void)
{
	pthread_t thread;
	size_t i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (pthread_create(&thread, NULL, zap_own, NULL))
		DIE("pthread_create");
	for (;;)
		for (i = 0; i < SIZE; i += 4096)
			file_map[i] = 1;
}

/* Return whether the kernel log has a report that names flush_tlb_mm(). */
static int reported(void)
{
	static char log[4 << 20];
	int n = klogctl(READ_ALL, log, sizeof(log) - 1);
	char *at;

	if (n < 0)
		DIE("klogctl");
	log[n] = '\0';
	at = strstr(log, "suspicious RCU usage");
	return at && strstr(at, "flush_tlb_mm");
}

int main(void)
{
	int fd = memfd_create("um-flush", 0), bad = 0, n;
	time_t end = time(NULL) + SECONDS;
	pid_t pid;

	if (access("/proc/lockdep", F_OK)) {
		printf("# this kernel has no lockdep, which reports the bug\n");
		return 2;
	}
	if (fd < 0 || ftruncate(fd, SIZE))
		DIE("memfd");
	file_map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	own = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (file_map == MAP_FAILED || own == MAP_FAILED)
		DIE("mmap");
	pid = fork();
	if (pid < 0)
		DIE("fork");
	if (!pid)
		run_child();
	/* Only the child has the file mapped. */
	munmap(file_map, SIZE);
	for (n = 0; !bad && time(NULL) < end; n++) {
		if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			      SIZE))
			DIE("fallocate");
		if (n % 256 == 0)
			bad = reported();
	}
	bad = reported();
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	printf("# %d holes punched\n", n);
	if (bad) {
		printf("reproduced: flush_tlb_mm() walked the VMAs of another process without a lock\n");
		return 1;
	}
	printf("not reproduced: lockdep did not report flush_tlb_mm()\n");
	return 0;
}
