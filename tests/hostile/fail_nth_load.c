// SPDX-License-Identifier: GPL-2.0
/*
 * Failing allocations of insmod. Allocations fail only for the task that asks for it,
 * so this process makes the system call itself.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dev.h"
#include "fault.h"
#include "t.h"

void t_after(void)
{
	module_restore();
}

/*
 * There are thousands, and each try takes half a second: every so many of them. The
 * step is a prime, so that it finds those that come at regular distances.
 */
static int step(void)
{
	const char *text = getenv("FAULT_STEP");

	return text ? atoi(text) : 199;
}

/* Return 0 or an errno. */
static int load(int file)
{
	return syscall(SYS_finit_module, file, module_usual(), 0) ? errno : 0;
}

/* Nothing of the module is left: it can be loaded, and its device works. */
static void check_absent(void)
{
	CHECK(!module_loaded());
	CHECK(!dev_exists(KEEL0));
	CHECK(access("/sys/class/net/" KEEL0, F_OK));
	CHECK(access("/sys/kernel/debug/keel", F_OK));
	CHECK(access("/sys/bus/pci/drivers/keel", F_OK));
}

TEST_ONLY_DEBUG(load, "DEV-1,DEV-4", "insmod with allocations of its start failing, one at a time: it fails and leaves nothing, or succeeds",
		"its kernel cannot let allocations fail", 1200)
{
	int file = SYS(open(MODULE_FILE, O_RDONLY | O_CLOEXEC));
	int n, err, refused = 0, done = 0;
	bool failed = true;

	fault_init();
	fault_copies(false);
	fault_only_in("do_one_initcall");
	module_unload();
	for (n = 1; failed; n += step()) {
		fault_start(n);
		err = load(file);
		failed = fault_end();
		if (err) {
			CHECK(failed);
			/* The latter if the kernel cannot register the netdev. */
			if (err != ENOMEM && err != ENOBUFS)
				FAIL("allocation %d fails: got %s, want ENOMEM or ENOBUFS",
				     n, t_errname(err));
			check_absent();
			refused++;
			continue;
		}
		/* The kernel can do without some, as names in debugfs. */
		done += failed;
		CHECK(module_loaded());
		module_unload();
		check_absent();
	}
	CHECK(refused > 0);
	t_note("insmod: %d refused, %d done", refused, done);
	module_load(module_usual());
	fault_only_keel(false);
	close(file);
}
