// SPDX-License-Identifier: GPL-2.0
/*
 * Processes of other users. See user.h.
 */
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/prctl.h>

#include "t.h"
#include "user.h"

void user_become(uid_t uid)
{
	SYS(setgroups(0, NULL));
	SYS(setresgid(uid, uid, uid));
	SYS(setresuid(uid, uid, uid));
	SYS(prctl(PR_SET_DUMPABLE, 1));
}

void user_ns_new(void)
{
	SYS(unshare(CLONE_NEWUSER));
}

static void user_ns_wait(struct peer *parent)
{
	uid_t owner;

	peer_get_var(parent, owner);
	if (owner)
		user_become(owner);
	user_ns_new();
	peer_tell(parent);
	peer_wait(parent);
}

void user_ns_start(struct peer *p, uid_t owner, const char *map)
{
	char path[40];

	peer_start(p, user_ns_wait);
	peer_put_var(p, owner);
	peer_wait(p);
	snprintf(path, sizeof(path), "/proc/%d/uid_map", p->pid);
	CHECK_OK(t_write_file(path, map));
	snprintf(path, sizeof(path), "/proc/%d/gid_map", p->pid);
	CHECK_OK(t_write_file(path, map));
}

void user_ns_end(struct peer *p)
{
	peer_tell(p);
	peer_end(p);
}

void user_ns_join(pid_t pid, uid_t uid)
{
	char path[40];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	fd = SYS(open(path, O_RDONLY | O_CLOEXEC));
	SYS(setns(fd, CLONE_NEWUSER));
	SYS(close(fd));
	user_become(uid);
}
