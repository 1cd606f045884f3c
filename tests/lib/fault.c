// SPDX-License-Identifier: GPL-2.0
/*
 * Failing allocations and copies: see fault-injection.rst of the kernel.
 */
#include <fcntl.h>
#include <limits.h>

#include "fault.h"
#include "t.h"

#define DEBUGFS	"/sys/kernel/debug/"

static void set_up(void)
{
	static const char * const settings[][2] = {
		/* Only tasks that ask for it, and allocations that may sleep. */
		{ DEBUGFS "failslab/task-filter", "Y" },
		{ DEBUGFS "failslab/ignore-gfp-wait", "N" },
		{ DEBUGFS "failslab/verbose", "0" },
		{ DEBUGFS "fail_page_alloc/task-filter", "Y" },
		{ DEBUGFS "fail_page_alloc/ignore-gfp-wait", "N" },
		{ DEBUGFS "fail_page_alloc/min-order", "0" },
		{ DEBUGFS "fail_page_alloc/verbose", "0" },
		{ DEBUGFS "fail_usercopy/task-filter", "Y" },
		{ DEBUGFS "fail_usercopy/verbose", "0" },
	};
	size_t i;

	for (i = 0; i < sizeof(settings) / sizeof(*settings); i++)
		CHECK_OK(t_write_file(settings[i][0], settings[i][1]));
}

/*
 * Let only those allocations or copies fail whose stack has a function from
 * @start to @end, and with 0 all.
 */
static void fail_only(const char *what, unsigned long start, unsigned long end)
{
	char file[80], value[32];

	snprintf(file, sizeof(file), DEBUGFS "%s/require-start", what);
	snprintf(value, sizeof(value), "%#lx", start);
	CHECK_OK(t_write_file(file, value));
	snprintf(file, sizeof(file), DEBUGFS "%s/require-end", what);
	snprintf(value, sizeof(value), "%#lx", start ? end : ULONG_MAX);
	CHECK_OK(t_write_file(file, value));
}

/* No stack has the address 1. */
void fault_copies(bool may)
{
	fail_only("fail_usercopy", !may, 2);
}

void fault_only_keel(bool only)
{
	char *line = t_shell("grep '^keel ' /proc/modules");
	unsigned long size, start;

	CHECK_EQ(sscanf(line, "keel %lu %*s %*s %*s %lx", &size, &start), 2);
	fail_only("failslab", only ? start : 0, start + size);
	fail_only("fail_page_alloc", only ? start : 0, start + size);
	free(line);
}

void fault_only_in(const char *function)
{
	/* The end is where the next function starts. Those of modules have a suffix. */
	char *lines = t_shell("sort /proc/kallsyms | "
			      "grep -A 1 -E ' [Tt] %s([[:space:]]|$)'", function);
	unsigned long start, end;

	CHECK_EQ(sscanf(lines, "%lx %*[^\n] %lx", &start, &end), 2);
	CHECK(start < end);
	fail_only("failslab", start, end);
	fail_only("fail_page_alloc", start, end);
	free(lines);
}

static int fail_nth = -1;

void fault_init(void)
{
	set_up();
	fail_nth = SYS(open("/proc/self/fail-nth", O_RDWR | O_CLOEXEC));
}

void fault_start(int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%d", n);

	/* The copy of this system call may be the one that fails. */
	if (pwrite(fail_nth, text, len, 0) != len)
		CHECK_EQ(pwrite(fail_nth, text, len, 0), len);
}

bool fault_end(void)
{
	char text[16] = "";
	ssize_t len = pread(fail_nth, text, sizeof(text) - 1, 0);

	/* The same: nothing has failed before, then. */
	fault_start(0);
	return len > 0 && !atoi(text);
}
