/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Complete copies and atomic operations, for tests without locks: the thread of
 * the test provides absent memory itself.
 */
#ifndef KEEL_WHOLE_H
#define KEEL_WHOLE_H

#include <linux/slab.h>

#include "compat.h"
#include "keel_copy.h"

/* End the first access to a dma-buf that is still open. */
static inline void whole_close(struct keel_copy_ctl *ctl)
{
	struct keel_open *open = list_first_entry(&ctl->open, struct keel_open,
						  node);

	list_del(&open->node);
	open->need.kind = KEEL_NEED_CLOSE;
	if (keel_need_provide(&open->need, true, NULL, NULL))
		ctl->lost |= open->need.write;
	keel_need_put(&open->need);
	kfree(open);
}

/* Provide the memory that the last call was missing. */
static inline void whole_provide(struct keel_copy_ctl *ctl)
{
	struct keel_need need = {};
	struct keel_open *open;

	swap(need, ctl->need);
	if (need.kind == KEEL_NEED_CLOSE) {
		whole_close(ctl);
		return;
	}
	if (keel_need_provide(&need, need.kind == KEEL_NEED_OPEN, ctl->stop,
			      ctl->arg)) {
		ctl->lacks = need;
		keel_need_put(&need);
		return;
	}
	if (need.kind != KEEL_NEED_OPEN) {
		keel_need_put(&need);
		return;
	}
	open = kzalloc_obj(*open);
	if (!open)
		return;
	open->need = need;
	list_add_tail(&open->node, &ctl->open);
}

static inline enum keel_copy_result
whole_copy(const struct keel_segs *dst, u64 dst_off,
	   const struct keel_segs *src, u64 src_off, u64 len,
	   bool (*stop)(void *arg), void *arg)
{
	enum keel_copy_result res;
	struct keel_copy_ctl ctl;

	keel_copy_ctl_init(&ctl, stop, arg);
	while ((res = keel_copy(dst, dst_off, src, src_off, len, &ctl)) ==
	       KEEL_COPY_ABSENT)
		whole_provide(&ctl);
	while (!list_empty(&ctl.open))
		whole_close(&ctl);
	return res;
}

static inline int whole_end(struct keel_copy_ctl *ctl, int ret)
{
	while (!list_empty(&ctl->open))
		whole_close(ctl);
	return !ret && ctl->lost ? -EFAULT : ret;
}

static inline int whole_atomic(const struct keel_seg *seg, bool swap,
			       u64 compare_add, u64 new, u64 *old)
{
	struct keel_copy_ctl ctl;
	int ret;

	keel_copy_ctl_init(&ctl, NULL, NULL);
	while ((ret = keel_atomic(seg, swap, compare_add, new, old, &ctl)) ==
	       -EAGAIN)
		whole_provide(&ctl);
	return whole_end(&ctl, ret);
}

static inline int whole_atomic_write(const struct keel_seg *seg, u64 value)
{
	struct keel_copy_ctl ctl;
	int ret;

	keel_copy_ctl_init(&ctl, NULL, NULL);
	while ((ret = keel_atomic_write(seg, value, &ctl)) == -EAGAIN)
		whole_provide(&ctl);
	return whole_end(&ctl, ret);
}

#endif /* KEEL_WHOLE_H */
