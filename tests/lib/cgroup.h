/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A cgroup for processes of a test. Each test program has one.
 */
#ifndef CGROUP_H
#define CGROUP_H

#include <sys/types.h>

/*
 * Create the cgroup, if it does not exist, and enable a controller in it, e.g. "cpu".
 * NULL: none but those that are enabled already.
 */
void cgroup_make(const char *controller);
/* Move a process to it; 0: the calling process. */
void cgroup_add(pid_t pid);
/* Write to one of its files. */
void cgroup_set(const char *file, const char *value);
/* The same; if it fails, nothing happens. */
void cgroup_try(const char *file, const char *value);
/* Return the contents of one of its files, for free(). */
char *cgroup_get(const char *file);
/* Remove the cgroup, for t_after(): it may not exist, and no process is left in it. */
void cgroup_remove(void);

#endif /* CGROUP_H */
