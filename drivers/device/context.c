// SPDX-License-Identifier: GPL-2.0
/*
 * Contexts: ibv_open_device() and ibv_import_device().
 */
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <rdma/uverbs_std_types.h>

#include "keel.h"
#include "keel_dm.h"

static_assert(sizeof(struct keel_uapi_context_resp) == 8);

static unsigned int keel_dm_access_align = 1;

static int keel_set_access_align(const char *val, const struct kernel_param *kp)
{
	unsigned int align;
	int ret = kstrtouint(val, 0, &align);

	if (ret)
		return ret;
	if (!is_power_of_2(align) || align > PAGE_SIZE)
		return -EINVAL;
	WRITE_ONCE(keel_dm_access_align, align);
	return 0;
}

static const struct kernel_param_ops keel_access_align_ops = {
	.set = keel_set_access_align,
	.get = param_get_uint,
};
module_param_cb(dm_access_align, &keel_access_align_ops, &keel_dm_access_align,
		0644);
MODULE_PARM_DESC(dm_access_align,
		 "Refuse copies to and from device memory that are not aligned so (default 1; NICs are known to want 4)");

static void keel_context_fill(struct keel_uapi_context_resp *resp)
{
	resp->comp_mask = KEEL_CONTEXT_STATE | KEEL_CONTEXT_RING_END;
	resp->dm_access_align = READ_ONCE(keel_dm_access_align);
}

static int keel_alloc_ucontext(struct ib_ucontext *context,
			       struct ib_udata *udata)
{
	struct keel_quotas *quotas = &to_kdev(context->device)->reg.quotas;
	struct keel_uapi_context_resp resp = {};
	struct keel_user *user;
	int ret = ib_is_udata_in_empty(udata);
	unsigned int i;

	if (ret)
		return ret;
	user = keel_user_get(quotas, keel_user_id(current_cred()),
			     GFP_KERNEL_ACCOUNT);
	if (!user)
		return -ENOMEM;
	to_kctx(context)->dm_pool = keel_dm_pool_new(to_kdev(context->device)->ap,
						     quotas, user->id);
	if (!to_kctx(context)->dm_pool) {
		keel_user_put(user);
		return -ENOMEM;
	}
	keel_workers_setup(&to_kctx(context)->workers);
	keel_workers_setup(&to_kctx(context)->mem_workers);
	for (i = 0; i < KEEL_HELPERS; i++)
		keel_workers_setup(&to_kctx(context)->helpers[i]);
	keel_context_fill(&resp);
	ret = ib_respond_udata(udata, resp);
	if (ret) {
		keel_dm_pool_put(to_kctx(context)->dm_pool);
		keel_user_put(user);
		return ret;
	}
	to_kctx(context)->user = user;
	return 0;
}

/* ib_core has destroyed the uobjects, so no more jobs are queued. */
static void keel_dealloc_ucontext(struct ib_ucontext *context)
{
	unsigned int i;

	keel_workers_stop(&to_kctx(context)->workers);
	keel_workers_stop(&to_kctx(context)->mem_workers);
	for (i = 0; i < KEEL_HELPERS; i++)
		keel_workers_stop(&to_kctx(context)->helpers[i]);
	keel_dm_pool_put(to_kctx(context)->dm_pool);
	keel_user_put(to_kctx(context)->user);
	/* Nor is an inode of a domain left that this thread has closed. */
	keel_xrcd_pins_over(to_kdev(context->device), current);
}

/*
 * Device removal while the process lives. ib_core has destroyed the uobjects
 * and zapped the mappings that it tracks. It may have missed a mapping that
 * fork() or mremap() created meanwhile: the page table entries are written
 * after ->open() of the vma, and would give access to pages that are about to
 * be freed. Unmapping by the file's address_space is ordered against both.
 *
 * ib_core holds hw_destroy_rwsem for writing, and the last close of the file
 * waits for it, so the inode exists.
 */
static void keel_disassociate_ucontext(struct ib_ucontext *context)
{
	struct address_space *mapping = READ_ONCE(to_kctx(context)->mapping);

	/* The first page is the state page, which stays mapped. */
	if (mapping)
		unmap_mapping_range(mapping, KEEL_STATE_OFFSET + PAGE_SIZE, 0, 1);
}

static int keel_query_ucontext(struct ib_ucontext *context,
			       struct uverbs_attr_bundle *attrs)
{
	struct keel_uapi_context_resp resp = {};

	if (!uverbs_attr_is_valid(attrs, KEEL_ATTR_QUERY_CONTEXT_RESP))
		return 0;
	keel_context_fill(&resp);
	return uverbs_copy_to_struct_or_zero(attrs,
					     KEEL_ATTR_QUERY_CONTEXT_RESP,
					     &resp, sizeof(resp));
}

/* The time is a property of the worker, and so of the process: it decides for itself only. */
static int UVERBS_HANDLER(KEEL_METHOD_DEVICE_POLL_SENDS)(
	struct uverbs_attr_bundle *attrs)
{
	struct ib_ucontext *context = ib_uverbs_get_ucontext(attrs);
	u32 us;
	int ret;

	if (IS_ERR(context))
		return PTR_ERR(context);
	ret = uverbs_copy_from(&us, attrs, KEEL_ATTR_DEVICE_POLL_SENDS_US);
	if (ret)
		return ret;
	if (us > KEEL_UAPI_POLL_SENDS_US)
		return -EINVAL;
	if (us && !KEEL_THREAD_HAS_MM)
		return -EOPNOTSUPP;
	return keel_workers_poll(keel_context_workers(context), us);
}

DECLARE_UVERBS_NAMED_METHOD(
	KEEL_METHOD_DEVICE_POLL_SENDS,
	UVERBS_ATTR_PTR_IN(KEEL_ATTR_DEVICE_POLL_SENDS_US, UVERBS_ATTR_TYPE(u32),
			   UA_MANDATORY));

ADD_UVERBS_METHODS(keel_device_methods, UVERBS_OBJECT_DEVICE,
		   &UVERBS_METHOD(KEEL_METHOD_DEVICE_POLL_SENDS));

ADD_UVERBS_ATTRIBUTES_SIMPLE(
	keel_query_context, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT,
	UVERBS_ATTR_PTR_OUT(KEEL_ATTR_QUERY_CONTEXT_RESP,
			    UVERBS_ATTR_STRUCT(struct keel_uapi_context_resp,
					       dm_access_align),
			    UA_OPTIONAL));

const struct uapi_definition keel_context_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DEVICE, &keel_query_context),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DEVICE, &keel_device_methods),
	{},
};

const struct ib_device_ops keel_context_ops = {
	.alloc_ucontext = keel_alloc_ucontext,
	.dealloc_ucontext = keel_dealloc_ucontext,
	.disassociate_ucontext = keel_disassociate_ucontext,
	.query_ucontext = keel_query_ucontext,

	INIT_RDMA_OBJ_SIZE(ib_ucontext, keel_ib_ctx, ib),
};
