// SPDX-License-Identifier: GPL-2.0
/*
 * A function that keel's PCI driver lets go and binds again.
 */
#include <libgen.h>

#include "t.h"

#define DRIVER	"/sys/bus/pci/drivers/keel"
/*
 * Some kernels count whole slabs. A slab more or less of each size is no leak: so many times
 * that it does not matter. As many come before: the first ones fill the caches of the kernel.
 */
#define TIMES	400

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
	long before, bytes;

	rebind(function, TIMES);
	before = t_kmalloc();
	rebind(function, TIMES);
	bytes = t_kmalloc() - before;
	t_note("bound %d times: %ld bytes", TIMES, bytes);
	/* A device takes at least a page. */
	CHECK(bytes < TIMES * 1024L);
	free(path);
}
