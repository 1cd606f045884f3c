// SPDX-License-Identifier: GPL-2.0
/*
 * Failing allocations: each verb is called with its first allocation failing,
 * then its second, and so on until none is left. Copies from and to userspace
 * count as well. The kernel does this for one task: fault-injection.rst of its
 * documentation describes /proc/self/fail-nth.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <infiniband/shpd.h>

#include "buf.h"
#include "fault.h"
#include "fault_verb.h"
#include "qp.h"
#include "t.h"
#include "tree.h"

#define KEY	0x0123456789abcdefULL
#define BYTES	(64 * 4096UL)
#define ALL	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
		 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static char memory[BYTES] __attribute__((aligned(4096)));

/* Parameters of the verbs. */
static struct {
	struct ibv_context *ctx;
	struct ibv_pd *pd, *other;
	struct ibv_td *td;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_xrcd *xrcd;
	struct ibv_dm *dm, *small[2];
	struct ibv_qp *ud;
	struct ibv_shpd shpd;
	struct buf buf;
	long bufs;
	int file;
} env;

/* --- the verbs -------------------------------------------------------------- */

static void *open_device(void)
{
	return ibv_open_device(env.ctx->device);
}

static int close_device(void *ctx)
{
	return ibv_close_device(ctx);
}

static void *alloc_pd(void)
{
	return ibv_alloc_pd(env.ctx);
}

static void *alloc_td(void)
{
	struct ibv_td_init_attr attr = {};

	return ibv_alloc_td(env.ctx, &attr);
}

static int dealloc_td(void *td)
{
	return ibv_dealloc_td(td);
}

static void *alloc_parent(void)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = env.pd, .td = env.td,
	};

	return ibv_alloc_parent_domain(env.ctx, &attr);
}

static void *share_pd(void)
{
	return ibv_share_pd(env.ctx, &env.shpd, KEY);
}

static void *import_pd(void)
{
	return ibv_import_pd(env.ctx, env.pd->handle);
}

static int unimport_pd(void *pd)
{
	ibv_unimport_pd(pd);
	return 0;
}

static void *open_xrcd_at(int fd)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd, .oflags = O_CREAT,
	};

	return ibv_open_xrcd(env.ctx, &attr);
}

static void *open_xrcd(void)
{
	return open_xrcd_at(-1);
}

static void *open_xrcd_file(void)
{
	return open_xrcd_at(env.file);
}

static int close_xrcd(void *xrcd)
{
	return ibv_close_xrcd(xrcd);
}

static void *alloc_dm_of(size_t length)
{
	struct ibv_alloc_dm_attr attr = { .length = length };

	return ibv_alloc_dm(env.ctx, &attr);
}

static void *alloc_dm(void)
{
	return alloc_dm_of(8192);
}

/* In the page of @env.small. */
static void *alloc_dm_small(void)
{
	return alloc_dm_of(64);
}

/* It needs a new page. */
static void *alloc_dm_half(void)
{
	return alloc_dm_of(2048);
}

/* The first copy maps the buffer. */
static void *copy_dm(void)
{
	struct ibv_dm *dm = alloc_dm();
	char bytes[64] = { 1 };
	int err;

	if (!dm)
		return NULL;
	err = ibv_memcpy_to_dm(dm, 0, bytes, sizeof(bytes));
	if (!err)
		err = ibv_memcpy_from_dm(bytes, dm, 0, sizeof(bytes));
	if (!err)
		return dm;
	CHECK_OK(ibv_free_dm(dm));
	return fault_result(err, NULL);
}

static void *reg_mr(void)
{
	return ibv_reg_mr(env.pd, memory, BYTES, ALL);
}

static void *reg_odp(void)
{
	return ibv_reg_mr(env.pd, memory, BYTES, ALL | IBV_ACCESS_ON_DEMAND);
}

static void *reg_dm(void)
{
	return ibv_reg_dm_mr(env.pd, env.dm, 0, 4096,
			     IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
}

static void *reg_dmabuf(void)
{
	return ibv_reg_dmabuf_mr(env.pd, 0, 4096, 0, env.buf.fd,
				 IBV_ACCESS_LOCAL_WRITE);
}

/* Change everything that can be changed. A refusal leaves a usable MR. */
static void *rereg_mr(void)
{
	struct ibv_mr *mr = reg_mr();
	int err;

	if (!mr)
		return NULL;
	if (!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION |
			  IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS,
			  env.other, memory + 4096, 8192, ALL))
		return mr;
	err = errno;
	CHECK_OK(ibv_dereg_mr(mr));
	return fault_result(err, NULL);
}

static void *alloc_mw(void)
{
	return ibv_alloc_mw(env.pd, IBV_MW_TYPE_2);
}

static int dealloc_mw(void *mw)
{
	return ibv_dealloc_mw(mw);
}

static void *create_ah(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1, .grh.hop_limit = 1,
	};

	if (ibv_query_gid(env.ctx, 1, 0, &attr.grh.dgid))
		return NULL;
	return ibv_create_ah(env.pd, &attr);
}

static int destroy_ah(void *ah)
{
	return ibv_destroy_ah(ah);
}

static void *create_channel(void)
{
	return ibv_create_comp_channel(env.ctx);
}

static int destroy_channel(void *channel)
{
	return ibv_destroy_comp_channel(channel);
}

static void *create_cq(void)
{
	return ibv_create_cq(env.ctx, 100, NULL, NULL, 0);
}

static void *create_cq_ex(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 100, .wc_flags = IBV_WC_STANDARD_FLAGS |
			IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};

	return ibv_create_cq_ex(env.ctx, &attr);
}

static int destroy_cq(void *cq)
{
	return ibv_destroy_cq(cq);
}

static void *resize_cq(void)
{
	int err = ibv_resize_cq(env.cq, 4000);

	return fault_result(err, env.cq);
}

static int resize_back(void *cq)
{
	return ibv_resize_cq(cq, 10);
}

static void *create_srq(void)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = 100, .max_sge = 2 },
	};

	return ibv_create_srq(env.pd, &attr);
}

static void *create_srq_xrc(void)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 100, .max_sge = 2 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC, .pd = env.pd, .xrcd = env.xrcd,
		.cq = env.cq,
	};

	return ibv_create_srq_ex(env.ctx, &attr);
}

static int destroy_srq(void *srq)
{
	return ibv_destroy_srq(srq);
}

static void *create_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = env.cq, .recv_cq = env.cq, .pd = env.pd,
		.qp_type = type, .comp_mask = IBV_QP_INIT_ATTR_PD,
		.cap = { .max_send_wr = 100, .max_send_sge = 2 },
	};

	if (type == IBV_QPT_XRC_RECV) {
		attr = (struct ibv_qp_init_attr_ex){
			.qp_type = type, .xrcd = env.xrcd,
			.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		};
	} else if (type != IBV_QPT_XRC_SEND) {
		attr.cap.max_recv_wr = 100;
		attr.cap.max_recv_sge = 2;
	}
	return ibv_create_qp_ex(env.ctx, &attr);
}

static void *create_rc(void)
{
	return create_qp(IBV_QPT_RC);
}

static void *create_uc(void)
{
	return create_qp(IBV_QPT_UC);
}

static void *create_ud(void)
{
	return create_qp(IBV_QPT_UD);
}

static void *create_xrc_send(void)
{
	return create_qp(IBV_QPT_XRC_SEND);
}

static void *create_xrc_recv(void)
{
	return create_qp(IBV_QPT_XRC_RECV);
}

static void *create_with_srq(void)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = env.cq, .recv_cq = env.cq, .srq = env.srq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 100, .max_send_sge = 2 },
	};

	return ibv_create_qp(env.pd, &attr);
}

static union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 9 } };

static void *attach(void)
{
	int err = ibv_attach_mcast(env.ud, &group, 0);

	return fault_result(err, env.ud);
}

static int detach(void *qp)
{
	return ibv_detach_mcast(qp, &group, 0);
}

static const struct fault_verb verbs[] = {
	FAULT_VERB("ibv_open_device", open_device, close_device, .any_errno = true),
	FAULT_VERB("ibv_alloc_pd", alloc_pd, fault_dealloc_pd),
	FAULT_VERB("ibv_alloc_td", alloc_td, dealloc_td),
	FAULT_VERB("ibv_alloc_parent_domain", alloc_parent, fault_dealloc_pd),
	FAULT_VERB("ibv_share_pd", share_pd, fault_dealloc_pd),
	FAULT_VERB("ibv_import_pd", import_pd, unimport_pd),
	FAULT_VERB("ibv_open_xrcd without a file", open_xrcd, close_xrcd),
	FAULT_VERB("ibv_open_xrcd of a file", open_xrcd_file, close_xrcd),
	FAULT_VERB("ibv_alloc_dm", alloc_dm, fault_free_dm),
	FAULT_VERB("ibv_alloc_dm in a page with room", alloc_dm_small, fault_free_dm),
	FAULT_VERB("ibv_alloc_dm in a new page", alloc_dm_half, fault_free_dm),
	FAULT_VERB("ibv_memcpy_to_dm and ibv_memcpy_from_dm", copy_dm, fault_free_dm),
	FAULT_VERB("ibv_reg_mr", reg_mr, fault_dereg_mr),
	FAULT_VERB("ibv_reg_mr on demand", reg_odp, fault_dereg_mr),
	FAULT_VERB("ibv_reg_dm_mr", reg_dm, fault_dereg_mr),
	/* udmabuf returns EINVAL if it cannot map its pages. */
	FAULT_VERB("ibv_reg_dmabuf_mr", reg_dmabuf, fault_dereg_mr, .any_errno = true),
	FAULT_VERB("ibv_rereg_mr", rereg_mr, fault_dereg_mr),
	FAULT_VERB("ibv_alloc_mw", alloc_mw, dealloc_mw),
	FAULT_VERB("ibv_create_ah", create_ah, destroy_ah),
	FAULT_VERB("ibv_create_comp_channel", create_channel, destroy_channel),
	FAULT_VERB("ibv_create_cq", create_cq, destroy_cq),
	FAULT_VERB("ibv_create_cq_ex", create_cq_ex, destroy_cq),
	FAULT_VERB("ibv_resize_cq", resize_cq, resize_back, .answers_late = true),
	FAULT_VERB("ibv_create_srq", create_srq, destroy_srq),
	FAULT_VERB("ibv_create_srq_ex for XRC", create_srq_xrc, destroy_srq),
	FAULT_VERB("ibv_create_qp RC", create_rc, fault_destroy_qp),
	FAULT_VERB("ibv_create_qp UC", create_uc, fault_destroy_qp),
	FAULT_VERB("ibv_create_qp UD", create_ud, fault_destroy_qp),
	FAULT_VERB("ibv_create_qp XRC_SEND", create_xrc_send, fault_destroy_qp),
	FAULT_VERB("ibv_create_qp XRC_RECV", create_xrc_recv, fault_destroy_qp,
		   .keel_only = true),
	FAULT_VERB("ibv_create_qp with an SRQ", create_with_srq, fault_destroy_qp),
	FAULT_VERB("ibv_attach_mcast", attach, detach),
};

static void prepare(void)
{
	struct ibv_td_init_attr td = {};

	env.ctx = dev_open(KEEL0);
	env.pd = MUST(ibv_alloc_pd(env.ctx));
	env.other = MUST(ibv_alloc_pd(env.ctx));
	MUST(ibv_alloc_shpd(env.other, KEY, &env.shpd));
	env.td = MUST(ibv_alloc_td(env.ctx, &td));
	env.cq = MUST(ibv_create_cq(env.ctx, 10, NULL, NULL, 0));
	env.srq = srq_new(env.pd);
	env.xrcd = MUST(open_xrcd());
	env.dm = MUST(alloc_dm());
	env.small[0] = MUST(alloc_dm_half());
	env.small[1] = MUST(alloc_dm_small());
	env.ud = MUST(create_ud());
	qp_to_init(env.ud);
}

/* Nothing holds the objects any more. */
static void tear_down(void)
{
	CHECK_OK(ibv_destroy_qp(env.ud));
	CHECK_OK(ibv_free_dm(env.dm));
	CHECK_OK(ibv_free_dm(env.small[0]));
	CHECK_OK(ibv_free_dm(env.small[1]));
	CHECK_OK(ibv_close_xrcd(env.xrcd));
	CHECK_OK(ibv_destroy_srq(env.srq));
	CHECK_OK(ibv_destroy_cq(env.cq));
	CHECK_OK(ibv_dealloc_td(env.td));
	CHECK_OK(ibv_dealloc_pd(env.other));
	CHECK_OK(ibv_dealloc_pd(env.pd));
	CHECK_OK(ibv_close_device(env.ctx));
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

static void set_up(void)
{
	fault_init();
	env.file = SYS(open("fail_nth", O_RDWR | O_CREAT, 0600));
	CHECK_SYS(unlink("fail_nth"), 0);
	env.bufs = buf_count();
	env.buf = buf_new();
}

/* No refused registration has kept the dma-buf. */
static void finish(void)
{
	buf_close(&env.buf);
	buf_check_count(env.bufs);
}

TEST_ONLY_DEBUG(verbs, "DEV-4,PD-2", "each verb with each of its allocations and copies failing once: ENOMEM or EFAULT, nothing changes, and the verb works again",
		"its kernel cannot let allocations fail", 300)
{
	size_t i;

	set_up();
	for (i = 0; i < sizeof(verbs) / sizeof(*verbs); i++) {
		prepare();
		fault_verb_make(&verbs[i]);
		tear_down();
	}
	finish();
}

TEST_ONLY_DEBUG(destroy, "DEV-4,PD-2", "each verb that destroys with each of its allocations failing once destroys, or changes nothing and works again",
		"its kernel cannot let allocations fail", 300)
{
	int refused = 0;
	size_t i;

	set_up();
	for (i = 0; i < sizeof(verbs) / sizeof(*verbs); i++) {
		prepare();
		refused += fault_verb_unmake(&verbs[i]);
		tear_down();
	}
	/* Resizing back makes allocations. */
	CHECK(refused > 0);
	finish();
}
