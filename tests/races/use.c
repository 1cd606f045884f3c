// SPDX-License-Identifier: GPL-2.0
/*
 * One thread uses an object while another destroys it. Either the use succeeds, and
 * the object is in use, or the object is gone, and the use is refused.
 */
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

/*
 * The use made something and the destroy was refused, or the destroy succeeded and
 * the use found nothing.
 */
static enum duel_first judge(int (*undo)(void), int (*again)(void))
{
	if (!use_err) {
		CHECK_EQ(destroy_err, EBUSY);
		CHECK_OK(undo());
		CHECK_OK(again());
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

static void begin(void)
{
	ctx = dev_open(KEEL0);
	base = MUST(ibv_alloc_pd(ctx));
	base_cq = cq_new(ctx);
	idle = tree_count(KEEL0, NULL);
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

static void try_dealloc_pd(void)
{
	destroy_err = dealloc_pd();
}

static void try_reg_mr(void)
{
	use_result(ibv_reg_mr(object, page, PAGE, IBV_ACCESS_LOCAL_WRITE));
}

static int undo_mr(void)
{
	return ibv_dereg_mr(made);
}

static enum duel_first judge_mr(void)
{
	return judge(undo_mr, dealloc_pd);
}

TEST_SLOW(pd_mr, "PD-2", "ibv_reg_mr() against ibv_dealloc_pd(), both orders: the MR keeps the PD, or is refused", 120)
{
	begin();
	duel_short(new_pd, try_reg_mr, try_dealloc_pd, judge_mr);
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

static enum duel_first judge_parent(void)
{
	return judge(undo_pd, dealloc_pd);
}

TEST_SLOW(pd_parent, "PDM-9", "ibv_alloc_parent_domain() against dealloc of its PD, both orders: the parent domain keeps the PD, or is refused", 120)
{
	begin();
	duel_short(new_pd, try_parent, try_dealloc_pd, judge_parent);
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

static enum duel_first judge_ah(void)
{
	return judge(undo_ah, dealloc_pd);
}

TEST_SLOW(pd_ah, "PD-2", "ibv_create_ah() against ibv_dealloc_pd(), both orders: the AH keeps the PD, or is refused", 120)
{
	begin();
	duel_short(new_pd, try_ah, try_dealloc_pd, judge_ah);
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

static void try_free_td(void)
{
	destroy_err = free_td();
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

static enum duel_first judge_td(void)
{
	return judge(undo_parent, free_td);
}

TEST_SLOW(td_parent, "TD-2", "a new parent domain against dealloc of its thread domain, both orders: it keeps the thread domain, or is refused", 120)
{
	begin();
	duel_short(new_td, try_td_parent, try_free_td, judge_td);
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

static void try_free_dm(void)
{
	destroy_err = free_dm();
}

static void try_reg_dm_mr(void)
{
	use_result(ibv_reg_dm_mr(base, object, 0, PAGE, IBV_ACCESS_ZERO_BASED));
}

static enum duel_first judge_dm(void)
{
	return judge(undo_mr, free_dm);
}

TEST_SLOW(dm_mr, "DM-8", "ibv_reg_dm_mr() against ibv_free_dm(), both orders: the MR keeps the buffer, or is refused", 120)
{
	begin();
	duel_short(new_dm, try_reg_dm_mr, try_free_dm, judge_dm);
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

static void try_destroy_cq(void)
{
	destroy_err = destroy_cq();
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

static enum duel_first judge_cq(void)
{
	return judge(undo_qp, destroy_cq);
}

TEST_SLOW(cq_qp, "PD-2", "ibv_create_qp() against ibv_destroy_cq(), both orders: the QP keeps the CQ, or is refused", 120)
{
	begin();
	duel_short(new_cq, try_qp, try_destroy_cq, judge_cq);
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

static void try_destroy_srq(void)
{
	destroy_err = destroy_srq();
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

static enum duel_first judge_srq(void)
{
	return judge(undo_qp, destroy_srq);
}

TEST_SLOW(srq_qp, "PD-2", "ibv_create_qp() against ibv_destroy_srq(), both orders: the QP keeps the SRQ, or is refused", 120)
{
	begin();
	duel_short(new_srq, try_srq_qp, try_destroy_srq, judge_srq);
}
