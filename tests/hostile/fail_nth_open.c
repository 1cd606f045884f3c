// SPDX-License-Identifier: GPL-2.0
/*
 * Failing allocations of verbs that open, import, map, change or query what
 * exists: see fail_nth.c.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/keeldv.h>
#include <infiniband/shpd.h>

#include "buf.h"
#include "fault.h"
#include "fault_verb.h"
#include "qp.h"
#include "t.h"
#include "tree.h"

#define KEY	0x0123456789abcdefULL
#define OBJECTS	"/sys/kernel/debug/keel/" KEEL0 "/objects"
#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

static char memory[PAGE] __attribute__((aligned(PAGE)));

/* Parameters of the verbs. */
static struct {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_xrcd *xrcd;
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	struct ibv_qp *qp, *xrc;
	struct buf buf;
	uint32_t holders;
} env;

/* Undoes what changes nothing. */
static int nothing(void *object)
{
	return 0;
}

/* --- opening and importing -------------------------------------------------- */

static void *import_mr(void)
{
	return ibv_import_mr(env.pd, env.mr->handle);
}

static int unimport_mr(void *mr)
{
	ibv_unimport_mr(mr);
	return 0;
}

static void *import_dm(void)
{
	return ibv_import_dm(env.ctx, env.dm->handle);
}

static int unimport_dm(void *dm)
{
	ibv_unimport_dm(dm);
	return 0;
}

static void *open_qp(void)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = env.xrc->qp_num, .xrcd = env.xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	return ibv_open_qp(env.ctx, &attr);
}

/* A refusal leaves a PD whose domain is not shared. */
static void *alloc_shpd(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(env.ctx);
	struct ibv_shpd shpd;
	int err;

	if (!pd || ibv_alloc_shpd(pd, KEY, &shpd))
		return pd;
	err = errno;
	CHECK_OK(ibv_dealloc_pd(pd));
	return fault_result(err, NULL);
}

static void *reg_dmabuf(void)
{
	return ibv_reg_dmabuf_mr(env.pd, PAGE, PAGE, 0, env.buf.fd, RIGHTS);
}

static void *map_dm(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 2 * PAGE };
	struct ibv_dm *dm = ibv_alloc_dm(env.ctx, &attr);
	int err;

	if (!dm || keeldv_dm_map(dm))
		return dm;
	err = errno;
	CHECK_OK(ibv_free_dm(dm));
	return fault_result(err, NULL);
}

/* --- changing and querying -------------------------------------------------- */

static void *resize_srq_to(uint32_t max_wr)
{
	struct ibv_srq_attr attr = { .max_wr = max_wr };
	int err = ibv_modify_srq(env.srq, &attr, IBV_SRQ_MAX_WR);

	return fault_result(err, env.srq);
}

static void *resize_srq(void)
{
	return resize_srq_to(4000);
}

static int resize_srq_back(void *srq)
{
	return resize_srq_to(64) ? 0 : errno;
}

static int set_limit(uint32_t limit)
{
	struct ibv_srq_attr attr = { .srq_limit = limit };

	return ibv_modify_srq(env.srq, &attr, IBV_SRQ_LIMIT);
}

static void *arm_srq(void)
{
	int err = set_limit(5);

	return fault_result(err, env.srq);
}

static int disarm_srq(void *srq)
{
	return set_limit(0);
}

static void *query_srq(void)
{
	struct ibv_srq_attr attr;
	int err = ibv_query_srq(env.srq, &attr);

	return fault_result(err, env.srq);
}

static void *query_qp(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int err = ibv_query_qp(env.qp, &attr, IBV_QP_STATE, &init);

	return fault_result(err, env.qp);
}

static void *query_port(void)
{
	struct ibv_port_attr attr;
	int err = ibv_query_port(env.ctx, 1, &attr);

	return fault_result(err, env.ctx);
}

static void *query_device(void)
{
	struct ibv_device_attr_ex attr;
	int err = ibv_query_device_ex(env.ctx, NULL, &attr);

	return fault_result(err, env.ctx);
}

static void *query_gids(void)
{
	struct ibv_gid_entry entries[4];
	ssize_t n = ibv_query_gid_table(env.ctx, entries, 4, 0);

	return fault_result(n < 0 ? -n : 0, env.ctx);
}

static void *query_dm(void)
{
	struct keeldv_dm_attr attr = {};
	int err = keeldv_query_dm(env.dm, &attr);

	return fault_result(err, env.dm);
}

static void *list_holders(void)
{
	struct keeldv_holder list[16];
	uint32_t count = 16;
	int err = keeldv_pd_holders(env.pd, list, &count);

	/* A success without an answer would leave the count. */
	if (!err)
		CHECK_EQ(count, env.holders);
	return fault_result(err, env.pd);
}

/* Each object is a line. */
static void *read_objects(void)
{
	static char text[1 << 16];
	int fd = open(OBJECTS, O_RDONLY), err = errno;
	ssize_t n;

	if (fd < 0)
		return fault_result(err, NULL);
	n = read(fd, text, sizeof(text) - 1);
	err = errno;
	close(fd);
	if (n < 0)
		return fault_result(err, NULL);
	text[n] = 0;
	if (!strstr(text, "\n"))
		FAIL("got %zd bytes of objects, want a line for each", n);
	return fault_result(0, env.ctx);
}

static const struct fault_verb verbs[] = {
	FAULT_VERB("ibv_import_mr", import_mr, unimport_mr),
	FAULT_VERB("ibv_import_dm", import_dm, unimport_dm),
	FAULT_VERB("ibv_open_qp", open_qp, fault_destroy_qp),
	FAULT_VERB("ibv_alloc_shpd", alloc_shpd, fault_dealloc_pd),
	FAULT_VERB("keeldv_dm_map", map_dm, fault_free_dm),
	FAULT_VERB("ibv_modify_srq of the number of WQEs", resize_srq,
		   resize_srq_back),
	FAULT_VERB("ibv_modify_srq of the limit", arm_srq, disarm_srq),
	FAULT_VERB("ibv_query_srq", query_srq, nothing),
	FAULT_VERB("ibv_query_qp", query_qp, nothing),
	FAULT_VERB("ibv_query_port", query_port, nothing),
	FAULT_VERB("ibv_query_device_ex", query_device, nothing),
	FAULT_VERB("ibv_query_gid_table", query_gids, nothing),
	FAULT_VERB("keeldv_query_dm", query_dm, nothing),
	FAULT_VERB("keeldv_pd_holders", list_holders, nothing),
	/* Opening a file is a matter of the kernel, which has other errnos. */
	FAULT_VERB("reading objects", read_objects, nothing, .any_errno = true),
};

static const struct fault_verb dmabuf =
	FAULT_VERB("ibv_reg_dmabuf_mr", reg_dmabuf, fault_dereg_mr);

static void prepare(void)
{
	struct ibv_xrcd_init_attr xrcd = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1, .oflags = O_CREAT,
	};
	struct ibv_alloc_dm_attr dm = { .length = PAGE };

	env.ctx = dev_open(KEEL0);
	env.pd = MUST(ibv_alloc_pd(env.ctx));
	env.cq = MUST(ibv_create_cq(env.ctx, 10, NULL, NULL, 0));
	env.srq = srq_new(env.pd);
	env.xrcd = MUST(ibv_open_xrcd(env.ctx, &xrcd));
	env.dm = MUST(ibv_alloc_dm(env.ctx, &dm));
	env.mr = MUST(ibv_reg_mr(env.pd, memory, PAGE, RIGHTS));
	env.qp = qp_new(env.pd, env.cq, IBV_QPT_RC, NULL);
	env.xrc = qp_new_xrc_recv(env.xrcd);
	CHECK_OK(keeldv_pd_holders(env.pd, NULL, &env.holders));
	CHECK(env.holders > 0);
	fault_init();
}

/* Nothing holds the objects any more. */
static void tear_down(void)
{
	CHECK_OK(ibv_destroy_qp(env.xrc));
	CHECK_OK(ibv_destroy_qp(env.qp));
	CHECK_OK(ibv_dereg_mr(env.mr));
	CHECK_OK(ibv_free_dm(env.dm));
	CHECK_OK(ibv_close_xrcd(env.xrcd));
	CHECK_OK(ibv_destroy_srq(env.srq));
	CHECK_OK(ibv_destroy_cq(env.cq));
	CHECK_OK(ibv_dealloc_pd(env.pd));
	CHECK_OK(ibv_close_device(env.ctx));
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

TEST_ONLY_DEBUG(opens, "DEV-4,PD-2", "each verb that opens, imports, maps, changes or queries with each allocation and copy failing once: ENOMEM or EFAULT, and nothing changes",
		"its kernel cannot let allocations fail", 120)
{
	int refused = 0;
	size_t i;

	prepare();
	for (i = 0; i < sizeof(verbs) / sizeof(*verbs); i++) {
		fault_verb_make(&verbs[i]);
		if (verbs[i].unmake != nothing)
			refused += fault_verb_unmake(&verbs[i]);
	}
	tear_down();
	/* Resizing back makes allocations. */
	CHECK(refused > 0);
}

TEST_ONLY_DEBUG(dmabuf, "DEV-4,PDM-3", "ibv_reg_dmabuf_mr() with each allocation and copy failing once: ENOMEM or EFAULT, nothing changes, and the dma-buf has no reference more",
		"its kernel cannot let allocations fail", 60)
{
	long refs;

	prepare();
	env.buf = buf_new();
	refs = buf_refs();
	fault_verb_make(&dmabuf);
	fault_verb_unmake(&dmabuf);
	CHECK_EQ(buf_refs(), refs);
	buf_close(&env.buf);
	tear_down();
}
