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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "dev.h"
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
	dev_del();
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
static struct ibv_xrcd *tie(const char *device)
{
	int fd = SYS(open(DIR "/file", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	struct ibv_xrcd *xrcd = open_xrcd(dev_open(device), fd);

	close(fd);
	return xrcd;
}

static void unmounter(struct peer *parent)
{
	struct ibv_xrcd *xrcd;

	own_mount();
	xrcd = tie(KEEL0);
	/* As often as it is tried. */
	CHECK_SYS(umount2(DIR, 0), EBUSY);
	CHECK_SYS(umount2(DIR, 0), EBUSY);
	CHECK_OK(ibv_close_xrcd(xrcd));
	CHECK_SYS(umount2(DIR, 0), 0);
	/* A detached file system stays until the domain is closed. */
	SYS(mount("keel", DIR, "tmpfs", 0, NULL));
	xrcd = tie(KEEL0);
	CHECK_SYS(umount2(DIR, MNT_DETACH), 0);
	CHECK_OK(ibv_close_xrcd(xrcd));
	/* The last process of a mount namespace unmounts all, and then closes. */
	SYS(mount("keel", DIR, "tmpfs", 0, NULL));
	tie(KEEL0);
	peer_tell(parent);
	pause();
}

TEST(unmount, "XRC-2,ISO-1", "a user cannot unmount the file system of an open XRC domain (EBUSY); detaching it, and the death of its last process, do no harm")
{
	struct peer p;

	mkdir(DIR, 0777);
	SYS(chmod(DIR, 0777));
	peer_start(&p, unmounter);
	peer_wait(&p);
	CHECK_EQ(tree_count(KEEL0, "xrcd"), 1);
	peer_kill(&p, SIGKILL);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

static void detacher(struct peer *parent)
{
	own_mount();
	tie(KEEL1);
	SYS(umount2(DIR, MNT_DETACH));
	peer_tell(parent);
	pause();
}

TEST(removal, "XRC-2,DEV-3", "rdma link delete ends the XRC domain of a file system that its user has detached")
{
	struct peer p;

	mkdir(DIR, 0777);
	SYS(chmod(DIR, 0777));
	dev_add();
	peer_start(&p, detacher);
	peer_wait(&p);
	free(t_shell("rdma link delete " KEEL1));
	CHECK(!dev_exists(KEEL1));
	peer_kill(&p, SIGKILL);
}

/*
 * Leave the open device to the collector of sockets that are in flight, which is a
 * thread of the kernel: a socket that is on its way to itself carries it.
 */
static void flyer(struct peer *parent)
{
	char bytes[CMSG_SPACE(2 * sizeof(int))] = {};
	struct iovec iov = { .iov_base = "x", .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = bytes, .msg_controllen = sizeof(bytes),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
	struct ibv_context *ctx = dev_open(KEEL0);
	int fd = SYS(open(DIR "/file", O_RDWR | O_CREAT | O_CLOEXEC, 0600)), pair[2], fds[2];

	open_xrcd(ctx, fd);
	close(fd);
	SYS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	fds[0] = ctx->cmd_fd;
	fds[1] = pair[1];
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(cmsg), fds, sizeof(fds));
	CHECK_EQ(sendmsg(pair[0], &msg, 0), 1);
	peer_tell(parent);
	pause();
}

TEST(collected, "XRC-2,PD-3", "a file system can be unmounted after a thread of the kernel has closed the last XRC domain of its files")
{
	struct peer p;
	int i, busy = 1;

	mkdir(DIR, 0777);
	SYS(unshare(CLONE_NEWNS));
	SYS(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	SYS(mount("keel", DIR, "tmpfs", 0, NULL));
	peer_start(&p, flyer);
	peer_wait(&p);
	CHECK_SYS(umount2(DIR, 0), EBUSY);
	peer_kill(&p, SIGKILL);
	for (i = 0; i < 10000 && busy; i++) {
		/* The close of a socket starts the collector. */
		close(SYS(socket(AF_UNIX, SOCK_STREAM, 0)));
		usleep(1000);
		busy = umount2(DIR, 0);
	}
	CHECK(!busy);
}

/* Open a domain, with driver data. */
static int open_with(int dev, const void *data)
{
	static struct ib_uverbs_open_xrcd cmd = { .fd = -1, .oflags = O_CREAT };
	static struct ib_uverbs_open_xrcd_resp resp;
	struct raw_invoke inv = {
		.command = IB_USER_VERBS_CMD_OPEN_XRCD,
		.in = &cmd, .in_len = sizeof(cmd),
		.out = &resp, .out_len = sizeof(resp),
		.drv_in = data, .drv_in_len = 64,
	};

	return raw_invoke(dev, &inv);
}

/* The page of the FUSE file is not present. */
static void slow_opener(struct peer *parent)
{
	static const char zero[64], other[64] = { [63] = 1 };
	int fd = SYS(open(STALL_FILE, O_RDONLY | O_CLOEXEC));
	void *page = mmap(NULL, ISO_PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	int dev = dev_open(KEEL0)->cmd_fd;

	CHECK(page != MAP_FAILED);
	CHECK_RET(open_with(dev, zero), 0);
	CHECK_RET(open_with(dev, other), EOPNOTSUPP);
	CHECK_RET(open_with(dev, page), EFAULT);
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
