// SPDX-License-Identifier: GPL-2.0
/*
 * A function that keel's PCI driver lets go and binds again.
 */
#include <libgen.h>
#include <limits.h>

#include "t.h"

#define DRIVER	"/sys/bus/pci/drivers/keel"
/*
 * Some kernels count whole slabs, and keep some that are empty. So many times that it does
 * not matter, or again: a leak grows each time, what a kernel keeps does not.
 */
#define TIMES	400
#define ROUNDS	3

static void rebind(const char *function, int times)
{
	while (times--) {
		CHECK_OK(t_write_file(DRIVER "/unbind", function));
		CHECK(access("/sys/class/infiniband/" KEEL0, F_OK));
		CHECK_OK(t_write_file(DRIVER "/bind", function));
		CHECK_SYS(access("/sys/class/infiniband/" KEEL0, F_OK), 0);
	}
}

TEST_SLOW(memory, "DEV-3", "unbinding a function frees the memory of its device", 300)
{
	char *path = t_shell("realpath /sys/class/infiniband/" KEEL0 "/device");
	char *function = basename(path);
	long before, bytes = LONG_MAX;
	int i;

	rebind(function, 10);
	/* A device takes at least a page. */
	for (i = 0; i < ROUNDS && bytes >= TIMES * 1024L; i++) {
		before = t_kmalloc();
		rebind(function, TIMES);
		bytes = t_kmalloc() - before;
		t_note("bound %d times: %ld bytes", TIMES, bytes);
	}
	CHECK(bytes < TIMES * 1024L);
	free(path);
}
