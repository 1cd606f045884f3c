// SPDX-License-Identifier: GPL-2.0
/*
 * Absent memory that a transfer needs, and how it is provided.
 */
#include <linux/dma-buf.h>
#include <linux/sched/mm.h>
#include <kunit/visibility.h>

#include "keel_copy.h"
#include "keel_worker.h"

/**
 * keel_need_put() - drop the references of a need
 * @need: the need; KEEL_NEED_NONE afterwards
 *
 * Context: may sleep, because the last reference on a dma-buf may be among
 * them. The caller holds no lock and no reference on a key.
 */
void keel_need_put(struct keel_need *need)
{
	switch (need->kind) {
	case KEEL_NEED_PAGES:
		mmdrop(need->mm);
		break;
	case KEEL_NEED_OPEN:
	case KEEL_NEED_CLOSE:
		/* That of keel_copy_end() has no references. */
		if (need->dmabuf)
			dma_buf_put(need->dmabuf);
		break;
	default:
		return;
	}
	keel_worker_put(need->worker);
	*need = (struct keel_need){};
}
EXPORT_SYMBOL_IF_KUNIT(keel_need_put);

/**
 * keel_need_provide() - provide what a transfer needs
 * @need: the need
 * @wait: the caller is the worker of the process that owns the memory
 * @stop: with @wait: called from time to time; true ends a long wait
 * @arg: for @stop
 *
 * Context: may sleep; the caller holds no lock and no reference on a key.
 * Return: 0; -EAGAIN without @wait if it needs a wait; -EFAULT if it cannot be
 * provided; -EINTR for a fatal signal or if @stop returned true.
 */
int keel_need_provide(const struct keel_need *need, bool wait,
		      bool (*stop)(void *arg), void *arg)
{
	switch (need->kind) {
	case KEEL_NEED_PAGES:
		return keel_odp_fetch(need, wait);
	case KEEL_NEED_OPEN:
		return keel_dmabuf_open(need, wait, stop, arg);
	case KEEL_NEED_CLOSE:
		return keel_dmabuf_close(need);
	default:
		return 0;
	}
}
EXPORT_SYMBOL_IF_KUNIT(keel_need_provide);
