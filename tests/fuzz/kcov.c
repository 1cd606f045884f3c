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

#define KCOV_INIT_TRACE	_IOR('c', 1, unsigned long)
#define KCOV_ENABLE	_IO('c', 100)
#define KCOV_TRACE_PC	0
/* Program counters of one thread and one input. */
#define KCOV_WORDS	262144

/* libFuzzer finds the counters by the name of their section. */
__attribute__((section("__libfuzzer_extra_counters"), aligned(PAGE)))
uint8_t counters[COUNTERS];

/* Without KCOV, inputs can be executed again, but no new ones are found. */
void kcov_open(struct kcov *k)
{
	int fd = open("/sys/kernel/debug/kcov", O_RDWR | O_CLOEXEC);

	k->area = NULL;
	if (fd < 0)
		return;
	if (ioctl(fd, KCOV_INIT_TRACE, KCOV_WORDS))
		goto err;
	k->area = mmap(NULL, KCOV_WORDS * sizeof(uint64_t),
		       PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (k->area == MAP_FAILED || ioctl(fd, KCOV_ENABLE, KCOV_TRACE_PC))
		goto err;
	return;
err:
	perror("kcov");
	_exit(2);
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
	atomic_fetch_add(&sh->seen_count, 1);
}

/* An edge is a pair of program counters. */
void kcov_collect(struct kcov *k)
{
	uint64_t n, i, pc, last = 0, hash;

	if (!k->area)
		return;
	n = __atomic_load_n(&k->area[0], __ATOMIC_RELAXED);
	if (n > KCOV_WORDS - 1)
		n = KCOV_WORDS - 1;
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
