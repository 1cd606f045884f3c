// SPDX-License-Identifier: GPL-2.0
/*
 * One thread uses an object while another destroys it. Either the use succeeds, and
 * the object is in use, or the object is gone, and the use is refused.
 */
#include <malloc.h>

#include "duel.h"
#include "qp.h"
#include "raw.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096

static char page[PAGE] __attribute__((aligned(PAGE)));
static struct ibv_context *ctx;
static struct ibv_pd *base;
static struct ibv_cq *base_cq;

/* The object of the round, by its structure and by its handle. */
static void *object;
static uint32_t handle;
/* The object that the use made, or NULL, and errno. */
static void *made;
static int use_err, destroy_err;
static long idle;

/* Destroy the object by its handle: libibverbs would free its own structure. */
static int destroy(uint32_t command)
{
	struct raw_invoke inv = {
		.command = command, .in = &handle, .in_len = sizeof(handle),
	};

	return raw_invoke(ctx->cmd_fd, &inv);
}

static int destroy_by(uint16_t type, uint16_t method, uint16_t attr)
{
	struct raw_cmd cmd;

	raw_init(&cmd, type, method);
	raw_obj(&cmd, attr, handle);
	return raw_run(ctx->cmd_fd, &cmd);
}

static void use_result(void *p)
{
	made = p;
	use_err = p ? 0 : errno;
}

/**
 * struct use - a use of an object against its destroy
 * @create: create the object
 * @use: create something that needs it
 * @destroy: destroy the object; returns 0 or a positive errno
 * @undo: destroy what @use created
 */
struct use {
	void (*create)(void);
	void (*use)(void);
	int (*destroy)(void);
	int (*undo)(void);
};

static const struct use *now;

static void try_destroy(void)
{
	destroy_err = now->destroy();
}

/*
 * The use made something and the destroy was refused, or the destroy succeeded and
 * the use found nothing.
 */
static enum duel_first judge(void)
{
	if (!use_err) {
		CHECK_EQ(destroy_err, EBUSY);
		CHECK_OK(now->undo());
		CHECK_OK(now->destroy());
		CHECK_EQ(tree_count(KEEL0, NULL), idle);
		return DUEL_A;
	}
	/* The kernel finds the object locked (EBUSY) or gone. */
	if (use_err != EBUSY && use_err != ENOENT && use_err != EINVAL)
		FAIL("the use: got %s, want EBUSY, ENOENT or EINVAL",
		     t_errname(use_err));
	CHECK_RET(destroy_err, 0);
	CHECK_EQ(tree_count(KEEL0, NULL), idle);
	return DUEL_B;
}

static void race(const struct use *use)
{
	now = use;
	ctx = dev_open(KEEL0);
	base = MUST(ibv_alloc_pd(ctx));
	base_cq = cq_new(ctx);
	idle = tree_count(KEEL0, NULL);
	duel_short(use->create, use->use, try_destroy, judge);
}

static void new_pd(void)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));

	object = pd;
	handle = pd->handle;
}

static int dealloc_pd(void)
{
	return destroy(IB_USER_VERBS_CMD_DEALLOC_PD);
}

static void try_reg_mr(void)
{
	use_result(ibv_reg_mr(object, page, PAGE, IBV_ACCESS_LOCAL_WRITE));
}

static int undo_mr(void)
{
	return ibv_dereg_mr(made);
}

TEST_SLOW(pd_mr, "PD-2", "ibv_reg_mr() against ibv_dealloc_pd(), both orders: the MR keeps the PD, or is refused", 120)
{
	race(&(struct use){ new_pd, try_reg_mr, dealloc_pd, undo_mr });
}

static void try_parent(void)
{
	struct ibv_parent_domain_init_attr attr = { .pd = object };

	use_result(ibv_alloc_parent_domain(ctx, &attr));
}

static int undo_pd(void)
{
	return ibv_dealloc_pd(made);
}

TEST_SLOW(pd_parent, "PDM-9", "ibv_alloc_parent_domain() against dealloc of its PD, both orders: the parent domain keeps the PD, or is refused", 120)
{
	race(&(struct use){ new_pd, try_parent, dealloc_pd, undo_pd });
}

static void try_ah(void)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };

	/* Any address will do. */
	attr.grh.dgid.raw[0] = 0xfe;
	attr.grh.dgid.raw[1] = 0x80;
	attr.grh.dgid.raw[15] = 1;
	use_result(ibv_create_ah(object, &attr));
}

static int undo_ah(void)
{
	return ibv_destroy_ah(made);
}

TEST_SLOW(pd_ah, "PD-2", "ibv_create_ah() against ibv_dealloc_pd(), both orders: the AH keeps the PD, or is refused", 120)
{
	race(&(struct use){ new_pd, try_ah, dealloc_pd, undo_ah });
}

static void new_td(void)
{
	struct raw_cmd cmd;

	raw_init(&cmd, KEEL_OBJECT_TD, KEEL_METHOD_TD_ALLOC);
	raw_new(&cmd, KEEL_ATTR_TD_ALLOC_HANDLE);
	CHECK_OK(raw_run(ctx->cmd_fd, &cmd));
	handle = cmd.attrs[0].data;
}

static int free_td(void)
{
	return destroy_by(KEEL_OBJECT_TD, KEEL_METHOD_TD_FREE,
			  KEEL_ATTR_TD_FREE_HANDLE);
}

static uint32_t parent;

static void try_td_parent(void)
{
	struct keel_uapi_pd_info info;
	struct raw_cmd cmd;

	raw_init(&cmd, UVERBS_OBJECT_PD, KEEL_METHOD_PD_ALLOC_PARENT);
	raw_new(&cmd, KEEL_ATTR_PD_ALLOC_PARENT_HANDLE);
	raw_obj(&cmd, KEEL_ATTR_PD_ALLOC_PARENT_PD, base->handle);
	raw_obj(&cmd, KEEL_ATTR_PD_ALLOC_PARENT_TD, handle);
	raw_out(&cmd, KEEL_ATTR_PD_ALLOC_PARENT_RESP, &info, sizeof(info));
	use_err = raw_run(ctx->cmd_fd, &cmd);
	parent = cmd.attrs[0].data;
}

static int undo_parent(void)
{
	struct raw_invoke inv = {
		.command = IB_USER_VERBS_CMD_DEALLOC_PD, .in = &parent,
		.in_len = sizeof(parent),
	};

	return raw_invoke(ctx->cmd_fd, &inv);
}

TEST_SLOW(td_parent, "TD-2", "a new parent domain against dealloc of its thread domain, both orders: it keeps the thread domain, or is refused", 120)
{
	race(&(struct use){ new_td, try_td_parent, free_td, undo_parent });
}

static void new_dm(void)
{
	struct ibv_alloc_dm_attr attr = { .length = PAGE };
	struct ibv_dm *dm = MUST(ibv_alloc_dm(ctx, &attr));

	object = dm;
	handle = dm->handle;
}

static int free_dm(void)
{
	return destroy_by(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE,
			  UVERBS_ATTR_FREE_DM_HANDLE);
}

static void try_reg_dm_mr(void)
{
	use_result(ibv_reg_dm_mr(base, object, 0, PAGE, IBV_ACCESS_ZERO_BASED));
}

TEST_SLOW(dm_mr, "DM-8", "ibv_reg_dm_mr() against ibv_free_dm(), both orders: the MR keeps the buffer, or is refused", 120)
{
	race(&(struct use){ new_dm, try_reg_dm_mr, free_dm, undo_mr });
}

static void new_cq(void)
{
	struct ibv_cq *cq = cq_new(ctx);

	object = cq;
	handle = cq->handle;
}

static int destroy_cq(void)
{
	struct ib_uverbs_destroy_cq req = { .cq_handle = handle };
	struct ib_uverbs_destroy_cq_resp resp;
	struct raw_invoke inv = {
		.command = IB_USER_VERBS_CMD_DESTROY_CQ,
		.in = &req, .in_len = sizeof(req),
		.out = &resp, .out_len = sizeof(resp),
	};

	return raw_invoke(ctx->cmd_fd, &inv);
}

static void try_qp(void)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = base_cq, .recv_cq = object, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	use_result(ibv_create_qp(base, &attr));
}

static int undo_qp(void)
{
	return ibv_destroy_qp(made);
}

TEST_SLOW(cq_qp, "DEV-4", "ibv_create_qp() against ibv_destroy_cq(), both orders: the QP keeps the CQ, or is refused", 120)
{
	race(&(struct use){ new_cq, try_qp, destroy_cq, undo_qp });
}

static void new_srq(void)
{
	struct ibv_srq *srq = srq_new(base);

	object = srq;
	handle = srq->handle;
}

static int destroy_srq(void)
{
	struct ib_uverbs_destroy_srq req = { .srq_handle = handle };
	struct ib_uverbs_destroy_srq_resp resp;
	struct raw_invoke inv = {
		.command = IB_USER_VERBS_CMD_DESTROY_SRQ,
		.in = &req, .in_len = sizeof(req),
		.out = &resp, .out_len = sizeof(resp),
	};

	return raw_invoke(ctx->cmd_fd, &inv);
}

static void try_srq_qp(void)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = base_cq, .recv_cq = base_cq, .srq = object,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
	};

	use_result(ibv_create_qp(base, &attr));
}

TEST_SLOW(srq_qp, "DEV-4", "ibv_create_qp() against ibv_destroy_srq(), both orders: the QP keeps the SRQ, or is refused", 120)
{
	race(&(struct use){ new_srq, try_srq_qp, destroy_srq, undo_qp });
}

static struct ibv_xrcd *xrcd;
/* The use has a copy, because libibverbs frees the structure. */
static long xrcd_copy[32];

static void new_xrcd(void)
{
	size_t len;

	xrcd = xrcd_new(ctx);
	len = malloc_usable_size(xrcd);
	CHECK(len <= sizeof(xrcd_copy));
	memcpy(xrcd_copy, xrcd, len);
	object = xrcd_copy;
}

static int close_xrcd(void)
{
	return ibv_close_xrcd(xrcd);
}

static void try_xrc_srq(void)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 1, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC, .pd = base, .xrcd = object,
		.cq = base_cq,
	};

	use_result(ibv_create_srq_ex(ctx, &attr));
}

static int undo_srq(void)
{
	return ibv_destroy_srq(made);
}

TEST_SLOW(xrcd_srq, "XRC-7", "ibv_create_srq_ex() against ibv_close_xrcd(), both orders: the SRQ keeps the XRC domain, or is refused", 120)
{
	race(&(struct use){ new_xrcd, try_xrc_srq, close_xrcd, undo_srq });
}
