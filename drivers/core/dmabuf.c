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
#include <kunit/visibility.h>

#include "compat.h"
#include "keel_copy.h"
#include "keel_worker.h"

/* Between two looks at whether to go on waiting. */
#define KEEL_DMABUF_WAIT	(HZ / 10)

static enum dma_data_direction keel_dmabuf_dir(bool write)
{
	/* A write changes a part, next to bytes that shall stay. */
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

/*
 * Wait for the work of others on the buffer, which may take long: 0, -EAGAIN or
 * -EINTR.
 */
static int keel_dmabuf_wait(struct dma_buf *dmabuf, bool write, bool wait,
			    bool (*stop)(void *arg), void *arg)
{
	enum dma_resv_usage usage = dma_resv_usage_rw(write);
	long left;

	if (dma_resv_test_signaled(dmabuf->resv, usage))
		return 0;
	if (!wait)
		return -EAGAIN;
	do {
		left = dma_resv_wait_timeout(dmabuf->resv, usage, true,
					     KEEL_DMABUF_WAIT);
		if (left > 0)
			return 0;
	} while (!left && !stop(arg));
	return -EINTR;
}

/**
 * keel_dmabuf_open() - begin to access a dma-buf
 * @need: which; KEEL_NEED_OPEN
 * @wait: wait for the work of others on it
 * @stop: with @wait: asked ten times a second; true ends the wait
 * @arg: for @stop
 *
 * Without @wait the exporter is not called: it may wait as well.
 *
 * Context: may sleep; no lock is held and no key in use.
 * Return: 0, and keel_dmabuf_close() is to follow; -EAGAIN without @wait;
 * -EFAULT where the exporter refuses, -EINTR for a signal or @stop.
 */
int keel_dmabuf_open(const struct keel_need *need, bool wait,
		     bool (*stop)(void *arg), void *arg)
{
	int ret;

	if (!wait)
		return -EAGAIN;
	ret = keel_dmabuf_wait(need->dmabuf, need->write, wait, stop, arg);
	if (ret)
		return ret;
	ret = dma_buf_begin_cpu_access(need->dmabuf,
				       keel_dmabuf_dir(need->write));
	if (ret == -ERESTARTSYS || ret == -EINTR)
		return -EINTR;
	return ret ? -EFAULT : 0;
}

/**
 * keel_dmabuf_close() - end access to a dma-buf
 * @need: which; keel_dmabuf_open() succeeded with it
 *
 * Bytes that were written are there for every device.
 *
 * Context: may sleep; no lock is held and no key in use.
 * Return: 0, or -EFAULT where the exporter does not say that it is.
 */
int keel_dmabuf_close(const struct keel_need *need)
{
	return dma_buf_end_cpu_access(need->dmabuf,
				      keel_dmabuf_dir(need->write)) ?
	       -EFAULT : 0;
}

static bool keel_dmabuf_is_open(const struct keel_copy_ctl *ctl,
				const struct dma_buf *dmabuf, bool write)
{
	const struct keel_open *open;

	list_for_each_entry(open, &ctl->open, node)
		if (open->need.dmabuf == dmabuf && open->need.write == write)
			return true;
	return false;
}

/**
 * keel_dmabuf_ready() - has access to all dma-bufs of a list begun?
 * @seg: segments; those of other memory than dma-bufs are of no interest
 * @n: how many
 * @write: they are to be written
 * @ctl: the transfer
 *
 * Context: any. The caller uses the keys of the segments.
 * Return: 0; -EAGAIN: &keel_copy_ctl.need is set; -EFAULT: it was refused.
 */
int keel_dmabuf_ready(const struct keel_seg *seg, u32 n, bool write,
		      struct keel_copy_ctl *ctl)
{
	const struct keel_mem *mem;
	struct keel_need need;
	u32 i;

	for (i = 0; i < n; i++) {
		mem = seg[i].mem;
		if (mem->type != KEEL_MEM_DMABUF ||
		    keel_dmabuf_is_open(ctl, mem->dmabuf, write))
			continue;
		need = (struct keel_need){
			.kind = KEEL_NEED_OPEN, .write = write,
			.worker = mem->worker, .dmabuf = mem->dmabuf,
		};
		if (keel_need_is(&need, &ctl->lacks))
			return -EFAULT;
		if (ctl->asked)
			return -EAGAIN;
		/* The key that is in use keeps both until here. */
		get_dma_buf(need.dmabuf);
		if (need.worker)
			keel_worker_hold(need.worker);
		ctl->need = need;
		return -EAGAIN;
	}
	return 0;
}
