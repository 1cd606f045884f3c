// SPDX-License-Identifier: GPL-2.0
/*
 * keel's own methods as data. See methods.h.
 */
#include "methods.h"
#include "tree.h"

#define COUNT(array)	(int)(sizeof(array) / sizeof(*(array)))
#define LIST_LEN	(2 * sizeof(struct keel_uapi_holder))

#define HOLDERS(its_name, its_object, its_method)			\
	{								\
		.name = its_name, .object = its_object,			\
		.method = its_method, .args_count = 3,			\
		.args = {						\
			{ KEEL_ATTR_HOLDERS_HANDLE, ARG_OBJ,		\
			  .object = its_object },			\
			{ KEEL_ATTR_HOLDERS_RESP_COUNT, ARG_OUT_FIXED, 4 },\
			{ KEEL_ATTR_HOLDERS_RESP_LIST, ARG_OUT_LIST,	\
			  LIST_LEN, .optional = true },			\
		},							\
	}

const struct method methods[] = {
	{
		"TD_ALLOC", KEEL_OBJECT_TD, KEEL_METHOD_TD_ALLOC,
		.args_count = 1,
		.args = { { KEEL_ATTR_TD_ALLOC_HANDLE, ARG_NEW } },
	}, {
		"TD_FREE", KEEL_OBJECT_TD, KEEL_METHOD_TD_FREE, .once = true,
		.args_count = 1,
		.args = { { KEEL_ATTR_TD_FREE_HANDLE, ARG_OBJ,
			    .object = KEEL_OBJECT_TD } },
	},
	HOLDERS("TD_HOLDERS", KEEL_OBJECT_TD, KEEL_METHOD_TD_HOLDERS),
	HOLDERS("PD_HOLDERS", UVERBS_OBJECT_PD, KEEL_METHOD_PD_HOLDERS),
	HOLDERS("DM_HOLDERS", UVERBS_OBJECT_DM, KEEL_METHOD_DM_HOLDERS),
	{
		"PD_SHARE", UVERBS_OBJECT_PD, KEEL_METHOD_PD_SHARE, .once = true,
		.args_count = 3,
		.args = {
			{ KEEL_ATTR_PD_SHARE_HANDLE, ARG_OBJ,
			  .object = UVERBS_OBJECT_PD },
			{ KEEL_ATTR_PD_SHARE_KEY, ARG_IN, 8 },
			{ KEEL_ATTR_PD_SHARE_RESP_SHPD, ARG_OUT_FIXED, 4 },
		},
	}, {
		"PD_ALLOC_PARENT", UVERBS_OBJECT_PD,
		KEEL_METHOD_PD_ALLOC_PARENT, .args_count = 4,
		.args = {
			{ KEEL_ATTR_PD_ALLOC_PARENT_HANDLE, ARG_NEW },
			{ KEEL_ATTR_PD_ALLOC_PARENT_PD, ARG_OBJ,
			  .object = UVERBS_OBJECT_PD },
			{ KEEL_ATTR_PD_ALLOC_PARENT_TD, ARG_OBJ,
			  .optional = true, .object = KEEL_OBJECT_TD },
			{ KEEL_ATTR_PD_ALLOC_PARENT_RESP, ARG_OUT,
			  sizeof(struct keel_uapi_pd_info) },
		},
	}, {
		"PD_QUERY", UVERBS_OBJECT_PD, KEEL_METHOD_PD_QUERY,
		.args_count = 2,
		.args = {
			{ KEEL_ATTR_PD_QUERY_HANDLE, ARG_OBJ,
			  .object = UVERBS_OBJECT_PD },
			{ KEEL_ATTR_PD_QUERY_RESP, ARG_OUT,
			  sizeof(struct keel_uapi_pd_info) },
		},
	}, {
		"DM_QUERY", UVERBS_OBJECT_DM, KEEL_METHOD_DM_QUERY,
		.args_count = 2,
		.args = {
			{ KEEL_ATTR_DM_QUERY_HANDLE, ARG_OBJ,
			  .object = UVERBS_OBJECT_DM },
			{ KEEL_ATTR_DM_QUERY_RESP, ARG_OUT,
			  sizeof(struct keel_uapi_dm_info) },
		},
	}, {
		"DM_MAP", UVERBS_OBJECT_DM, KEEL_METHOD_DM_MAP,
		.args_count = 4,
		.args = {
			{ KEEL_ATTR_DM_MAP_HANDLE, ARG_OBJ,
			  .object = UVERBS_OBJECT_DM },
			{ KEEL_ATTR_DM_MAP_OFFSET, ARG_IN, 8 },
			{ KEEL_ATTR_DM_MAP_RESP, ARG_OUT,
			  sizeof(struct keel_uapi_dm_map) },
			{ KEEL_ATTR_DM_MAP_SKIP, ARG_OUT_FIXED, 4,
			  .optional = true },
		},
	}, {
		"QUERY_CONTEXT", UVERBS_OBJECT_DEVICE,
		UVERBS_METHOD_QUERY_CONTEXT, .args_count = 1,
		.args = {
			{ KEEL_ATTR_QUERY_CONTEXT_RESP, ARG_OUT,
			  sizeof(struct keel_uapi_context_resp),
			  .optional = true },
		},
	}, {
		"DEVICE_POLL", UVERBS_OBJECT_DEVICE, KEEL_METHOD_DEVICE_POLL_SENDS,
		.args_count = 1,
		.args = { { KEEL_ATTR_DEVICE_POLL_SENDS_US, ARG_IN, 4 } },
	},
};

const int methods_count = COUNT(methods);

unsigned char method_out[METHOD_ARGS][512];

/* libibverbs hides the handle of a TD: create the TD without libibverbs. */
static uint32_t new_td(struct ibv_context *ctx)
{
	struct raw_cmd cmd;

	raw_init(&cmd, KEEL_OBJECT_TD, KEEL_METHOD_TD_ALLOC);
	raw_new(&cmd, KEEL_ATTR_TD_ALLOC_HANDLE);
	CHECK_OK(raw_run(ctx->cmd_fd, &cmd));
	return cmd.attrs[0].data;
}

static struct ibv_dm *new_dm(struct ibv_context *ctx)
{
	struct ibv_alloc_dm_attr attr = { .length = 8192 };

	return MUST(ibv_alloc_dm(ctx, &attr));
}

bool method_has_output(const struct method *m)
{
	int i;

	for (i = 0; i < m->args_count; i++)
		if (m->args[i].kind != ARG_OBJ && m->args[i].kind != ARG_IN)
			return true;
	return false;
}

void objects_make(struct objects *o)
{
	static char page[4096] __attribute__((aligned(4096)));
	struct keel_uapi_dm_map map;
	struct raw_cmd cmd;

	o->ctx = dev_open(KEEL0);
	o->pd = MUST(ibv_alloc_pd(o->ctx));
	o->free_pd = MUST(ibv_alloc_pd(o->ctx));
	o->td_handle = new_td(o->ctx);
	o->free_td_handle = new_td(o->ctx);
	o->dm = new_dm(o->ctx);
	o->free_dm = new_dm(o->ctx);
	/*
	 * The buffer's mmap offset stays allocated until the buffer is freed,
	 * even if the response could not be written: allocate the offset here.
	 */
	CHECK_OK(raw_dm_map(o->ctx->cmd_fd, o->dm->handle, 0, &map));
	o->mr = MUST(ibv_reg_mr(o->pd, page, 4096, 0));
	o->dm_mr = MUST(ibv_reg_dm_mr(o->pd, o->dm, 0, 8,
				      IBV_ACCESS_ZERO_BASED));
	raw_init(&cmd, UVERBS_OBJECT_PD, KEEL_METHOD_PD_ALLOC_PARENT);
	raw_new(&cmd, KEEL_ATTR_PD_ALLOC_PARENT_HANDLE);
	raw_obj(&cmd, KEEL_ATTR_PD_ALLOC_PARENT_PD, o->pd->handle);
	raw_obj(&cmd, KEEL_ATTR_PD_ALLOC_PARENT_TD, o->td_handle);
	raw_out(&cmd, KEEL_ATTR_PD_ALLOC_PARENT_RESP, method_out[0],
		sizeof(struct keel_uapi_pd_info));
	CHECK_OK(raw_run(o->ctx->cmd_fd, &cmd));
}

uint32_t objects_handle(const struct objects *o, uint16_t object, bool fresh)
{
	switch (object) {
	case UVERBS_OBJECT_PD:
		return fresh ? o->free_pd->handle : o->pd->handle;
	case UVERBS_OBJECT_DM:
		return fresh ? o->free_dm->handle : o->dm->handle;
	case KEEL_OBJECT_TD:
		return fresh ? o->free_td_handle : o->td_handle;
	default:
		FAIL("got object type %u, want one with a handle", object);
	}
}

void method_build(const struct method *m, const struct objects *o,
		  struct raw_cmd *cmd)
{
	static const unsigned char zero[512];
	const struct arg *arg;
	int i;

	raw_init(cmd, m->object, m->method);
	for (i = 0; i < m->args_count; i++) {
		arg = &m->args[i];
		switch (arg->kind) {
		case ARG_OBJ:
			raw_obj(cmd, arg->id,
				objects_handle(o, arg->object, m->once));
			break;
		case ARG_NEW:
			raw_new(cmd, arg->id);
			break;
		case ARG_IN:
			raw_in(cmd, arg->id, zero, arg->len);
			break;
		default:
			raw_out(cmd, arg->id, method_out[i], arg->len);
			break;
		}
	}
}

void method_check(const struct method *m, const struct objects *o,
		  struct raw_cmd *cmd, const char *spoiled, int want)
{
	char *before = tree_text(KEEL0), *after;
	int got = raw_run(o->ctx->cmd_fd, cmd);

	if (got != want)
		FAIL("%s with %s: got %s, want %s", m->name, spoiled,
		     t_errname(got), t_errname(want));
	if (want) {
		after = tree_text(KEEL0);
		if (strcmp(after, before))
			FAIL("%s with %s: got other objects than before, want the same",
			     m->name, spoiled);
		free(after);
	}
	free(before);
}
