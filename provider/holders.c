/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The holders of an object, which make its destruction fail with EBUSY.
 */
#include <errno.h>

#include <ccan/array_size.h>
#include <ccan/minmax.h>

#include "keel.h"

const struct keel_holders_of keel_holders_of_pd = {
	.name = "PD",
	.object = UVERBS_OBJECT_PD,
	.method = KEEL_METHOD_PD_HOLDERS,
};

const struct keel_holders_of keel_holders_of_td = {
	.name = "TD",
	.object = KEEL_OBJECT_TD,
	.method = KEEL_METHOD_TD_HOLDERS,
};

const struct keel_holders_of keel_holders_of_dm = {
	.name = "DM",
	.object = UVERBS_OBJECT_DM,
	.method = KEEL_METHOD_DM_HOLDERS,
};

static const char *const kind_names[] = {
#define KIND_NAME(name, number, word)                                          \
	[number] = (word),
	KEEL_UAPI_KINDS(KIND_NAME)
};

const char *keel_kind_str(uint32_t kind)
{
	if (kind < ARRAY_SIZE(kind_names) && kind_names[kind])
		return kind_names[kind];
	return "unknown";
}

int keel_cmd_holders(struct ibv_context *ibctx,
		     const struct keel_holders_of *of, uint32_t handle,
		     struct keel_uapi_holder *list, uint32_t room,
		     uint32_t *count, uint32_t flags)
{
	DECLARE_COMMAND_BUFFER(cmdb, of->object, of->method, 4);

	fill_attr_in_obj(cmdb, KEEL_ATTR_HOLDERS_HANDLE, handle);
	fill_attr_out_ptr(cmdb, KEEL_ATTR_HOLDERS_RESP_COUNT, count);
	/* Without a list, the kernel only counts. */
	if (room)
		fill_attr_out_ptr_array(cmdb, KEEL_ATTR_HOLDERS_RESP_LIST, list,
					min_t(uint32_t, room,
					      KEEL_UAPI_HOLDERS_MAX));

	if (flags)
		fill_attr_in_uint32(cmdb, KEEL_ATTR_HOLDERS_FLAGS, flags);

	return execute_ioctl(ibctx, cmdb);
}

/*
 * Called when a destroy has returned EBUSY. The query emits a trace event in
 * the kernel. At VERBS_LOG_LEVEL info or higher, the provider logs the holders.
 */
void keel_report_busy(struct ibv_context *ibctx,
		      const struct keel_holders_of *of, uint32_t handle)
{
	struct verbs_context *vctx = verbs_get_ctx(ibctx);
	struct keel_uapi_holder list[16];
	uint32_t count, shown, i;

	if (keel_cmd_holders(ibctx, of, handle, list, ARRAY_SIZE(list), &count,
			     KEEL_UAPI_HOLDERS_F_REFUSED))
		return;

	shown = min_t(uint32_t, count, ARRAY_SIZE(list));
	for (i = 0; i < shown; i++)
		verbs_info(vctx, "%s %u is held by %s %u of process %u (%.*s)\n",
			   of->name, handle, keel_kind_str(list[i].kind),
			   list[i].id, list[i].pid,
			   (int)sizeof(list[i].comm), list[i].comm);
	if (count > shown)
		verbs_info(vctx, "%s %u is held by %u more\n", of->name,
			   handle, count - shown);
}
