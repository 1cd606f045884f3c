// SPDX-License-Identifier: GPL-2.0
/*
 * The doorbell of a queue pair: KEEL_METHOD_QP_DOORBELL. It tries the fast path
 * first. The slow path or the worker runs the rest.
 */
#include "keel_fast.h"
#include "keel_resp_lock.h"

/* Run the fast path once. */
static enum keel_fast keel_qp_ring_once(struct keel_dev *kdev,
					const struct ib_ucontext *context,
					u32 qpn, u32 *budget)
{
	struct keel_qp *qp;

	guard(rcu)();
	qp = keel_qp_load(kdev, qpn);
	if (!qp || qp->context != context || READ_ONCE(qp->rq.wanted))
		return KEEL_FAST_SLOW;
	/* This process takes the QP over in keel_qp_run(), which may sleep. */
	if (keel_qp_has_orphans(qp))
		return KEEL_FAST_SLOW;
	return keel_fast_run(qp, budget);
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

/*
 * Applications call this for each message. So the QP is looked up by its
 * number, and not as a uobject: this takes no lock, and does not make a
 * concurrent destroy fail.
 */
static int UVERBS_HANDLER(KEEL_METHOD_QP_DOORBELL)(
	struct uverbs_attr_bundle *attrs)
{
	struct ib_ucontext *context = ib_uverbs_get_ucontext(attrs);
	enum keel_fast res;
	struct keel_qp *qp;
	u32 qpn;
	int ret;

	if (IS_ERR(context))
		return PTR_ERR(context);
	ret = uverbs_copy_from(&qpn, attrs, KEEL_ATTR_QP_DOORBELL_QPN);
	if (ret)
		return ret;
	res = keel_qp_ring(to_kdev(context->device), context, qpn);
	if (res == KEEL_FAST_DONE)
		return 0;
	qp = keel_qp_get(to_kdev(context->device), qpn);
	if (!qp)
		return -ENOENT;
	/* Any process may pass the number: check the context of the QP. */
	if (qp->context != context)
		ret = -ENOENT;
	else if (res == KEEL_FAST_LATER && !keel_qp_is_orphan(qp))
		keel_qp_schedule_alive(qp);
	else
		ret = keel_qp_run(qp);
	keel_obj_put(&qp->obj);
	return ret;
}

DECLARE_UVERBS_NAMED_METHOD(
	KEEL_METHOD_QP_DOORBELL,
	UVERBS_ATTR_PTR_IN(KEEL_ATTR_QP_DOORBELL_QPN, UVERBS_ATTR_TYPE(u32),
			   UA_MANDATORY));

ADD_UVERBS_METHODS(keel_qp_methods, UVERBS_OBJECT_QP,
		   &UVERBS_METHOD(KEEL_METHOD_QP_DOORBELL));

const struct uapi_definition keel_qp_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_QP, &keel_qp_methods),
	{},
};
