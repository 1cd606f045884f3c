// SPDX-License-Identifier: GPL-2.0
/*
 * XRC domains of a hostile user, who has a file system: it unmounts the one of a
 * domain's inode, or lets an open of a domain wait for a page of it.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "iso.h"
#include "raw.h"
#include "stall.h"
#include "stall_fuse.h"
#include "t.h"
#include "tree.h"
#include "user.h"

#define DIR	"/tmp/keel-isolation-xrcd"
#define HOSTILE	1000

void t_after(void)
{
	rmdir(DIR);
}

static struct ibv_xrcd *open_xrcd(struct ibv_context *ctx, int fd)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd, .oflags = O_CREAT,
	};

	return MUST(ibv_open_xrcd(ctx, &attr));
}

/* Mount a file system of one's own, as any user can. */
static void own_mount(void)
{
	char map[32];

	snprintf(map, sizeof(map), "0 %d 1", HOSTILE);
	user_become(HOSTILE);
	SYS(unshare(CLONE_NEWUSER | CLONE_NEWNS));
	CHECK_OK(t_write_file("/proc/self/setgroups", "deny"));
	CHECK_OK(t_write_file("/proc/self/uid_map", map));
	CHECK_OK(t_write_file("/proc/self/gid_map", map));
	SYS(mount("keel", DIR, "tmpfs", 0, NULL));
}

/* Open a domain of a file there, and close the file. */
static struct ibv_xrcd *tie(void)
{
	int fd = SYS(open(DIR "/file", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	struct ibv_xrcd *xrcd = open_xrcd(dev_open(KEEL0), fd);

	close(fd);
	return xrcd;
}

static void unmounter(struct peer *parent)
{
	struct ibv_xrcd *xrcd;

	own_mount();
	xrcd = tie();
	/* As often as it is tried. */
	CHECK_SYS(umount2(DIR, 0), EBUSY);
	CHECK_SYS(umount2(DIR, 0), EBUSY);
	CHECK_OK(ibv_close_xrcd(xrcd));
	CHECK_SYS(umount2(DIR, 0), 0);
	/* A detached file system stays until the domain is closed. */
	SYS(mount("keel", DIR, "tmpfs", 0, NULL));
	xrcd = tie();
	CHECK_SYS(umount2(DIR, MNT_DETACH), 0);
	CHECK_OK(ibv_close_xrcd(xrcd));
	/* The last process of a mount namespace unmounts all, and then closes. */
	SYS(mount("keel", DIR, "tmpfs", 0, NULL));
	tie();
	peer_tell(parent);
	pause();
}

TEST(unmount, "XRC-2,ISO-1", "a user cannot unmount the file system of an open XRC domain (EBUSY); detaching it, and the death of its last process, do no harm")
{
	struct peer p;

	SYS(mkdir(DIR, 0777));
	SYS(chmod(DIR, 0777));
	peer_start(&p, unmounter);
	peer_wait(&p);
	CHECK_EQ(tree_count(KEEL0, "xrcd"), 1);
	peer_kill(&p, SIGKILL);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

/* Open a domain with driver data in a page of the FUSE file. */
static void slow_opener(struct peer *parent)
{
	static struct ib_uverbs_open_xrcd cmd = { .fd = -1, .oflags = O_CREAT };
	static struct ib_uverbs_open_xrcd_resp resp;
	int fd = SYS(open(STALL_FILE, O_RDONLY | O_CLOEXEC));
	void *page = mmap(NULL, ISO_PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	struct raw_invoke inv = {
		.command = IB_USER_VERBS_CMD_OPEN_XRCD,
		.in = &cmd, .in_len = sizeof(cmd),
		.out = &resp, .out_len = sizeof(resp),
		.drv_in = page, .drv_in_len = 64,
	};
	int dev = dev_open(KEEL0)->cmd_fd;

	CHECK(page != MAP_FAILED);
	CHECK_RET(raw_invoke(dev, &inv), EFAULT);
	peer_tell(parent);
	pause();
}

TEST(driver_data, "ISO-1,ISO-2,DEV-4", "an open of an XRC domain does not wait for a file system that provides its driver data (EFAULT), so no other process waits for it")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_xrcd *mine = open_xrcd(ctx, -1);
	struct stall s;

	stall_start(&s, slow_opener);
	CHECK(iso_told(&s.peer, 10000));
	CHECK_OK(ibv_close_xrcd(mine));
	CHECK_OK(ibv_close_xrcd(open_xrcd(ctx, -1)));
	stall_end(&s);
}
