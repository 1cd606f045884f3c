// SPDX-License-Identifier: GPL-2.0
/*
 * The cgroup of a test: see cgroup.h.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "cgroup.h"
#include "t.h"

#define ROOT	"/sys/fs/cgroup"

/* Valid until the next call. */
static const char *path_of(const char *file)
{
	static char path[200];

	snprintf(path, sizeof(path), ROOT "/%s%s%s", program_invocation_short_name,
		 file ? "/" : "", file ?: "");
	return path;
}

void cgroup_make(const char *controller)
{
	char text[40];

	if (mkdir(path_of(NULL), 0755))
		CHECK_EQ(errno, EEXIST);
	if (!controller)
		return;
	snprintf(text, sizeof(text), "+%s", controller);
	CHECK_OK(t_write_file(ROOT "/cgroup.subtree_control", text));
}

void cgroup_add(pid_t pid)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", pid);
	cgroup_set("cgroup.procs", text);
}

void cgroup_set(const char *file, const char *value)
{
	CHECK_OK(t_write_file(path_of(file), value));
}

void cgroup_try(const char *file, const char *value)
{
	t_write_file(path_of(file), value);
}

char *cgroup_get(const char *file)
{
	return t_read_file(path_of(file));
}

void cgroup_remove(void)
{
	rmdir(path_of(NULL));
}
