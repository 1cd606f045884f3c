// SPDX-License-Identifier: GPL-2.0
/*
 * The doorbell of a queue pair, KEEL_METHOD_QP_DOORBELL, and of several ones,
 * KEEL_METHOD_QP_DOORBELLS. It tries the fast path first. The slow path or the worker
 * runs the rest.
 */
#include <linux/ktime.h>
#include <linux/sched/signal.h>

#include "keel_fast.h"
#include "keel_resp_lock.h"

/* Run the fast path once. */
static enum keel_fast keel_qp_ring_once(struct keel_dev *kdev,
					const struct ib_ucontext *context,
					u32 qpn, u32 *budget)
{
	enum keel_fast res;
	struct keel_qp *qp;

	guard(rcu)();
	qp = keel_qp_load(kdev, qpn);
	if (!qp || qp->context != context || READ_ONCE(qp->rq.wanted))
		return KEEL_FAST_SLOW;
	/* This process takes the QP over in keel_qp_run(), which may sleep. */
	if (keel_qp_has_orphans(qp))
		return KEEL_FAST_SLOW;
	res = keel_fast_run(qp, budget);
	/* If the doorbell is not done, the end of it begins polling. */
	if (res == KEEL_FAST_DONE)
		keel_qp_poll(qp);
	return res;
}

static enum keel_fast keel_qp_ring(struct keel_dev *kdev,
				   const struct ib_ucontext *context, u32 qpn)
{
	enum keel_fast res;
	u32 budget = KEEL_FAST_FIRST;

	for (;;) {
		keel_resp_stay();
		res = keel_qp_ring_once(kdev, context, qpn, &budget);
		keel_resp_relax();
		if (res != KEEL_FAST_MORE)
			return res;
		cond_resched();
	}
}

/* After the fast path. */
static int keel_qp_ring_slow(struct keel_dev *kdev, const struct ib_ucontext *context,
			     u32 qpn, enum keel_fast res, u64 until)
{
	struct keel_qp *qp = keel_qp_get(kdev, qpn);
	int ret = 0;

	if (!qp)
		return -ENOENT;
	/* Any process may pass the number: check the context of the QP. */
	if (qp->context != context)
		ret = -ENOENT;
	else if (res == KEEL_FAST_LATER && !keel_qp_is_orphan(qp))
		keel_qp_schedule_alive(qp);
	else
		ret = keel_qp_run_until(qp, until);
	if (!ret)
		keel_qp_poll(qp);
	keel_obj_put(&qp->obj);
	return ret;
}

/*
 * Applications call this for each message. So the QP is looked up by its
 * number, and not as a uobject: this takes no lock, and does not make a
 * concurrent destroy fail.
 */
static int UVERBS_HANDLER(KEEL_METHOD_QP_DOORBELL)(
	struct uverbs_attr_bundle *attrs)
{
	struct ib_ucontext *context = ib_uverbs_get_ucontext(attrs);
	struct keel_dev *kdev;
	enum keel_fast res;
	u32 qpn;
	int ret;

	if (IS_ERR(context))
		return PTR_ERR(context);
	ret = uverbs_copy_from(&qpn, attrs, KEEL_ATTR_QP_DOORBELL_QPN);
	if (ret)
		return ret;
	kdev = to_kdev(context->device);
	res = keel_qp_ring(kdev, context, qpn);
	return res == KEEL_FAST_DONE ? 0 :
	       keel_qp_ring_slow(kdev, context, qpn, res,
				 ktime_get_ns() + KEEL_DOORBELL_NS);
}

/*
 * A doorbell for each QP. All of them together have the time of one; after it, the rest is
 * left to the workers, as in the doorbell of one QP. A killed process rings no more.
 */
static int keel_qp_ring_all(struct keel_dev *kdev, const struct ib_ucontext *context,
			    const u32 *qpns, u32 n)
{
	u64 until = ktime_get_ns() + KEEL_DOORBELL_NS;
	enum keel_fast res;
	int first = 0;
	int ret;

	for (; n && !fatal_signal_pending(current); n--, qpns++) {
		res = ktime_get_ns() > until ? KEEL_FAST_LATER :
					       keel_qp_ring(kdev, context, *qpns);
		if (res == KEEL_FAST_DONE)
			continue;
		ret = keel_qp_ring_slow(kdev, context, *qpns, res, until);
		/* The whole call is repeated. */
		if (ret == -ERESTARTNOINTR)
			return ret;
		if (!first)
			first = ret;
	}
	return first;
}

static int UVERBS_HANDLER(KEEL_METHOD_QP_DOORBELLS)(
	struct uverbs_attr_bundle *attrs)
{
	struct ib_ucontext *context = ib_uverbs_get_ucontext(attrs);
	u32 qpns[KEEL_UAPI_DOORBELLS];
	int len, ret;

	if (IS_ERR(context))
		return PTR_ERR(context);
	len = uverbs_attr_get_len(attrs, KEEL_ATTR_QP_DOORBELLS_QPNS);
	if (len < 0)
		return len;
	if (len % sizeof(*qpns))
		return -EINVAL;
	/* Fails if there are more than fit. */
	ret = _uverbs_copy_from(qpns, attrs, KEEL_ATTR_QP_DOORBELLS_QPNS,
				sizeof(qpns));
	return ret ?: keel_qp_ring_all(to_kdev(context->device), context, qpns,
				       len / sizeof(*qpns));
}

DECLARE_UVERBS_NAMED_METHOD(
	KEEL_METHOD_QP_DOORBELL,
	UVERBS_ATTR_PTR_IN(KEEL_ATTR_QP_DOORBELL_QPN, UVERBS_ATTR_TYPE(u32),
			   UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(
	KEEL_METHOD_QP_DOORBELLS,
	UVERBS_ATTR_PTR_IN(KEEL_ATTR_QP_DOORBELLS_QPNS,
			   UVERBS_ATTR_MIN_SIZE(sizeof(u32)), UA_MANDATORY));

ADD_UVERBS_METHODS(keel_qp_methods, UVERBS_OBJECT_QP,
		   &UVERBS_METHOD(KEEL_METHOD_QP_DOORBELL),
		   &UVERBS_METHOD(KEEL_METHOD_QP_DOORBELLS));

const struct uapi_definition keel_qp_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_QP, &keel_qp_methods),
	{},
};
