// SPDX-License-Identifier: GPL-2.0
/*
 * Coverage of keel.ko: program counters from KCOV become the counters that
 * libFuzzer reads, and a set of all addresses for the report.
 */
#include <fcntl.h>
#include <linux/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "watch.h"

#define KCOV_INIT_TRACE	_IOR('c', 1, unsigned long)
#define KCOV_ENABLE	_IO('c', 100)
#define KCOV_TRACE_PC	0
/* Program counters of one thread and one input. */
#define KCOV_WORDS	262144

/* libFuzzer finds the counters by the name of their section. */
__attribute__((section("__libfuzzer_extra_counters"), aligned(PAGE)))
uint8_t counters[COUNTERS];

static __thread struct kcov *own;

/* Without KCOV, inputs can be executed again, but no new ones are found. */
bool kcov_open(struct kcov *k)
{
	int fd = open(KCOV_FILE, O_RDWR | O_CLOEXEC);
	void *area;

	own = k;
	k->area = NULL;
	if (fd < 0)
		return false;
	if (ioctl(fd, KCOV_INIT_TRACE, KCOV_WORDS))
		goto err;
	area = mmap(NULL, KCOV_WORDS * sizeof(uint64_t), PROT_READ | PROT_WRITE,
		    MAP_SHARED, fd, 0);
	if (area == MAP_FAILED || ioctl(fd, KCOV_ENABLE, KCOV_TRACE_PC))
		goto err;
	k->area = area;
	return true;
err:
	perror("kcov");
	close(fd);
	return false;
}

void kcov_start(struct kcov *k)
{
	if (k->area)
		__atomic_store_n(&k->area[0], 0, __ATOMIC_RELAXED);
}

static void see(uint64_t offset)
{
	uint8_t bit = 1 << offset % 8;

	if (offset >= MAX_TEXT || sh->seen[offset / 8] & bit)
		return;
	sh->seen[offset / 8] |= bit;
}

/* An edge is a pair of program counters. */
void kcov_collect(struct kcov *k)
{
	uint64_t n, i, pc, last = 0, hash;

	if (!k->area)
		return;
	n = __atomic_load_n(&k->area[0], __ATOMIC_RELAXED);
	if (n >= KCOV_WORDS - 1) {
		n = KCOV_WORDS - 1;
		atomic_fetch_add(&sh->truncated, 1);
	}
	for (i = 1; i <= n; i++) {
		pc = k->area[i] - sh->text;
		see(pc);
		hash = (pc ^ last << 7) * 0x9e3779b97f4a7c15ULL >> 48;
		if (counters[hash] < 255)
			counters[hash]++;
		last = pc;
	}
	kcov_start(k);
}

void kcov_collect_own(void)
{
	if (own)
		kcov_collect(own);
}
