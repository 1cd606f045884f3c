// SPDX-License-Identifier: GPL-2.0
/*
 * Calls that take the handle of any object: queries, lists of holders,
 * destruction; and address handles.
 */
#include <string.h>

#include "world.h"

#define MCAST_GID	"\xff\x0e\0\0\0\0\0\0\0\0\0\0\0\0\0"

struct obj *ah_new(struct obj *pd, const uint8_t *to, uint8_t from)
{
	struct ib_uverbs_create_ah core = {
		.pd_handle = pd->handle,
		.attr = {
			.is_global = 1, .port_num = 1, .grh.hop_limit = 64,
			.grh.sgid_index = from,
		},
	};
	struct keel_uapi_create_ah_resp drv = {};
	struct ib_uverbs_create_ah_resp resp;
	struct cmd cmd = {
		CMD(CREATE_AH), CORE_IN(&core), CORE_OUT(&resp),
		DRIVER_OUT(&drv),
	};
	struct obj *ah;

	memcpy(core.attr.grh.dgid, to, sizeof(core.attr.grh.dgid));
	if (cmd_run(&cmd))
		return NULL;
	ah = obj_add(K_AH, resp.ah_handle, pd->domain);
	ah->num = drv.ah;
	return ah;
}

/* ah PD WHERE GROUP FROM: to the port itself, or to a multicast group. */
static void op_ah(const uint8_t *a)
{
	struct obj *pd = obj_need(K_PD, a[0]);
	uint8_t to[16], from = a[3] % n_gids;

	/* Not all of them have the type of the source. */
	memcpy(to, gids[a[3] & 0x80 ? 0 : from], sizeof(to));
	if (a[1] % 4 == 3) {
		memcpy(to, MCAST_GID, 15);
		to[15] = a[2] % 4;
	}
	if (pd)
		ah_new(pd, to, from);
}

/* mcast QP HOW GROUP: attach to a group, or detach. */
static void op_mcast(const uint8_t *a)
{
	struct obj *qp = obj_pick(K_QP, a[0]);
	struct ib_uverbs_attach_mcast core = { .mlid = 0xc000 };
	struct cmd attach = { CMD(ATTACH_MCAST), CORE_IN(&core) };
	struct cmd detach = { CMD(DETACH_MCAST), CORE_IN(&core) };

	if (!qp)
		return;
	core.qp_handle = qp->handle;
	memcpy(core.gid, MCAST_GID, 15);
	core.gid[15] = a[2] % 4;
	cmd_run(a[1] % 2 ? &detach : &attach);
}

/* Queries by write(). */
static void query_device(void)
{
	struct ib_uverbs_query_device core = {};
	struct ib_uverbs_query_device_resp resp;
	struct cmd cmd = {
		CMD(QUERY_DEVICE), CORE_IN(&core), CORE_OUT(&resp),
	};

	cmd_run(&cmd);
}

static void query_device_ex(void)
{
	struct ib_uverbs_ex_query_device core = {};
	struct ib_uverbs_ex_query_device_resp resp;
	struct cmd cmd = {
		CMD_EX(QUERY_DEVICE), CORE_IN(&core), CORE_OUT(&resp),
	};

	cmd_run(&cmd);
}

static void query_port(void)
{
	struct ib_uverbs_query_port core = { .port_num = 1 };
	struct ib_uverbs_query_port_resp resp;
	struct cmd cmd = { CMD(QUERY_PORT), CORE_IN(&core), CORE_OUT(&resp) };

	cmd_run(&cmd);
}

/* And those by ioctl(). */
static void query_context(void)
{
	struct keel_uapi_context_resp context;
	uint32_t vectors;

	cmd_method(M_QUERY_CONTEXT, UVERBS_OBJECT_DEVICE,
		   UVERBS_METHOD_QUERY_CONTEXT,
		   ATTRS(OUT(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, &vectors),
			 OUT(KEEL_ATTR_QUERY_CONTEXT_RESP, &context)));
}

static void query_gids(void)
{
	struct ib_uverbs_gid_entry gids[4];
	uint64_t size = sizeof(gids[0]), count;

	cmd_method(M_QUERY_GID_TABLE, UVERBS_OBJECT_DEVICE,
		   UVERBS_METHOD_QUERY_GID_TABLE,
		   ATTRS(IN(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, &size),
			 OUT(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, &gids),
			 OUT(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, &count)));
}

static void query_gid(uint64_t index)
{
	struct ib_uverbs_gid_entry one;
	uint64_t port = 1;
	uint32_t none = 0;

	cmd_method(M_QUERY_GID_ENTRY, UVERBS_OBJECT_DEVICE,
		   UVERBS_METHOD_QUERY_GID_ENTRY,
		   ATTRS(IN(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, &port),
			 IN(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, &index),
			 IN(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, &none),
			 OUT(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, &one)));
}

static void query_port_ioctl(void)
{
	struct ib_uverbs_query_port_resp_ex resp;
	uint64_t port = 1;

	cmd_method(M_DEVICE_QUERY_PORT, UVERBS_OBJECT_DEVICE,
		   UVERBS_METHOD_QUERY_PORT,
		   ATTRS(IN(UVERBS_ATTR_QUERY_PORT_PORT_NUM, &port),
			 OUT(UVERBS_ATTR_QUERY_PORT_RESP, &resp)));
}

static void info_handles(uint64_t object)
{
	uint32_t handles[16], total;

	cmd_method(M_INFO_HANDLES, UVERBS_OBJECT_DEVICE,
		   UVERBS_METHOD_INFO_HANDLES,
		   ATTRS(IN(UVERBS_ATTR_INFO_OBJECT_ID, &object),
			 OUT(UVERBS_ATTR_INFO_TOTAL_HANDLES, &total),
			 OUT(UVERBS_ATTR_INFO_HANDLES_LIST, &handles)));
}

/* query WHAT INDEX: properties of the device. */
static void op_query(const uint8_t *a)
{
	switch (a[0] % 8) {
	case 0:
		query_device();
		break;
	case 1:
		query_device_ex();
		break;
	case 2:
		query_port();
		break;
	case 3:
		query_context();
		break;
	case 4:
		query_gids();
		break;
	case 5:
		query_gid(a[1] % 4);
		break;
	case 6:
		info_handles(a[1] % 17);
		break;
	default:
		query_port_ioctl();
		break;
	}
}

/* holders KIND OBJECT ROOM FLAGS */
static void op_holders(const uint8_t *a)
{
	static const struct list {
		enum method m;
		enum kind kind;
		uint16_t object, method;
	} lists[] = {
		{ M_PD_HOLDERS, K_PD, UVERBS_OBJECT_PD, KEEL_METHOD_PD_HOLDERS },
		{ M_TD_HOLDERS, K_TD, KEEL_OBJECT_TD, KEEL_METHOD_TD_HOLDERS },
		{ M_DM_HOLDERS, K_DM, UVERBS_OBJECT_DM, KEEL_METHOD_DM_HOLDERS },
	};
	const struct list *of = &lists[a[0] % 3];
	struct obj *obj = obj_pick(of->kind, a[1]);
	struct keel_uapi_holder list[8];
	uint64_t flags = a[3] % 4 == 1;
	uint32_t count;

	if (!obj)
		return;
	cmd_method(of->m, of->object, of->method,
		   ATTRS(OBJ(KEEL_ATTR_HOLDERS_HANDLE, obj->handle),
			 OUT(KEEL_ATTR_HOLDERS_RESP_COUNT, &count),
			 OUT_LEN(KEEL_ATTR_HOLDERS_RESP_LIST, list,
				 a[2] % 9 * sizeof(list[0])),
			 IN_IF(a[3] % 4, KEEL_ATTR_HOLDERS_FLAGS, &flags)));
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

	if (!obj)
		return;
	switch (a[0] % 3) {
	case 0:
		cmd_method(M_PD_QUERY, UVERBS_OBJECT_PD, KEEL_METHOD_PD_QUERY,
			   ATTRS(OBJ(KEEL_ATTR_PD_QUERY_HANDLE, obj->handle),
				 OUT(KEEL_ATTR_PD_QUERY_RESP, &pd)));
		break;
	case 1:
		cmd_method(M_DM_QUERY, UVERBS_OBJECT_DM, KEEL_METHOD_DM_QUERY,
			   ATTRS(OBJ(KEEL_ATTR_DM_QUERY_HANDLE, obj->handle),
				 OUT(KEEL_ATTR_DM_QUERY_RESP, &dm)));
		break;
	default:
		cmd_method(M_QUERY_MR, UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR,
			   ATTRS(OBJ(UVERBS_ATTR_QUERY_MR_HANDLE, obj->handle),
				 OUT(UVERBS_ATTR_QUERY_MR_RESP_LKEY, &lkey),
				 OUT(UVERBS_ATTR_QUERY_MR_RESP_RKEY, &rkey),
				 OUT(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, &len),
				 OUT(UVERBS_ATTR_QUERY_MR_RESP_IOVA, &iova)));
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

	if (!mr || !pd)
		return;
	sge[0].addr = mr->addr + a[3] * 16;
	sge[0].length = a[4] * 64;
	sge[0].lkey = mr->num;
	sge[1] = sge[0];
	cmd_method(M_ADVISE_MR, UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR,
		   ATTRS(OBJ(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, pd->handle),
			 IN(UVERBS_ATTR_ADVISE_MR_ADVICE, &advice),
			 IN(UVERBS_ATTR_ADVISE_MR_FLAGS, &flags),
			 IN(UVERBS_ATTR_ADVISE_MR_SGE_LIST, &sge)));
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
	int ret;

	if (!end->method && !end->command)
		return;
	/* The response comes first in a command. */
	if (end->resp_len) {
		core[0] = 0;
		core[2] = obj->handle;
	}
	if (by_ioctl || !end->command)
		ret = cmd_method(end->m, end->object, end->method,
				 ATTRS(OBJ(kind == K_TD ? KEEL_ATTR_TD_FREE_HANDLE : 0,
					   obj->handle),
				       OUT_LEN(end->resp, resp, end->resp_len)));
	else
		ret = cmd_run(&cmd);
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
