// SPDX-License-Identifier: GPL-2.0
/*
 * Memory requests: a transfer that needs memory which is not present asks the
 * worker of the process that owns the memory. The owner may be the process of
 * the transfer or another one. Meanwhile the transfer holds no lock, and the
 * request holds no reference on its QP. So a process that does not respond
 * blocks no other process.
 *
 * A request has two references: one of its job, and one of the transfer that
 * waits for it.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <kunit/visibility.h>

#include "keel_resp_lock.h"
#include "keel_worker.h"

static void keel_memreq_free_work(struct work_struct *work)
{
	struct keel_memreq *req = container_of(work, struct keel_memreq, work);

	keel_need_put(&req->open.need);
	kfree(req);
}

static void keel_memreq_free(struct kref *ref)
{
	struct keel_memreq *req = container_of(ref, struct keel_memreq, ref);

	/* May drop the last reference on a dma-buf, and a lock may be held. */
	INIT_WORK(&req->work, keel_memreq_free_work);
	if (req->open.need.kind == KEEL_NEED_PAGES)
		keel_memreq_free_work(&req->work);
	else
		keel_worker_defer(&req->work);
}

static void keel_memreq_put(struct keel_memreq *req)
{
	kref_put(&req->ref, keel_memreq_free);
}

/* Does a transfer wait for it? */
static bool keel_memreq_is_wanted(const struct keel_memreq *req)
{
	/* keel_memreq_finish() checks again. */
	return context_unsafe(READ_ONCE(req->qp));
}

static bool keel_memreq_stop(void *arg)
{
	const struct keel_memreq *req = arg;

	return fatal_signal_pending(current) || !keel_memreq_is_wanted(req) ||
	       (req->open.need.worker &&
		keel_worker_is_dead(req->open.need.worker));
}

/* Set the result. Return: false if no transfer waits for it any more. */
static bool keel_memreq_finish(struct keel_memreq *req, int result)
{
	guard(spinlock)(&req->lock);
	req->result = result;
	/* Pairs with keel_fetch_collect(). */
	smp_store_release(&req->finished, true);
	/* The QP drops the request before its destroy ends, so it exists. */
	if (req->qp)
		keel_qp_schedule(req->qp);
	return req->qp;
}

static void keel_memreq_close_work(struct work_struct *work)
{
	struct keel_memreq *req = container_of(work, struct keel_memreq, work);

	keel_memreq_finish(req, keel_dmabuf_close(&req->open.need));
	keel_memreq_put(req);
}

/*
 * The owner is dead, but the exporter must be notified. That may take long, and the
 * caller may belong to another process.
 */
static void keel_memreq_close_later(struct keel_memreq *req)
{
	INIT_WORK(&req->work, keel_memreq_close_work);
	keel_worker_defer(&req->work);
}

VISIBLE_IF_KUNIT void keel_memreq_run(struct keel_job *job, bool alive)
{
	struct keel_memreq *req = container_of(job, struct keel_memreq, job);
	struct keel_need *need = &req->open.need;
	int ret = -EFAULT;

	if (need->kind == KEEL_NEED_CLOSE && !alive) {
		keel_memreq_close_later(req);
		return;
	}
	if (need->kind == KEEL_NEED_CLOSE)
		ret = keel_dmabuf_close(need);
	else if (alive && keel_memreq_is_wanted(req))
		ret = keel_need_provide(need, true, keel_memreq_stop, req);
	/* The process is stopped or frozen: retry when it continues. */
	if (ret == -EINTR && alive && !keel_memreq_stop(req) &&
	    keel_job_queue(need->worker, job) > 0)
		return;
	if (!keel_memreq_finish(req, ret) && !ret &&
	    need->kind == KEEL_NEED_OPEN)
		keel_dmabuf_close(need);
	keel_memreq_put(req);
}
EXPORT_SYMBOL_IF_KUNIT(keel_memreq_run);

/* Takes over the references of @need on success. */
static struct keel_memreq *keel_memreq_new(struct keel_qp *qp,
					   struct keel_need *need)
{
	struct keel_memreq *req = kzalloc_obj(*req, GFP_KERNEL_ACCOUNT);

	if (!req)
		return NULL;
	kref_init(&req->ref);
	spin_lock_init(&req->lock);
	keel_job_init(&req->job, keel_memreq_run);
	INIT_LIST_HEAD(&req->open.node);
	req->open.need = *need;
	/* No other thread has the request yet. */
	context_unsafe(req->qp = qp);
	*need = (struct keel_need){};
	return req;
}

/* The request may be finished when this returns. */
static void keel_memreq_submit(struct keel_memreq *req)
{
	struct keel_worker *worker = req->open.need.worker;

	/* No job has it now. */
	context_unsafe(req->finished = false);
	kref_get(&req->ref);
	if (worker && keel_job_queue(worker, &req->job) > 0)
		return;
	if (req->open.need.kind == KEEL_NEED_CLOSE) {
		keel_memreq_close_later(req);
		return;
	}
	keel_memreq_finish(req, -EFAULT);
	keel_memreq_put(req);
}

/* End access to a dma-buf after it was begun. */
static void keel_memreq_close(struct keel_memreq *req)
{
	req->open.need.kind = KEEL_NEED_CLOSE;
	keel_memreq_submit(req);
}

/*
 * The transfer does not wait any more. Access to a dma-buf that was begun ends
 * in the background.
 */
static void keel_memreq_abandon(struct keel_memreq *req)
{
	bool opened;

	scoped_guard(spinlock, &req->lock) {
		WRITE_ONCE(req->qp, NULL);
		opened = req->finished && !req->result &&
			 req->open.need.kind == KEEL_NEED_OPEN;
	}
	if (opened)
		keel_memreq_close(req);
	/* The owner may be stopped: take jobs back, or they accumulate. */
	else if (req->open.need.kind != KEEL_NEED_CLOSE &&
		 req->open.need.worker &&
		 keel_job_take_back(req->open.need.worker, &req->job))
		keel_memreq_put(req);
	keel_memreq_put(req);
}

/* Other threads that lacked memory before this request nothing. */
static void keel_fetch_next(struct keel_fetch *fetch)
{
	WRITE_ONCE(fetch->round, fetch->round + 1);
}

/**
 * keel_fetch_init() - initialize a transfer that has no request for memory
 * @fetch: the transfer
 * @stop: &keel_copy_ctl.stop, or NULL
 */
void keel_fetch_init(struct keel_fetch *fetch, bool (*stop)(void *arg))
{
	keel_copy_ctl_init(&fetch->ctl, stop, NULL);
	fetch->req = NULL;
}

/**
 * keel_fetch_collect() - collect the result of a request for memory
 * @fetch: the transfer
 *
 * Context: process context; the lock that protects @fetch is held.
 * Return: true if the request is still pending.
 */
bool keel_fetch_collect(struct keel_fetch *fetch)
{
	struct keel_memreq *req = fetch->req;
	struct keel_copy_ctl *ctl = &fetch->ctl;
	int ret;

	if (!req)
		return false;
	/* Pairs with keel_memreq_finish(). */
	if (!context_unsafe(smp_load_acquire(&req->finished)))
		return true;
	/* It does not change any more. */
	ret = context_unsafe(req->result);
	fetch->req = NULL;
	ctl->asked = false;
	keel_fetch_next(fetch);
	if (req->open.need.kind == KEEL_NEED_OPEN && !ret) {
		list_add_tail(&req->open.node, &ctl->open);
		return false;
	}
	if (req->open.need.kind == KEEL_NEED_CLOSE)
		ctl->lost |= ret && req->open.need.write;
	else if (ret)
		ctl->lacks = req->open.need;
	keel_memreq_abandon(req);
	return false;
}

/**
 * keel_fetch_close() - end the first access to a dma-buf, after the copy
 * @fetch: the transfer, whose &keel_copy_ctl.need is KEEL_NEED_CLOSE
 *
 * Context: as keel_fetch_collect().
 */
void keel_fetch_close(struct keel_fetch *fetch)
{
	struct keel_memreq *req =
		list_first_entry(&fetch->ctl.open, struct keel_memreq,
				 open.node);

	fetch->ctl.need.kind = KEEL_NEED_NONE;
	list_del_init(&req->open.node);
	fetch->req = req;
	fetch->ctl.asked = true;
	keel_fetch_next(fetch);
	keel_memreq_close(req);
}

/**
 * keel_fetch_abandon() - give up a request for memory
 * @fetch: the transfer, which has a pending request
 *
 * Context: as keel_fetch_collect().
 */
void keel_fetch_abandon(struct keel_fetch *fetch)
{
	const struct keel_need *need = &fetch->req->open.need;

	/* Access to a dma-buf does not end in time: the job continues alone. */
	if (need->kind == KEEL_NEED_CLOSE)
		fetch->ctl.lost |= need->write;
	else
		fetch->ctl.lacks = *need;
	keel_memreq_abandon(fetch->req);
	fetch->req = NULL;
	fetch->ctl.asked = false;
	keel_fetch_next(fetch);
}

/**
 * keel_fetch_forgo() - use and request no memory while a transfer waits for its peer
 * @fetch: the transfer
 *
 * Copied bytes are not copied again, unless access to memory had begun.
 *
 * Context: as keel_fetch_collect().
 */
void keel_fetch_forgo(struct keel_fetch *fetch)
{
	if (keel_fetch_is_busy(fetch))
		keel_fetch_discard(fetch);
	else
		keel_fetch_next(fetch);
}

/**
 * keel_fetch_take() - move &keel_copy_ctl.need out of a transfer
 * @fetch: the transfer
 * @lack: gets the missing memory, or KEEL_NEED_NONE; the caller owns its
 *	references. KEEL_NEED_NONE before.
 *
 * Context: as keel_fetch_collect().
 */
void keel_fetch_take(struct keel_fetch *fetch, struct keel_lack *lack)
{
	swap(lack->need, fetch->ctl.need);
	lack->round = fetch->round;
}

/* Submit a request for @fetch, which @lock protects. */
static void keel_fetch_submit(struct keel_fetch *fetch, struct mutex *lock,
			      struct keel_memreq *req)
	__must_hold(lock)
{
	fetch->req = req;
	fetch->ctl.asked = true;
	keel_fetch_next(fetch);
	keel_memreq_submit(req);
}

/**
 * keel_fetch_provide() - provide memory that is missing, or request it
 * @fetch: the transfer
 * @lock: protects @fetch; taken here
 * @qp: the QP of the transfer; it runs again when the memory is present
 * @lack: from keel_fetch_take(); its references are dropped here
 *
 * Memory of the caller's own process is provided at once, if this does not have
 * to wait. Otherwise the owner of the memory is asked. Before this gets the lock,
 * another thread may have asked or ended the transfer. Then nothing is left to do:
 * a request that no transfer needs would stay until the next one. The caller runs
 * the queue again in any case.
 *
 * Context: may sleep; no lock and no reference on a key is held.
 */
void keel_fetch_provide(struct keel_fetch *fetch, struct mutex *lock,
			struct keel_qp *qp, struct keel_lack *lack)
{
	struct keel_need *need = &lack->need, lacks = *need;
	struct keel_memreq *req = NULL;
	int ret = -EAGAIN;

	if (need->kind == KEEL_NEED_PAGES && need->mm == current->mm)
		ret = keel_need_provide(need, false, NULL, NULL);
	if (ret == -EAGAIN) {
		req = keel_memreq_new(qp, need);
		ret = req ? 0 : -ENOMEM;
	}
	/* Do not sleep on the lock, as in keel_resp_enter(). Stop if killed. */
	while (!keel_resp_try(lock))
		if (fatal_signal_pending(current) || keel_qp_is_dying(qp) ||
		    READ_ONCE(fetch->round) != lack->round)
			goto drop;
	if (fetch->round == lack->round && !keel_qp_is_dying(qp)) {
		if (req) {
			keel_fetch_submit(fetch, lock, req);
			req = NULL;
		}
		if (ret && ret != -EINTR)
			fetch->ctl.lacks = lacks;
	}
	mutex_unlock(lock);
	keel_resp_relax();
drop:
	if (req)
		keel_memreq_abandon(req);
	keel_need_put(need);
}

/**
 * keel_fetch_discard() - drop the progress of a transfer
 * @fetch: the transfer; it is over, or starts from the beginning
 *
 * Context: as keel_fetch_collect().
 */
void keel_fetch_discard(struct keel_fetch *fetch)
{
	struct keel_memreq *req, *next;

	if (fetch->req)
		keel_memreq_abandon(fetch->req);
	list_for_each_entry_safe(req, next, &fetch->ctl.open, open.node) {
		list_del_init(&req->open.node);
		keel_memreq_abandon(req);
	}
	keel_fetch_init(fetch, fetch->ctl.stop);
	keel_fetch_next(fetch);
}
