// SPDX-License-Identifier: GPL-2.0
/*
 * keel_fault - commit a fault that a checker of the kernel must report
 *
 * For the test of "keel-run --debug". The parameter fault chooses: "overflow"
 * writes beyond its memory (KASAN), "leak" forgets its memory (kmemleak), "lock"
 * takes two locks in both orders (lockdep), all other words do nothing.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>

static char *fault = "none";
module_param(fault, charp, 0);
MODULE_PARM_DESC(fault, "overflow, leak or lock");

static DEFINE_MUTEX(keel_fault_one);
static DEFINE_MUTEX(keel_fault_two);

/* The reports name these functions. */
static noinline int keel_fault_overflow(void)
{
	size_t size = 24;
	char *buf = kmalloc(size, GFP_KERNEL);

	if (!buf)
		return -ENOMEM;
	/* The compiler must not know that this is beyond the end. */
	OPTIMIZER_HIDE_VAR(size);
	WRITE_ONCE(buf[size], 1);
	kfree(buf);
	return 0;
}

static noinline int keel_fault_leak(void)
{
	char *buf;
	int i;

	/* A stale register or stack slot may still point to some of them. */
	for (i = 0; i < 16; i++) {
		buf = kmalloc(100, GFP_KERNEL);
		if (!buf)
			return -ENOMEM;
		WRITE_ONCE(*buf, 1);
	}
	return 0;
}

static noinline void keel_fault_take(struct mutex *first, struct mutex *second)
{
	mutex_lock(first);
	mutex_lock(second);
	mutex_unlock(second);
	mutex_unlock(first);
}

static int __init keel_fault_init(void)
{
	if (sysfs_streq(fault, "overflow"))
		return keel_fault_overflow();
	if (sysfs_streq(fault, "leak"))
		return keel_fault_leak();
	if (sysfs_streq(fault, "lock")) {
		keel_fault_take(&keel_fault_one, &keel_fault_two);
		keel_fault_take(&keel_fault_two, &keel_fault_one);
	}
	return 0;
}

static void __exit keel_fault_exit(void)
{
}

module_init(keel_fault_init);
module_exit(keel_fault_exit);
MODULE_DESCRIPTION("Faults for the test of keel-run --debug");
MODULE_LICENSE("GPL");
