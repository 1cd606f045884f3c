// SPDX-License-Identifier: GPL-2.0
/*
 * dma-bufs of other drivers as memory. There is no DMA here that they could be
 * mapped for: processors copy, through the exporter's kernel mapping, and each
 * access is bracketed as dma-buf wants it of processors.
 *
 * So a buffer must have such a mapping, and it must be of memory: one that
 * only devices reach, or that is I/O space, is of no use. The exporter keeps
 * it in place while it is mapped; nothing has to be told when it moves.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/iosys-map.h>
#include <linux/jiffies.h>
#include <linux/sched/signal.h>
#include <kunit/visibility.h>

#include "compat.h"
#include "keel_walk.h"

/* Between two looks at whether to go on waiting. */
#define KEEL_DMABUF_WAIT	(HZ / 10)

static enum dma_data_direction keel_dmabuf_dir(bool write)
{
	/* What is written is a part, next to bytes that shall stay. */
	return write ? DMA_BIDIRECTIONAL : DMA_FROM_DEVICE;
}

/**
 * keel_dmabuf_check() - only ranges inside, and what the file was opened for
 * @dmabuf: the dma-buf
 * @offset: first byte
 * @length: bytes
 * @write: they are to be written, by a way that the file has a say in
 *
 * Return: 0; -EINVAL, -EACCES.
 */
int keel_dmabuf_check(const struct dma_buf *dmabuf, u64 offset, u64 length,
		      bool write)
{
	fmode_t want = FMODE_READ | (write ? FMODE_WRITE : 0);

	if (!length || offset > dmabuf->size || length > dmabuf->size - offset)
		return -EINVAL;
	/* As for mmap(): what cannot be read cannot be shared at all. */
	if (want & ~dmabuf->file->f_mode)
		return -EACCES;
	return 0;
}

/*
 * The first access decides for some exporters (udmabuf) what later ones can
 * be: it is for all that the file allows.
 */
static int keel_dmabuf_vmap(struct dma_buf *dmabuf, u64 *addr)
{
	enum dma_data_direction dir;
	struct iosys_map map;
	int ret;

	dir = keel_dmabuf_dir(dmabuf->file->f_mode & FMODE_WRITE);

	ret = dma_buf_vmap_unlocked(dmabuf, &map);
	if (ret)
		return ret;
	ret = -EOPNOTSUPP;
	if (map.is_iomem)
		goto err_map;
	/* An exporter that cannot let processors in says so now. */
	ret = dma_buf_begin_cpu_access(dmabuf, dir);
	if (ret)
		goto err_map;
	ret = dma_buf_end_cpu_access(dmabuf, dir);
	if (ret)
		goto err_map;
	*addr = (uintptr_t)map.vaddr;
	return 0;

err_map:
	dma_buf_vunmap_unlocked(dmabuf, &map);
	return ret;
}

/**
 * keel_dmabuf_map() - a dma-buf as memory
 * @mem: becomes that memory, from @offset on
 * @dmabuf: the dma-buf, on which the caller has a reference; the memory's on
 *	success
 * @offset: first byte in it
 * @length: bytes
 * @write: they are to be written, too
 *
 * The dma-buf stays, whoever closes which file, until keel_dmabuf_unmap().
 *
 * Context: may sleep.
 * Return: 0; -EINVAL for a range that is empty or leaves it; -EACCES for one
 * not opened for such use, -EOPNOTSUPP for one that the kernel cannot reach;
 * or what the exporter says.
 */
int keel_dmabuf_map(struct keel_mem *mem, struct dma_buf *dmabuf, u64 offset,
		    u64 length, bool write)
{
	u64 addr;
	int ret;

	ret = keel_dmabuf_check(dmabuf, offset, length, write);
	if (!ret)
		ret = keel_dmabuf_vmap(dmabuf, &addr);
	if (ret)
		return ret;
	mem->type = KEEL_MEM_DMABUF;
	mem->dmabuf = dmabuf;
	mem->start = addr + offset;
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_dmabuf_map);

/**
 * keel_dmabuf_unmap() - undo keel_dmabuf_map()
 * @mem: the memory, which nobody uses any more
 * @offset: as it was given there
 *
 * Context: may sleep.
 */
void keel_dmabuf_unmap(const struct keel_mem *mem, u64 offset)
{
	struct iosys_map map = IOSYS_MAP_INIT_VADDR((void *)(uintptr_t)
						    (mem->start - offset));

	dma_buf_vunmap_unlocked(mem->dmabuf, &map);
	dma_buf_put(mem->dmabuf);
}
EXPORT_SYMBOL_IF_KUNIT(keel_dmabuf_unmap);

/**
 * struct keel_dmabuf_copy - a copy that is to begin
 * @dst: its destination
 * @src: its source
 * @ctl: what may end it early, or NULL
 */
struct keel_dmabuf_copy {
	const struct keel_segs *dst;
	const struct keel_segs *src;
	const struct keel_copy_ctl *ctl;
};

static bool keel_dmabuf_stop(const struct keel_dmabuf_copy *copy)
{
	/* Atomics have nobody to ask: their wait is a short one. */
	if (!copy)
		return true;
	return keel_segs_dead(copy->src->seg, copy->src->n) ||
	       keel_segs_dead(copy->dst->seg, copy->dst->n) ||
	       (copy->ctl && copy->ctl->stop(copy->ctl->arg));
}

/*
 * Wait for the work of others on the buffer, which may take long, and must not
 * keep up who wants any of the regions back. 0 or -EINTR.
 */
static int keel_dmabuf_wait(struct dma_buf *dmabuf, bool write,
			    const struct keel_dmabuf_copy *copy)
{
	long left;

	do {
		left = dma_resv_wait_timeout(dmabuf->resv,
					     dma_resv_usage_rw(write), false,
					     KEEL_DMABUF_WAIT);
		if (left > 0)
			return 0;
	} while (!fatal_signal_pending(current) && !keel_dmabuf_stop(copy));
	return -EINTR;
}

/* Of @seg[0..@n[ those that are of dma-bufs, or none: 0, -EFAULT or -EINTR. */
static int keel_dmabuf_begin_list(const struct keel_seg *seg, u32 n, bool write,
				  const struct keel_dmabuf_copy *copy)
{
	int ret = 0;
	u32 i;

	for (i = 0; i < n && !ret; i++) {
		if (seg[i].mem->type != KEEL_MEM_DMABUF)
			continue;
		ret = keel_dmabuf_wait(seg[i].mem->dmabuf, write, copy);
		if (!ret && dma_buf_begin_cpu_access(seg[i].mem->dmabuf,
						     keel_dmabuf_dir(write)))
			ret = -EFAULT;
	}
	/* The last one tried is the one that failed. */
	if (ret)
		keel_dmabuf_end(seg, i - 1, write);
	return ret;
}

/**
 * keel_dmabuf_begin() - before processors access a few bytes
 * @seg: segments; those of other memory than dma-bufs are of no interest
 * @n: how many
 * @write: they are to be written
 *
 * Context: may sleep.
 * Return: 0, and keel_dmabuf_end() is to follow; -EFAULT where the exporter
 * refuses, or devices do not come to an end with the buffer; -EINTR for a
 * fatal signal.
 */
int keel_dmabuf_begin(const struct keel_seg *seg, u32 n, bool write)
{
	int ret = keel_dmabuf_begin_list(seg, n, write, NULL);

	return ret && !fatal_signal_pending(current) ? -EFAULT : ret;
}

/**
 * keel_dmabuf_end() - after keel_dmabuf_begin()
 * @seg: as there
 * @n: likewise
 * @write: likewise
 *
 * What was written is there for every device.
 *
 * Context: may sleep.
 * Return: 0, or -EFAULT where the exporter does not say that it is.
 */
int keel_dmabuf_end(const struct keel_seg *seg, u32 n, bool write)
{
	int ret = 0;
	u32 i;

	for (i = 0; i < n; i++)
		if (seg[i].mem->type == KEEL_MEM_DMABUF &&
		    dma_buf_end_cpu_access(seg[i].mem->dmabuf,
					   keel_dmabuf_dir(write)))
			ret = -EFAULT;
	return ret;
}

static enum keel_copy_result
keel_dmabuf_failed(const struct keel_dmabuf_copy *copy, int ret,
		   enum keel_copy_result side)
{
	if (ret != -EINTR)
		return side;
	if (keel_segs_dead(copy->src->seg, copy->src->n))
		return KEEL_COPY_SRC;
	if (keel_segs_dead(copy->dst->seg, copy->dst->n))
		return KEEL_COPY_DST;
	return KEEL_COPY_STOPPED;
}

/**
 * keel_dmabuf_enter() - before a copy with dma-bufs in it
 * @dst: its destination
 * @src: its source
 * @ctl: what may end a wait for devices early, or NULL
 *
 * Context: may sleep.
 * Return: KEEL_COPY_DONE, and keel_dmabuf_leave() is to follow; or how the
 * copy ended before it began.
 */
enum keel_copy_result keel_dmabuf_enter(const struct keel_segs *dst,
					const struct keel_segs *src,
					const struct keel_copy_ctl *ctl)
{
	const struct keel_dmabuf_copy copy = {
		.dst = dst, .src = src, .ctl = ctl,
	};
	int ret;

	ret = keel_dmabuf_begin_list(src->seg, src->n, false, &copy);
	if (ret)
		return keel_dmabuf_failed(&copy, ret, KEEL_COPY_SRC);
	ret = keel_dmabuf_begin_list(dst->seg, dst->n, true, &copy);
	if (!ret)
		return KEEL_COPY_DONE;
	keel_dmabuf_end(src->seg, src->n, false);
	return keel_dmabuf_failed(&copy, ret, KEEL_COPY_DST);
}

/**
 * keel_dmabuf_leave() - after a copy with dma-bufs in it
 * @dst: as keel_dmabuf_enter()
 * @src: likewise
 * @res: how it ended
 *
 * Context: may sleep.
 * Return: @res, or KEEL_COPY_DST where the exporter fails now.
 */
enum keel_copy_result keel_dmabuf_leave(const struct keel_segs *dst,
					const struct keel_segs *src,
					enum keel_copy_result res)
{
	int ret = keel_dmabuf_end(dst->seg, dst->n, true);

	/* What was read has been read. */
	keel_dmabuf_end(src->seg, src->n, false);
	return ret && res == KEEL_COPY_DONE ? KEEL_COPY_DST : res;
}
