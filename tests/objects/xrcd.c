// SPDX-License-Identifier: GPL-2.0
/*
 * XRC domains and their inodes: what does not need an SRQ.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "peer.h"
#include "t.h"
#include "tree.h"

/* The test mounts its own file system, so that it can count inodes. */
#define DIR	"/tmp/xrcd"

static void make_fs(void)
{
	mkdir(DIR, 0700);
	/*
	 * Other tests do not see this mount, and it ends with the test's
	 * processes.
	 */
	SYS(unshare(CLONE_NEWNS));
	SYS(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	SYS(mount("xrcd", DIR, "tmpfs", 0, "size=8m,nr_inodes=64"));
}

/* umount2() fails if anything of the file system is still in use. */
static void remove_fs(void)
{
	SYS(umount2(DIR, 0));
}

static int make_file(const char *path)
{
	return SYS(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
}

static struct ibv_xrcd *open_xrcd(struct ibv_context *ctx, int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd, .oflags = oflags,
	};

	return ibv_open_xrcd(ctx, &attr);
}

/*
 * Check that exactly one domain exists and has this many opens; return its
 * number.
 */
static unsigned int check_opens(unsigned int opens)
{
	const struct tree_obj *xrcd;
	struct tree tree;
	unsigned int id;

	tree_read(KEEL0, &tree);
	xrcd = tree_only(&tree, "xrcd");
	CHECK_EQ(tree_value(xrcd, "opens"), opens);
	id = xrcd->id;
	tree_free(&tree);
	return id;
}

TEST(same_inode, "XRC-1", "descriptors of one inode by another path, a hard link, a symlink and dup() open the same domain")
{
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	struct stat st;
	struct tree tree;
	char inode[64];
	int fd;

	make_fs();
	fd = make_file(DIR "/a");
	SYS(mkdir(DIR "/d", 0700));
	SYS(link(DIR "/a", DIR "/d/b"));
	SYS(symlink(DIR "/a", DIR "/c"));
	MUST(open_xrcd(ctx, fd, O_CREAT));
	MUST(open_xrcd(ctx, SYS(open(DIR "/a", O_RDONLY)), 0));
	MUST(open_xrcd(other, SYS(open(DIR "/d/../d/b", O_WRONLY)), 0));
	MUST(open_xrcd(ctx, SYS(open(DIR "/c", O_RDWR)), 0));
	MUST(open_xrcd(other, SYS(dup(fd)), 0));
	check_opens(5);
	SYS(fstat(fd, &st));
	snprintf(inode, sizeof(inode), "inode %u:%u:%lu opens 5",
		 (unsigned int)(st.st_dev >> 8), (unsigned int)(st.st_dev & 255),
		 st.st_ino);
	tree_read(KEEL0, &tree);
	CHECK_STR(tree_only(&tree, "xrcd")->text, inode);
}

TEST(other_inode, "XRC-1", "descriptors of different inodes open different domains, even if both files had the same name")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	int a, b;

	make_fs();
	a = make_file(DIR "/a");
	SYS(unlink(DIR "/a"));
	b = make_file(DIR "/a");
	MUST(open_xrcd(ctx, a, O_CREAT));
	CHECK_NULL(open_xrcd(ctx, b, 0), EAGAIN);
	MUST(open_xrcd(ctx, b, O_CREAT | O_EXCL));
	MUST(open_xrcd(ctx, SYS(open(DIR, O_RDONLY)), O_CREAT | O_EXCL));
	CHECK_EQ(tree_count(KEEL0, "xrcd"), 3);
}

static void open_by_path(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);

	MUST(open_xrcd(ctx, SYS(open(DIR "/a", O_RDWR)), 0));
	peer_tell(parent);
	peer_wait(parent);
}

/*
 * A process with its own mount, PID, UTS and IPC namespaces and another path.
 */
static void open_in_container(struct peer *parent)
{
	struct ibv_context *ctx;

	SYS(unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID));
	SYS(mkdir("/tmp/inside", 0700));
	SYS(mount(DIR, "/tmp/inside", NULL, MS_BIND, NULL));
	SYS(umount2(DIR, MNT_DETACH));
	CHECK_SYS(open(DIR "/a", O_RDWR), ENOENT);
	ctx = dev_open(KEEL0);
	MUST(open_xrcd(ctx, SYS(open("/tmp/inside/a", O_RDWR)), 0));
	peer_tell(parent);
	peer_wait(parent);
}

TEST(other_process, "XRC-1", "another process and a container that has the file at another path open the same domain")
{
	struct peer p, container;
	struct ibv_context *ctx;
	unsigned int id;

	make_fs();
	close(make_file(DIR "/a"));
	ctx = dev_open(KEEL0);
	MUST(open_xrcd(ctx, SYS(open(DIR "/a", O_RDWR)), O_CREAT));
	id = check_opens(1);
	peer_start(&p, open_by_path);
	peer_wait(&p);
	CHECK_EQ(check_opens(2), id);
	rmdir("/tmp/inside");
	peer_start(&container, open_in_container);
	peer_wait(&container);
	CHECK_EQ(check_opens(3), id);
	peer_kill(&p, SIGKILL);
	CHECK_EQ(check_opens(2), id);
	peer_tell(&container);
	peer_end(&container);
	CHECK_EQ(check_opens(1), id);
	rmdir("/tmp/inside");
}

TEST(any_file, "XRC-1", "a descriptor duplicated after unlink() and both ends of a pipe open the same domain as the original")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	int fds[2], fd;

	make_fs();
	fd = make_file(DIR "/a");
	SYS(unlink(DIR "/a"));
	SYS(pipe(fds));
	MUST(open_xrcd(ctx, fd, O_CREAT));
	MUST(open_xrcd(ctx, SYS(fcntl(fd, F_DUPFD, 100)), 0));
	check_opens(2);
	/* Any inode works, even that of a pipe. */
	MUST(open_xrcd(ctx, fds[0], O_CREAT | O_EXCL));
	MUST(open_xrcd(ctx, fds[1], 0));
	CHECK_EQ(tree_count(KEEL0, "xrcd"), 2);
}

TEST(creat, "XRC-2", "O_CREAT creates a domain if the inode has none, and opens the existing domain otherwise")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_xrcd *a, *b;
	unsigned int id;
	int fd;

	make_fs();
	fd = make_file(DIR "/a");
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	a = MUST(open_xrcd(ctx, fd, O_CREAT));
	id = check_opens(1);
	b = MUST(open_xrcd(ctx, fd, O_CREAT));
	CHECK_EQ(check_opens(2), id);
	CHECK(a != b);
	CHECK_OK(ibv_close_xrcd(a));
	CHECK_EQ(check_opens(1), id);
	CHECK_OK(ibv_close_xrcd(b));
}

TEST(no_creat, "XRC-3", "without O_CREAT, ibv_open_xrcd() of an inode without a domain fails with EAGAIN")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_xrcd *xrcd;
	int fd;

	make_fs();
	fd = make_file(DIR "/a");
	CHECK_NULL(open_xrcd(ctx, fd, 0), EAGAIN);
	CHECK_NULL(open_xrcd(ctx, fd, O_EXCL), EAGAIN);
	CHECK_NULL(open_xrcd(ctx, fd, O_RDWR | O_TRUNC), EAGAIN);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	xrcd = MUST(open_xrcd(ctx, fd, O_CREAT));
	CHECK_OK(ibv_close_xrcd(MUST(open_xrcd(ctx, fd, 0))));
	CHECK_OK(ibv_close_xrcd(xrcd));
	CHECK_NULL(open_xrcd(ctx, fd, 0), EAGAIN);
}

TEST(excl, "XRC-4", "if the inode has a domain, ibv_open_xrcd() refuses O_CREAT|O_EXCL and O_EXCL with EINVAL")
{
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	struct ibv_xrcd *xrcd;
	int fd;

	make_fs();
	fd = make_file(DIR "/a");
	xrcd = MUST(open_xrcd(ctx, fd, O_CREAT | O_EXCL));
	CHECK_NULL(open_xrcd(ctx, fd, O_CREAT | O_EXCL), EINVAL);
	CHECK_NULL(open_xrcd(other, fd, O_CREAT | O_EXCL), EINVAL);
	CHECK_NULL(open_xrcd(other, fd, O_EXCL), EINVAL);
	check_opens(1);
	CHECK_OK(ibv_close_xrcd(xrcd));
	MUST(open_xrcd(other, fd, O_CREAT | O_EXCL));
}

TEST(no_inode, "XRC-5", "fd -1 with O_CREAT creates a new domain each time, and the domain has no inode")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_xrcd *xrcd[3];
	struct tree tree;
	int i;

	for (i = 0; i < 3; i++)
		xrcd[i] = MUST(open_xrcd(ctx, -1, i ? O_CREAT | O_EXCL :
						      O_CREAT));
	tree_read(KEEL0, &tree);
	CHECK_EQ(tree.count, 3);
	for (i = 0; i < 3; i++)
		CHECK_STR(tree.objs[i].text, "no inode");
	for (i = 0; i < 3; i++) {
		CHECK_OK(ibv_close_xrcd(xrcd[i]));
		CHECK_EQ(tree_count(KEEL0, NULL), 2 - i);
	}
}

TEST(no_inode_no_creat, "XRC-5", "the provider refuses fd -1 without O_CREAT with EINVAL, which ib_uverbs would accept")
{
	struct ibv_context *ctx = dev_open(KEEL0);

	CHECK_NULL(open_xrcd(ctx, -1, 0), EINVAL);
	CHECK_NULL(open_xrcd(ctx, -1, O_EXCL), EINVAL);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

TEST(bad_fd, "XRC-6", "ibv_open_xrcd() refuses a descriptor that is not open with EBADF, with and without O_CREAT")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	int fd, path;

	make_fs();
	fd = make_file(DIR "/a");
	path = SYS(open(DIR "/a", O_PATH));
	close(fd);
	CHECK_NULL(open_xrcd(ctx, fd, O_CREAT), EBADF);
	CHECK_NULL(open_xrcd(ctx, fd, 0), EBADF);
	CHECK_NULL(open_xrcd(ctx, -2, O_CREAT), EBADF);
	CHECK_NULL(open_xrcd(ctx, 1 << 30, O_CREAT), EBADF);
	/* An O_PATH descriptor names a file but did not open it. */
	CHECK_NULL(open_xrcd(ctx, path, O_CREAT), EBADF);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

TEST(comp_mask, "XRC-2", "ibv_open_xrcd() refuses an attr without FD or OFLAGS, or with an unknown comp_mask bit, with EINVAL")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_xrcd_init_attr attr = { .fd = -1, .oflags = O_CREAT };

	for (attr.comp_mask = 0; attr.comp_mask < 3; attr.comp_mask++)
		CHECK_NULL(ibv_open_xrcd(ctx, &attr), EINVAL);
	for (attr.comp_mask = 3 | 4; attr.comp_mask != 3;
	     attr.comp_mask = 3 | (attr.comp_mask & ~3u) << 1)
		CHECK_NULL(ibv_open_xrcd(ctx, &attr), EINVAL);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

TEST(last_close, "XRC-7", "the last ibv_close_xrcd() destroys the domain, and the inode can get a new domain")
{
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	struct ibv_xrcd *a, *b;
	unsigned int id;
	int fd;

	make_fs();
	fd = make_file(DIR "/a");
	a = MUST(open_xrcd(ctx, fd, O_CREAT));
	b = MUST(open_xrcd(other, fd, 0));
	id = check_opens(2);
	CHECK_OK(ibv_close_xrcd(a));
	CHECK_EQ(check_opens(1), id);
	CHECK_OK(ibv_close_xrcd(b));
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	MUST(open_xrcd(ctx, fd, O_CREAT | O_EXCL));
	CHECK(check_opens(1) != id);
	/* ibv_close_device() closes the context's domains. */
	CHECK_OK(ibv_close_device(ctx));
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	MUST(open_xrcd(other, fd, O_CREAT | O_EXCL));
}

static uint64_t free_inodes(uint64_t *blocks)
{
	struct statvfs st;

	SYS(statvfs(DIR, &st));
	*blocks = st.f_bfree;
	return st.f_ffree;
}

static void hold_xrcd(struct peer *parent)
{
	int fd = peer_get_fd(parent);
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_xrcd *xrcd = MUST(open_xrcd(ctx, fd, 0));

	close(fd);
	peer_tell(parent);
	peer_wait(parent);
	CHECK_OK(ibv_close_xrcd(xrcd));
	peer_tell(parent);
	peer_wait(parent);
}

TEST(unlinked, "XRC-8", "an unlinked file that no process has open stays until the last close of its domain")
{
	uint64_t inodes, blocks, now_blocks;
	static char data[1 << 20];
	struct ibv_context *ctx;
	struct ibv_xrcd *xrcd;
	struct peer p;
	int fd;

	make_fs();
	inodes = free_inodes(&blocks);
	peer_start(&p, hold_xrcd);
	ctx = dev_open(KEEL0);
	fd = make_file(DIR "/a");
	CHECK_EQ(SYS(write(fd, data, sizeof(data))), sizeof(data));
	CHECK_EQ(free_inodes(&now_blocks), inodes - 1);
	CHECK_EQ(now_blocks, blocks - sizeof(data) / 4096);
	xrcd = MUST(open_xrcd(ctx, fd, O_CREAT));
	peer_put_fd(&p, fd);
	peer_wait(&p);
	close(fd);
	SYS(unlink(DIR "/a"));
	/*
	 * The peer has received the descriptor, so the socket no longer holds
	 * the file.
	 */
	check_opens(2);
	CHECK_EQ(free_inodes(&now_blocks), inodes - 1);
	CHECK_EQ(now_blocks, blocks - sizeof(data) / 4096);
	CHECK_OK(ibv_close_xrcd(xrcd));
	check_opens(1);
	CHECK_EQ(free_inodes(&now_blocks), inodes - 1);
	peer_tell(&p);
	peer_wait(&p);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	CHECK_EQ(free_inodes(&now_blocks), inodes);
	CHECK_EQ(now_blocks, blocks);
	peer_tell(&p);
	peer_end(&p);
	remove_fs();
}

static void die_with_xrcd(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	int fd = make_file(DIR "/b");

	MUST(open_xrcd(ctx, fd, O_CREAT));
	MUST(open_xrcd(ctx, fd, 0));
	close(fd);
	SYS(unlink(DIR "/b"));
	peer_tell(parent);
	pause();
}

TEST(unlinked_killed, "XRC-8,PD-3", "after a process with a domain of an unlinked file is killed, the inode is freed")
{
	uint64_t inodes, blocks, now_blocks;
	struct peer p;

	make_fs();
	inodes = free_inodes(&blocks);
	peer_start(&p, die_with_xrcd);
	peer_wait(&p);
	check_opens(2);
	CHECK_EQ(free_inodes(&now_blocks), inodes - 1);
	peer_kill(&p, SIGKILL);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	CHECK_EQ(free_inodes(&now_blocks), inodes);
	remove_fs();
}
