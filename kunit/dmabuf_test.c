// SPDX-License-Identifier: GPL-2.0
/*
 * Copies and atomic operations on dma-bufs. The exporter counts the accesses,
 * and can refuse them.
 */
#include <kunit/test.h>
#include <linux/dma-buf.h>
#include <linux/dma-fence.h>
#include <linux/dma-resv.h>
#include <linux/err.h>

#include "compat.h"
#include "keel_copy.h"
#include "whole.h"

KEEL_IMPORT_NS(DMA_BUF);

#define BYTES	PAGE_SIZE

enum { READING, WRITING, WAYS };

/**
 * struct shared - a dma-buf and its accesses
 * @dmabuf: the dma-buf
 * @buf: its bytes
 * @began: number of accesses that began
 * @open: number of accesses that have not ended
 * @refuse: 0, or the error of an access that begins
 * @lose: the end of an access fails
 * @mem: the dma-buf for the walker
 * @plain: kernel memory for the walker
 * @segs: all of @mem
 * @other: all of @plain
 */
struct shared {
	struct dma_buf *dmabuf;
	u8 buf[BYTES];
	int began[WAYS];
	int open[WAYS];
	int refuse[WAYS];
	bool lose[WAYS];
	struct keel_mem mem;
	struct keel_mem plain;
	struct keel_segs segs;
	struct keel_segs other;
};

static int shared_way(enum dma_data_direction dir)
{
	return dir == DMA_FROM_DEVICE ? READING : WRITING;
}

static int shared_begin(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	struct shared *s = dmabuf->priv;
	int way = shared_way(dir);

	if (s->refuse[way])
		return s->refuse[way];
	s->began[way]++;
	s->open[way]++;
	return 0;
}

static int shared_end(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	struct shared *s = dmabuf->priv;
	int way = shared_way(dir);

	s->open[way]--;
	return s->lose[way] ? -ENXIO : 0;
}

static struct sg_table *shared_map(struct dma_buf_attachment *attach,
				   enum dma_data_direction dir)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static void shared_unmap(struct dma_buf_attachment *attach,
			 struct sg_table *sgt, enum dma_data_direction dir)
{
}

static void shared_release(struct dma_buf *dmabuf)
{
}

static const struct dma_buf_ops shared_ops = {
	.begin_cpu_access = shared_begin,
	.end_cpu_access = shared_end,
	.map_dma_buf = shared_map,
	.unmap_dma_buf = shared_unmap,
	.release = shared_release,
};

static int dmabuf_test_init(struct kunit *test)
{
	struct shared *s = kunit_kzalloc(test, sizeof(*s), GFP_KERNEL);
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	u8 *plain = kunit_kmalloc(test, BYTES, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, s);
	KUNIT_ASSERT_NOT_NULL(test, plain);
	info.ops = &shared_ops;
	info.size = BYTES;
	info.priv = s;
	s->dmabuf = dma_buf_export(&info);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, s->dmabuf);
	memset(s->buf, 's', BYTES);
	memset(plain, 'p', BYTES);
	s->mem.type = KEEL_MEM_DMABUF;
	s->mem.dmabuf = s->dmabuf;
	s->mem.start = (uintptr_t)s->buf;
	s->plain.type = KEEL_MEM_KERNEL;
	s->plain.start = (uintptr_t)plain;
	keel_segs_one(&s->segs, &s->mem, 0, BYTES);
	keel_segs_one(&s->other, &s->plain, 0, BYTES);
	test->priv = s;
	return 0;
}

static void dmabuf_test_exit(struct kunit *test)
{
	struct shared *s = test->priv;

	if (!s)
		return;
	/* No access is left open. */
	KUNIT_EXPECT_EQ(test, 0, s->open[READING]);
	KUNIT_EXPECT_EQ(test, 0, s->open[WRITING]);
	dma_buf_put(s->dmabuf);
}

static enum keel_copy_result into(struct shared *s)
{
	return whole_copy(&s->segs, 0, &s->other, 0, 100, NULL, NULL);
}

static enum keel_copy_result out_of(struct shared *s)
{
	return whole_copy(&s->other, 0, &s->segs, 0, 100, NULL, NULL);
}

static void dmabuf_bracket(struct kunit *test)
{
	struct shared *s = test->priv;
	u64 old;

	KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE, into(s));
	KUNIT_EXPECT_EQ(test, 1, s->began[WRITING]);
	KUNIT_EXPECT_EQ(test, 0, s->began[READING]);
	KUNIT_EXPECT_EQ(test, 'p', s->buf[99]);
	KUNIT_EXPECT_EQ(test, 's', s->buf[100]);
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE, out_of(s));
	KUNIT_EXPECT_EQ(test, 1, s->began[WRITING]);
	KUNIT_EXPECT_EQ(test, 1, s->began[READING]);
	KUNIT_EXPECT_EQ(test, 0, whole_atomic(&s->segs.seg[0], false, 1, 0,
					      &old));
	KUNIT_EXPECT_EQ(test, 2, s->began[WRITING]);
	KUNIT_EXPECT_EQ(test, 0, whole_atomic_write(&s->segs.seg[0], 7));
	KUNIT_EXPECT_EQ(test, 3, s->began[WRITING]);
	KUNIT_EXPECT_EQ(test, 7, *(u64 *)s->buf);
	/* A copy inside the dma-buf reads and writes it. */
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE,
			whole_copy(&s->segs, 0, &s->segs, 1000, 100, NULL, NULL));
	KUNIT_EXPECT_EQ(test, 4, s->began[WRITING]);
	KUNIT_EXPECT_EQ(test, 2, s->began[READING]);
	/* The operand is not aligned, or not 8 bytes long. */
	s->segs.seg[0].off = 1;
	KUNIT_EXPECT_EQ(test, -EINVAL, whole_atomic(&s->segs.seg[0], false, 1,
						    0, &old));
}

static void dmabuf_refused(struct kunit *test)
{
	struct shared *s = test->priv;
	u64 old;

	s->refuse[WRITING] = -ENXIO;
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DST, into(s));
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DST,
			whole_copy(&s->segs, 0, &s->segs, 1000, 100, NULL, NULL));
	KUNIT_EXPECT_EQ(test, -EFAULT, whole_atomic(&s->segs.seg[0], false, 1,
						    0, &old));
	KUNIT_EXPECT_EQ(test, -EFAULT, whole_atomic_write(&s->segs.seg[0], 7));
	KUNIT_EXPECT_EQ(test, 's', s->buf[0]);
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE, out_of(s));
	s->refuse[READING] = -ENXIO;
	KUNIT_EXPECT_EQ(test, KEEL_COPY_SRC, out_of(s));
	/* The first access has begun when the second one is refused. */
	s->refuse[READING] = 0;
	s->segs.seg[1] = s->segs.seg[0];
	s->segs.n = 2;
	s->refuse[WRITING] = 0;
	s->lose[WRITING] = true;
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DST, into(s));
	KUNIT_EXPECT_EQ(test, -EFAULT, whole_atomic_write(&s->segs.seg[0], 7));
	/* The bytes were read, although the end of the access fails. */
	s->lose[READING] = true;
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE, out_of(s));
}

/* A signal may interrupt the exporter: the transfer then ends for the same reason. */
static void dmabuf_signal(struct kunit *test)
{
	static const int errors[][2] = {
		{ -ERESTARTSYS, -EINTR }, { -EINTR, -EINTR }, { -EIO, -EFAULT },
	};
	struct shared *s = test->priv;
	struct keel_need need = {
		.kind = KEEL_NEED_OPEN, .write = true, .dmabuf = s->dmabuf,
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		s->refuse[WRITING] = errors[i][0];
		KUNIT_EXPECT_EQ(test, errors[i][1],
				keel_need_provide(&need, true, NULL, NULL));
		KUNIT_EXPECT_EQ(test, 0, s->began[WRITING]);
	}
}

static const char *fence_name(struct dma_fence *fence)
{
	return "keel_kunit";
}

static const struct dma_fence_ops fence_ops = {
	.get_driver_name = fence_name,
	.get_timeline_name = fence_name,
};

struct work {
	struct dma_fence fence;
	spinlock_t lock;
};

/* Add a fence of a device that never finishes its work on the buffer. */
static struct dma_fence *work_begin(struct kunit *test, struct shared *s)
{
	/* The last reference on the fence frees it, with kfree_rcu(). */
	struct work *w = kzalloc_obj(*w);
	struct dma_resv *resv = s->dmabuf->resv;
	int ret;

	KUNIT_ASSERT_NOT_NULL(test, w);
	spin_lock_init(&w->lock);
	dma_fence_init(&w->fence, &fence_ops, &w->lock,
		       dma_fence_context_alloc(1), 1);
	dma_resv_lock(resv, NULL);
	ret = dma_resv_reserve_fences(resv, 1);
	if (!ret)
		dma_resv_add_fence(resv, &w->fence, DMA_RESV_USAGE_READ);
	dma_resv_unlock(resv);
	KUNIT_EXPECT_EQ(test, 0, ret);
	return &w->fence;
}

static bool asked(void *arg)
{
	int *left = arg;

	return !(*left)--;
}

/* A transfer does not wait for a fence: it reports that a wait is needed. */
static void dmabuf_fence(struct kunit *test)
{
	struct shared *s = test->priv;
	struct dma_fence *fence = work_begin(test, s);
	struct keel_copy_ctl ctl;
	int left = 2;

	/* A transfer may read while a device reads. */
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE, out_of(s));
	keel_copy_ctl_init(&ctl, NULL, NULL);
	KUNIT_EXPECT_EQ(test, KEEL_COPY_ABSENT,
			keel_copy(&s->segs, 0, &s->other, 0, 100, &ctl));
	KUNIT_EXPECT_EQ(test, KEEL_NEED_OPEN, ctl.need.kind);
	KUNIT_EXPECT_PTR_EQ(test, s->dmabuf, ctl.need.dmabuf);
	KUNIT_EXPECT_TRUE(test, ctl.need.write);
	/* The wait is not allowed, or times out. */
	KUNIT_EXPECT_EQ(test, -EAGAIN,
			keel_need_provide(&ctl.need, false, NULL, NULL));
	KUNIT_EXPECT_EQ(test, -EINTR,
			keel_need_provide(&ctl.need, true, asked, &left));
	KUNIT_EXPECT_EQ(test, -1, left);
	keel_need_put(&ctl.need);
	/* A second call drops nothing. */
	KUNIT_EXPECT_EQ(test, KEEL_NEED_NONE, ctl.need.kind);
	KUNIT_EXPECT_NULL(test, ctl.need.dmabuf);
	KUNIT_EXPECT_EQ(test, 's', s->buf[0]);
	KUNIT_EXPECT_EQ(test, 0, s->began[WRITING]);
	dma_fence_signal(fence);
	memset((void *)(uintptr_t)s->plain.start, 'p', 100);
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE, into(s));
	KUNIT_EXPECT_EQ(test, 'p', s->buf[0]);
	dma_fence_put(fence);
}

/* A transfer that has begun to access other dma-bufs than those of its SGEs. */
static struct keel_open *opened_others(struct kunit *test, struct keel_copy_ctl *ctl,
				       u32 n, bool write)
{
	struct keel_open *open = kunit_kcalloc(test, n, sizeof(*open), GFP_KERNEL);
	u32 i;

	KUNIT_ASSERT_NOT_NULL(test, open);
	for (i = 0; i < n; i++) {
		open[i].need = (struct keel_need){
			.kind = KEEL_NEED_OPEN, .write = write,
		};
		list_add_tail(&open[i].node, &ctl->open);
	}
	return open;
}

/*
 * ISO-1: a program changes SGEs between two attempts of a message. The number of
 * dma-bufs with access that has begun stays bounded: each attempt looks through them,
 * with the lock of the peer. The other direction, which the peer may fill, does not
 * count.
 */
static void iso_1_dmabuf_limit(struct kunit *test)
{
	struct shared *s = test->priv;
	struct keel_copy_ctl ctl;
	struct keel_open *other;

	keel_copy_ctl_init(&ctl, NULL, NULL);
	opened_others(test, &ctl, KEEL_MAX_SGE + 1, false);
	other = opened_others(test, &ctl, KEEL_MAX_SGE, true);
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DST,
			keel_copy(&s->segs, 0, &s->other, 0, 100, &ctl));
	KUNIT_EXPECT_EQ(test, -EFAULT, keel_atomic_write(&s->segs.seg[0], 7, &ctl));
	KUNIT_EXPECT_EQ(test, KEEL_NEED_NONE, ctl.need.kind);
	/* One less, and it may begin. */
	list_del(&other->node);
	KUNIT_EXPECT_EQ(test, KEEL_COPY_ABSENT,
			keel_copy(&s->segs, 0, &s->other, 0, 100, &ctl));
	KUNIT_EXPECT_EQ(test, KEEL_NEED_OPEN, ctl.need.kind);
	KUNIT_EXPECT_PTR_EQ(test, s->dmabuf, ctl.need.dmabuf);
	keel_need_put(&ctl.need);
	KUNIT_EXPECT_EQ(test, KEEL_COPY_SRC,
			keel_copy(&s->other, 0, &s->segs, 0, 100, &ctl));
	/* The limit is for new ones. */
	other[1].need.dmabuf = s->dmabuf;
	list_add_tail(&other->node, &ctl.open);
	KUNIT_EXPECT_EQ(test, 0, keel_dmabuf_ready(s->segs.seg, 1, true, &ctl));
	KUNIT_EXPECT_EQ(test, 's', s->buf[0]);
}

static struct kunit_case dmabuf_cases[] = {
	KUNIT_CASE(dmabuf_bracket),
	KUNIT_CASE(dmabuf_refused),
	KUNIT_CASE(dmabuf_signal),
	KUNIT_CASE(dmabuf_fence),
	KUNIT_CASE(iso_1_dmabuf_limit),
	{}
};

static struct kunit_suite dmabuf_suite = {
	.name = "keel_dmabuf",
	.init = dmabuf_test_init,
	.exit = dmabuf_test_exit,
	.test_cases = dmabuf_cases,
};

kunit_test_suite(dmabuf_suite);
