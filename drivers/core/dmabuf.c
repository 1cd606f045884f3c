// SPDX-License-Identifier: GPL-2.0
/*
 * dma-bufs of other drivers as memory. keel has no DMA device to map them for:
 * processors copy through the exporter's kernel mapping. Each access is between
 * dma_buf_begin_cpu_access() and dma_buf_end_cpu_access().
 *
 * So the exporter must provide a kernel mapping, and of memory, not I/O space.
 * It keeps the buffer in place while it is mapped, so keel needs no callback
 * for moves.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/iosys-map.h>
#include <linux/jiffies.h>
#include <kunit/visibility.h>

#include "compat.h"
#include "keel_copy.h"
#include "keel_worker.h"

/* Time between two calls of @stop. */
#define KEEL_DMABUF_WAIT	(HZ / 10)

static enum dma_data_direction keel_dmabuf_dir(bool write)
{
	/* A write may change a part; the bytes next to it must remain. */
	return write ? DMA_BIDIRECTIONAL : DMA_FROM_DEVICE;
}

/**
 * keel_dmabuf_check() - check a range, and the mode of the dma-buf's file
 * @dmabuf: the dma-buf
 * @offset: first byte
 * @length: bytes
 * @write: the bytes will be written, in a way that needs a writable file
 *
 * Return: 0; -EINVAL if the range is empty or leaves the dma-buf; -EACCES if
 * the file is not open for reading, or with @write for writing.
 */
int keel_dmabuf_check(const struct dma_buf *dmabuf, u64 offset, u64 length,
		      bool write)
{
	fmode_t want = FMODE_READ | (write ? FMODE_WRITE : 0);

	if (!length || offset > dmabuf->size || length > dmabuf->size - offset)
		return -EINVAL;
	/* As for mmap(): without read access there is no mapping at all. */
	if (want & ~dmabuf->file->f_mode)
		return -EACCES;
	return 0;
}

/*
 * With some exporters (udmabuf), the first access defines which later ones are
 * possible. So it requests all that the mode of the file allows.
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
	/* If the exporter does not support access by processors, fail now. */
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
 * keel_dmabuf_map() - use a dma-buf as memory
 * @mem: gets the memory, from @offset on
 * @dmabuf: the dma-buf; on success, the caller's reference passes to @mem
 * @offset: offset of the first byte
 * @length: bytes
 * @write: the bytes will also be written
 *
 * The dma-buf exists until keel_dmabuf_unmap(), even if all its file
 * descriptors are closed.
 *
 * Context: may sleep.
 * Return: 0; -EINVAL or -EACCES as keel_dmabuf_check(); -EOPNOTSUPP if the
 * memory is I/O space; or the error of the exporter.
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
 * @mem: the memory, which is no longer in use
 * @offset: the same @offset as there
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

/* Wait for the fences of the buffer. Returns 0 or -EINTR. */
static int keel_dmabuf_wait(struct dma_buf *dmabuf, bool write,
			    bool (*stop)(void *arg), void *arg)
{
	enum dma_resv_usage usage = dma_resv_usage_rw(write);
	long left;

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
 * @need: the dma-buf; KEEL_NEED_OPEN
 * @wait: wait for the fences of the dma-buf
 * @stop: with @wait: called ten times a second; true ends the wait
 * @arg: for @stop
 *
 * Without @wait, this does not call the exporter, which may also wait.
 *
 * Context: may sleep; the caller holds no lock and no reference on a key.
 * Return: 0, and the caller must call keel_dmabuf_close(); -EAGAIN without
 * @wait; -EFAULT if the exporter refuses; -EINTR for a signal or if @stop
 * returned true.
 */
int keel_dmabuf_open(const struct keel_need *need, bool wait,
		     bool (*stop)(void *arg), void *arg)
{
	int ret;

	if (!wait)
		return -EAGAIN;
	ret = keel_dmabuf_wait(need->dmabuf, need->write, stop, arg);
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
 * @need: the dma-buf; keel_dmabuf_open() succeeded with it
 *
 * Makes the written bytes visible to all devices.
 *
 * Context: may sleep; the caller holds no lock and no reference on a key.
 * Return: 0, or -EFAULT if the exporter fails.
 */
int keel_dmabuf_close(const struct keel_need *need)
{
	return dma_buf_end_cpu_access(need->dmabuf,
				      keel_dmabuf_dir(need->write)) ?
	       -EFAULT : 0;
}

/*
 * Has access to the dma-buf begun? Returns 0; -EAGAIN if not; -EFAULT if it must not
 * begin: access to as many dma-bufs as a WQE has SGEs has begun. So their number is
 * bounded, even if a program changes the SGEs between two attempts.
 */
static int keel_dmabuf_opened(const struct keel_copy_ctl *ctl,
			      const struct dma_buf *dmabuf, bool write)
{
	const struct keel_open *open;
	u32 n = 0;

	list_for_each_entry(open, &ctl->open, node) {
		if (open->need.write != write)
			continue;
		if (open->need.dmabuf == dmabuf)
			return 0;
		n++;
	}
	return n < KEEL_MAX_SGE ? -EAGAIN : -EFAULT;
}

/**
 * keel_dmabuf_ready() - check that access to all dma-bufs of a list has begun
 * @seg: segments; only those with dma-bufs matter
 * @n: number of segments
 * @write: they will be written
 * @ctl: the transfer
 *
 * Context: any. The caller has references on the keys of the segments.
 * Return: 0; -EAGAIN if access to one has not begun: &keel_copy_ctl.need is set
 * unless a request is pending; -EFAULT if the exporter refused, or if the transfer has
 * begun to access KEEL_MAX_SGE dma-bufs in this direction.
 */
int keel_dmabuf_ready(const struct keel_seg *seg, u32 n, bool write,
		      struct keel_copy_ctl *ctl)
{
	const struct keel_mem *mem;
	struct keel_need need;
	int ret;
	u32 i;

	for (i = 0; i < n; i++) {
		mem = seg[i].mem;
		if (mem->type != KEEL_MEM_DMABUF)
			continue;
		ret = keel_dmabuf_opened(ctl, mem->dmabuf, write);
		if (!ret)
			continue;
		need = (struct keel_need){
			.kind = KEEL_NEED_OPEN, .write = write,
			.worker = mem->worker, .dmabuf = mem->dmabuf,
		};
		if (ret == -EFAULT || keel_need_is(&need, &ctl->lacks))
			return -EFAULT;
		if (ctl->asked)
			return -EAGAIN;
		/* Until here, the reference on the key keeps both. */
		get_dma_buf(need.dmabuf);
		if (need.worker)
			keel_worker_get(need.worker);
		ctl->need = need;
		return -EAGAIN;
	}
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_dmabuf_ready);
