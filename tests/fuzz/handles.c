// SPDX-License-Identifier: GPL-2.0
/*
 * Calls that take the handle of any object: queries, lists of holders,
 * destruction; and address handles.
 */
#include <string.h>

#include "world.h"

#define MCAST_GID	"\xff\x0e\0\0\0\0\0\0\0\0\0\0\0\0\0"

struct obj *ah_new(struct obj *pd, const uint8_t *to)
{
	struct ib_uverbs_create_ah core = {
		.pd_handle = pd->handle,
		.attr = { .is_global = 1, .port_num = 1, .grh.hop_limit = 64 },
	};
	struct keel_uapi_create_ah_resp drv = {};
	struct ib_uverbs_create_ah_resp resp;
	struct cmd cmd = {
		.m = M_CREATE_AH, .command = IB_USER_VERBS_CMD_CREATE_AH,
		.core = &core, .core_len = sizeof(core),
		.resp = &resp, .resp_len = sizeof(resp),
		.dresp = &drv, .dresp_len = sizeof(drv),
	};
	struct obj *ah;

	memcpy(core.attr.grh.dgid, to, sizeof(core.attr.grh.dgid));
	if (cmd_run(&cmd))
		return NULL;
	ah = obj_new(K_AH);
	ah->handle = resp.ah_handle;
	ah->num = drv.ah;
	ah->domain = pd->domain;
	ah->live = true;
	return ah;
}

/* ah PD WHERE: to the port itself, or to a multicast group. */
static void op_ah(const uint8_t *a)
{
	struct obj *pd = obj_need(K_PD, a[0]);
	uint8_t to[16];

	memcpy(to, gid, sizeof(to));
	if (a[1] % 4 == 3) {
		memcpy(to, MCAST_GID, 15);
		to[15] = a[2] % 4;
	}
	if (pd)
		ah_new(pd, to);
}

/* mcast QP HOW GROUP: attach to a group, or detach. */
static void op_mcast(const uint8_t *a)
{
	struct obj *qp = obj_pick(K_QP, a[0]);
	struct ib_uverbs_attach_mcast core = { .mlid = 0xc000 };
	struct cmd cmd = {
		.m = a[1] % 2 ? M_DETACH_MCAST : M_ATTACH_MCAST,
		.command = a[1] % 2 ? IB_USER_VERBS_CMD_DETACH_MCAST :
				      IB_USER_VERBS_CMD_ATTACH_MCAST,
		.core = &core, .core_len = sizeof(core),
	};

	if (!qp)
		return;
	core.qp_handle = qp->handle;
	memcpy(core.gid, MCAST_GID, 15);
	core.gid[15] = a[2] % 4;
	cmd_run(&cmd);
}

static void query_write(enum method m, uint32_t command)
{
	union {
		struct ib_uverbs_query_device device;
		struct ib_uverbs_query_port port;
		struct ib_uverbs_ex_query_device ex;
	} core = {};
	uint8_t resp[512];
	struct cmd cmd = {
		.m = m, .command = command, .core = &core,
		.core_len = sizeof(core.device), .resp = resp,
		.resp_len = sizeof(struct ib_uverbs_query_device_resp),
	};

	if (m == M_QUERY_PORT) {
		core.port.port_num = 1;
		cmd.core_len = sizeof(core.port);
		cmd.resp_len = sizeof(struct ib_uverbs_query_port_resp);
	}
	if (m == M_EX_QUERY_DEVICE) {
		cmd.core_len = sizeof(core.ex);
		cmd.resp_len = sizeof(struct ib_uverbs_ex_query_device_resp);
	}
	cmd_run(&cmd);
}

static void query_ioctl(enum method m, const uint8_t *a)
{
	struct keel_uapi_context_resp context;
	struct ib_uverbs_gid_entry gids[4];
	uint64_t port = 1, index = a[1] % 4, object = a[1] % 17, count;
	uint64_t size = sizeof(gids[0]);
	uint32_t handles[16], vectors, none = 0;
	struct raw_cmd raw;

	raw_init(&raw, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT);
	switch (m) {
	case M_QUERY_CONTEXT:
		raw_out(&raw, UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS,
			ROOM_OF(&vectors));
		raw_out(&raw, KEEL_ATTR_QUERY_CONTEXT_RESP, ROOM_OF(&context));
		break;
	case M_QUERY_GID_TABLE:
		raw.hdr.method_id = UVERBS_METHOD_QUERY_GID_TABLE;
		raw_in(&raw, UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE,
		       ROOM_OF(&size));
		raw_out(&raw, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, gids,
			sizeof(gids));
		raw_out(&raw, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES,
			ROOM_OF(&count));
		break;
	case M_QUERY_GID_ENTRY:
		raw.hdr.method_id = UVERBS_METHOD_QUERY_GID_ENTRY;
		raw_in(&raw, UVERBS_ATTR_QUERY_GID_ENTRY_PORT, ROOM_OF(&port));
		raw_in(&raw, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX,
		       ROOM_OF(&index));
		raw_in(&raw, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, ROOM_OF(&none));
		raw_out(&raw, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY,
			ROOM_OF(&gids[0]));
		break;
	default:
		raw.hdr.method_id = UVERBS_METHOD_INFO_HANDLES;
		raw_in(&raw, UVERBS_ATTR_INFO_OBJECT_ID, ROOM_OF(&object));
		raw_out(&raw, UVERBS_ATTR_INFO_TOTAL_HANDLES, ROOM_OF(&vectors));
		raw_out(&raw, UVERBS_ATTR_INFO_HANDLES_LIST, handles,
			sizeof(handles));
		break;
	}
	cmd_ioctl(m, &raw);
}

/* query WHAT INDEX: properties of the device. */
static void op_query(const uint8_t *a)
{
	switch (a[0] % 7) {
	case 0:
		query_write(M_QUERY_DEVICE, IB_USER_VERBS_CMD_QUERY_DEVICE);
		break;
	case 1:
		query_write(M_EX_QUERY_DEVICE,
			    IB_USER_VERBS_EX_CMD_QUERY_DEVICE |
			    IB_USER_VERBS_CMD_FLAG_EXTENDED);
		break;
	case 2:
		query_write(M_QUERY_PORT, IB_USER_VERBS_CMD_QUERY_PORT);
		break;
	case 3:
		query_ioctl(M_QUERY_CONTEXT, a);
		break;
	case 4:
		query_ioctl(M_QUERY_GID_TABLE, a);
		break;
	case 5:
		query_ioctl(M_QUERY_GID_ENTRY, a);
		break;
	default:
		query_ioctl(M_INFO_HANDLES, a);
		break;
	}
}

/* holders KIND OBJECT ROOM FLAGS */
static void op_holders(const uint8_t *a)
{
	static const struct {
		enum method m;
		enum kind kind;
		uint16_t object, method;
	} of[] = {
		{ M_PD_HOLDERS, K_PD, UVERBS_OBJECT_PD, KEEL_METHOD_PD_HOLDERS },
		{ M_TD_HOLDERS, K_TD, KEEL_OBJECT_TD, KEEL_METHOD_TD_HOLDERS },
		{ M_DM_HOLDERS, K_DM, UVERBS_OBJECT_DM, KEEL_METHOD_DM_HOLDERS },
	};
	struct obj *obj = obj_pick(of[a[0] % 3].kind, a[1]);
	struct keel_uapi_holder list[8];
	uint64_t flags = a[3] % 4 == 1;
	struct raw_cmd raw;
	uint32_t count;

	if (!obj)
		return;
	raw_init(&raw, of[a[0] % 3].object, of[a[0] % 3].method);
	raw_obj(&raw, KEEL_ATTR_HOLDERS_HANDLE, obj->handle);
	raw_out(&raw, KEEL_ATTR_HOLDERS_RESP_COUNT, ROOM_OF(&count));
	if (a[2] % 9)
		raw_out(&raw, KEEL_ATTR_HOLDERS_RESP_LIST, list,
			a[2] % 9 * sizeof(list[0]));
	if (a[3] % 4)
		raw_in(&raw, KEEL_ATTR_HOLDERS_FLAGS, ROOM_OF(&flags));
	cmd_ioctl(of[a[0] % 3].m, &raw);
}

/* info WHAT OBJECT: keel's queries, and that of an MR. */
static void op_info(const uint8_t *a)
{
	static const enum kind kinds[] = { K_PD, K_DM, K_MR };
	struct obj *obj = obj_pick(kinds[a[0] % 3], a[1]);
	uint32_t lkey, rkey;
	uint64_t len, iova;
	struct keel_uapi_pd_info pd;
	struct keel_uapi_dm_info dm;
	struct raw_cmd raw;

	if (!obj)
		return;
	switch (a[0] % 3) {
	case 0:
		raw_init(&raw, UVERBS_OBJECT_PD, KEEL_METHOD_PD_QUERY);
		raw_obj(&raw, KEEL_ATTR_PD_QUERY_HANDLE, obj->handle);
		raw_out(&raw, KEEL_ATTR_PD_QUERY_RESP, ROOM_OF(&pd));
		cmd_ioctl(M_PD_QUERY, &raw);
		break;
	case 1:
		raw_init(&raw, UVERBS_OBJECT_DM, KEEL_METHOD_DM_QUERY);
		raw_obj(&raw, KEEL_ATTR_DM_QUERY_HANDLE, obj->handle);
		raw_out(&raw, KEEL_ATTR_DM_QUERY_RESP, ROOM_OF(&dm));
		cmd_ioctl(M_DM_QUERY, &raw);
		break;
	default:
		raw_init(&raw, UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR);
		raw_obj(&raw, UVERBS_ATTR_QUERY_MR_HANDLE, obj->handle);
		raw_out(&raw, UVERBS_ATTR_QUERY_MR_RESP_LKEY, ROOM_OF(&lkey));
		raw_out(&raw, UVERBS_ATTR_QUERY_MR_RESP_RKEY, ROOM_OF(&rkey));
		raw_out(&raw, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, ROOM_OF(&len));
		raw_out(&raw, UVERBS_ATTR_QUERY_MR_RESP_IOVA, ROOM_OF(&iova));
		cmd_ioctl(M_QUERY_MR, &raw);
		break;
	}
}

/* advise MR ADVICE FLAGS OFFSET LENGTH */
static void op_advise(const uint8_t *a)
{
	struct obj *mr = obj_need(K_MR, a[0]), *pd = obj_need(K_PD, a[5]);
	uint32_t flags = a[2] % 4 == 3 ? 0 : IB_UVERBS_ADVISE_MR_FLAG_FLUSH;
	uint64_t advice = a[1] % 3;
	struct ib_uverbs_sge sge[2];
	struct raw_cmd raw;

	if (!mr || !pd)
		return;
	sge[0].addr = mr->addr + a[3] * 16;
	sge[0].length = a[4] * 64;
	sge[0].lkey = mr->num;
	sge[1] = sge[0];
	raw_init(&raw, UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR);
	raw_obj(&raw, UVERBS_ATTR_ADVISE_MR_PD_HANDLE, pd->handle);
	raw_in(&raw, UVERBS_ATTR_ADVISE_MR_ADVICE, ROOM_OF(&advice));
	raw_in(&raw, UVERBS_ATTR_ADVISE_MR_FLAGS, ROOM_OF(&flags));
	raw_in(&raw, UVERBS_ATTR_ADVISE_MR_SGE_LIST, sge, sizeof(sge));
	cmd_ioctl(M_ADVISE_MR, &raw);
}

/* How an object is destroyed: by the command, and by the method. */
struct end {
	enum method m;
	uint32_t command;
	size_t core_len, resp_len;
	uint16_t object, method, resp;
};

static const struct end ends[KINDS] = {
	[K_PD] = { M_DEALLOC_PD, IB_USER_VERBS_CMD_DEALLOC_PD, 4, 0,
		   UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY },
	[K_MR] = { M_DEREG_MR, IB_USER_VERBS_CMD_DEREG_MR, 4, 0,
		   UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY },
	[K_MW] = { M_DEALLOC_MW, IB_USER_VERBS_CMD_DEALLOC_MW, 4, 0,
		   UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY },
	[K_AH] = { M_DESTROY_AH, IB_USER_VERBS_CMD_DESTROY_AH, 4, 0,
		   UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY },
	[K_XRCD] = { M_CLOSE_XRCD, IB_USER_VERBS_CMD_CLOSE_XRCD, 4, 0,
		     UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY },
	[K_CQ] = { M_DESTROY_CQ, IB_USER_VERBS_CMD_DESTROY_CQ, 16, 8,
		   UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY,
		   UVERBS_ATTR_DESTROY_CQ_RESP },
	[K_SRQ] = { M_DESTROY_SRQ, IB_USER_VERBS_CMD_DESTROY_SRQ, 16, 4,
		    UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY,
		    UVERBS_ATTR_DESTROY_SRQ_RESP },
	[K_QP] = { M_DESTROY_QP, IB_USER_VERBS_CMD_DESTROY_QP, 16, 4,
		   UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY,
		   UVERBS_ATTR_DESTROY_QP_RESP },
	[K_DM] = { M_DM_FREE, 0, 0, 0, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE },
	[K_TD] = { M_TD_FREE, 0, 0, 0, KEEL_OBJECT_TD, KEEL_METHOD_TD_FREE },
};

void obj_destroy(enum kind kind, struct obj *obj, bool by_ioctl)
{
	const struct end *end = &ends[kind];
	uint32_t core[4] = { obj->handle };
	uint8_t resp[8];
	struct cmd cmd = {
		.m = end->m, .command = end->command, .core = core,
		.core_len = end->core_len, .resp = resp,
		.resp_len = end->resp_len,
	};
	struct raw_cmd raw;
	int ret;

	if (!end->method && !end->command)
		return;
	/* The response comes first in a command. */
	if (end->resp_len) {
		core[0] = 0;
		core[2] = obj->handle;
	}
	if (by_ioctl || !end->command) {
		raw_init(&raw, end->object, end->method);
		raw_obj(&raw, kind == K_TD ? KEEL_ATTR_TD_FREE_HANDLE : 0,
			obj->handle);
		if (end->resp_len)
			raw_out(&raw, end->resp, resp, end->resp_len);
		ret = cmd_ioctl(end->m, &raw);
	} else {
		ret = cmd_run(&cmd);
	}
	if (!ret)
		obj->live = false;
}

/* destroy KIND OBJECT HOW */
static void op_destroy(const uint8_t *a)
{
	enum kind kind = a[0] % KINDS;
	struct obj *obj = obj_pick(kind, a[1]);

	if (obj && kind != K_CHAN && kind != K_SHPD)
		obj_destroy(kind, obj, a[2] % 2);
}

const struct op handle_ops[] = {
	{ "ah", op_ah, 2 }, { "mcast", op_mcast, 2 }, { "query", op_query, 1 },
	{ "holders", op_holders, 2 }, { "info", op_info, 2 },
	{ "advise", op_advise, 2 }, { "destroy", op_destroy, 8 },
};

const int handle_ops_count = sizeof(handle_ops) / sizeof(*handle_ops);
