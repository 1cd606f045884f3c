// SPDX-License-Identifier: GPL-2.0
/*
 * XRC domains that no process opens or closes: those of kernel consumers, and those
 * that a thread of the kernel closes.
 */
#include <linux/anon_inodes.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/fcntl.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/sched/task.h>

#include "keel.h"
#include "keel_domain.h"
#include "pair.h"

/* The domain of the kernel counts for no user. */
static void xrc_1_of_kernel(struct kunit *test)
{
	struct pair *p = test->priv;
	atomic64_t *count = &to_kdev(p->ibdev)->reg.quotas.count[KEEL_XRCD];
	s64 before = atomic64_read(count);
	struct ib_xrcd *xrcd = ib_alloc_xrcd_user(p->ibdev, NULL, NULL);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, xrcd);
	KUNIT_EXPECT_TRUE(test, to_kxrcd(xrcd)->obj.kernel);
	KUNIT_EXPECT_NULL(test, to_kxrcd(xrcd)->obj.user);
	KUNIT_EXPECT_FALSE(test, to_kxrcd(xrcd)->tied);
	KUNIT_EXPECT_EQ(test, before, atomic64_read(count));
	KUNIT_EXPECT_EQ(test, 0, ib_dealloc_xrcd_user(xrcd, NULL));
}

/* References on the file's name: one of the file, and one of each pin. */
static int names(struct file *file)
{
	return d_count(file->f_path.dentry);
}

/* A thread of the kernel drops pins, a little later. */
static void names_become(struct kunit *test, struct file *file, int want)
{
	int i;

	for (i = 0; i < 10000 && names(file) != want; i++)
		usleep_range(500, 1000);
	KUNIT_EXPECT_EQ(test, want, names(file));
}

static struct ib_xrcd *open_of(struct kunit *test, struct file *file)
{
	struct pair *p = test->priv;
	struct ib_xrcd *xrcd = ib_alloc_xrcd_user(p->ibdev, file_inode(file), NULL);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, xrcd);
	return xrcd;
}

/*
 * XRC-2: a file system stays while a domain is tied to one of its inodes, and until
 * ib_uverbs has dropped the inode: a later open shows that it has.
 */
static void xrc_2_file_system_stays(struct kunit *test)
{
	static const struct file_operations fops = { .owner = THIS_MODULE };
	struct file *file = anon_inode_getfile("keel_kunit", &fops, NULL, O_RDONLY);
	struct pair *p = test->priv;
	struct keel_dev *kdev = to_kdev(p->ibdev);
	struct ib_xrcd *xrcd;
	int fd = get_unused_fd_flags(O_CLOEXEC);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, file);
	KUNIT_ASSERT_GE(test, fd, 0);
	/* This thread has no descriptor of the inode. */
	KUNIT_EXPECT_EQ(test, -EBADF, PTR_ERR_OR_ZERO(ib_alloc_xrcd_user(p->ibdev,
									 file_inode(file),
									 NULL)));
	get_file(file);
	fd_install(fd, file);
	xrcd = open_of(test, file);
	KUNIT_EXPECT_TRUE(test, to_kxrcd(xrcd)->tied);
	KUNIT_EXPECT_EQ(test, 2, names(file));
	KUNIT_EXPECT_EQ(test, 0, ib_dealloc_xrcd_user(xrcd, NULL));
	/* ib_uverbs may still have the inode; so has the context of another thread. */
	keel_xrcd_pins_over(kdev, &init_task);
	flush_workqueue(kdev->wq);
	flush_delayed_fput();
	KUNIT_EXPECT_EQ(test, 2, names(file));
	/* The open of a second domain drops the first, and has a pin of its own. */
	xrcd = open_of(test, file);
	names_become(test, file, 2);
	KUNIT_EXPECT_EQ(test, 0, ib_dealloc_xrcd_user(xrcd, NULL));
	flush_workqueue(kdev->wq);
	flush_delayed_fput();
	KUNIT_EXPECT_EQ(test, 2, names(file));
	/* So does the close of a third. */
	xrcd = open_of(test, file);
	KUNIT_EXPECT_EQ(test, 0, ib_dealloc_xrcd_user(xrcd, NULL));
	names_become(test, file, 2);
	/* And the end of the context that this thread closes. */
	keel_xrcd_pins_over(kdev, current);
	names_become(test, file, 1);
	close_fd(fd);
	fput(file);
	/* It has operations of this module. */
	flush_delayed_fput();
}

static struct kunit_case xrcd_cases[] = {
	KUNIT_CASE(xrc_2_file_system_stays),
	KUNIT_CASE(xrc_1_of_kernel),
	{}
};

static struct kunit_suite xrcd_suite = {
	.name = "keel_xrcd",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = xrcd_cases,
};
kunit_test_suite(xrcd_suite);
