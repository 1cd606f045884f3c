// SPDX-License-Identifier: GPL-2.0
/*
 * One object of every kind. See hold.h.
 */
#include <fcntl.h>

#include <infiniband/keeldv.h>
#include <infiniband/shpd.h>

#include "hold.h"
#include "qp.h"
#include "t.h"

#define HOLD_KEY	0x5eedULL
#define HOLD_ALL	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
			 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static char memory[HOLD_BYTES] __attribute__((aligned(4096)));

static struct ibv_xrcd *any_xrcd(struct ibv_context *ctx)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1, .oflags = O_CREAT,
	};

	return ibv_open_xrcd(ctx, &attr);
}

static struct ibv_dm *any_dm(struct ibv_context *ctx)
{
	struct ibv_alloc_dm_attr attr = { .length = HOLD_BYTES };

	return ibv_alloc_dm(ctx, &attr);
}

static struct ibv_td *any_td(struct ibv_context *ctx)
{
	struct ibv_td_init_attr attr = {};

	return ibv_alloc_td(ctx, &attr);
}

static struct ibv_pd *any_parent(struct hold *h)
{
	struct ibv_parent_domain_init_attr attr = { .pd = h->pd, .td = h->td };

	return ibv_alloc_parent_domain(h->ctx, &attr);
}

static struct ibv_ah *any_ah(struct hold *h)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1, .grh.dgid = h->group,
	};

	return ibv_create_ah(h->pd, &attr);
}

static struct ibv_cq_ex *any_cq_ex(struct hold *h)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
		.parent_domain = h->parent,
	};

	return ibv_create_cq_ex(h->ctx, &attr);
}

static struct ibv_srq *any_xrc_srq(struct hold *h)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = QP_WRS, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC, .pd = h->pd, .xrcd = h->xrcd,
		.cq = h->cq,
	};

	return ibv_create_srq_ex(h->ctx, &attr);
}

static void hold_memory(struct hold *h)
{
	struct ibv_shpd shpd;

	h->pd = MUST(ibv_alloc_pd(h->ctx));
	MUST(ibv_alloc_shpd(h->pd, HOLD_KEY, &shpd));
	h->joined = MUST(ibv_share_pd(h->ctx, &shpd, HOLD_KEY));
	h->td = MUST(any_td(h->ctx));
	h->parent = MUST(any_parent(h));
	h->xrcd = MUST(any_xrcd(h->ctx));
	h->dm = MUST(any_dm(h->ctx));
	h->map = MUST(keeldv_dm_map(h->dm));
	memset((void *)h->map, HOLD_BYTE, HOLD_BYTES);
	h->dm_mr = MUST(ibv_reg_dm_mr(h->parent, h->dm, 0, HOLD_BYTES,
				      HOLD_ALL | IBV_ACCESS_ZERO_BASED));
	h->mr = MUST(ibv_reg_mr(h->parent, memory, HOLD_BYTES,
				HOLD_ALL | IBV_ACCESS_MW_BIND));
	h->odp = MUST(ibv_reg_mr(h->joined, memory, HOLD_BYTES,
				 HOLD_ALL | IBV_ACCESS_ON_DEMAND));
	h->all = MUST(ibv_reg_mr(h->pd, NULL, SIZE_MAX,
				 HOLD_ALL | IBV_ACCESS_ON_DEMAND));
	h->mw[0] = MUST(ibv_alloc_mw(h->parent, IBV_MW_TYPE_1));
	h->mw[1] = MUST(ibv_alloc_mw(h->pd, IBV_MW_TYPE_2));
}

static void hold_queues(struct hold *h)
{
	struct ibv_send_wr *wr;

	h->channel = MUST(ibv_create_comp_channel(h->ctx));
	h->cq = MUST(ibv_create_cq(h->ctx, 2 * QP_WRS, NULL, h->channel, 0));
	h->cq_ex = MUST(any_cq_ex(h));
	h->srq = MUST(srq_new(h->pd));
	h->xrc_srq = MUST(any_xrc_srq(h));
	h->uc = qp_new(h->parent, h->cq, IBV_QPT_UC, NULL);
	h->ud = qp_new(h->joined, ibv_cq_ex_to_cq(h->cq_ex), IBV_QPT_UD, NULL);
	h->on_srq = qp_new(h->pd, h->cq, IBV_QPT_RC, h->srq);
	h->xrc_send = qp_new(h->pd, h->cq, IBV_QPT_XRC_SEND, NULL);
	h->xrc_recv = qp_new_xrc_recv(h->xrcd);
	qp_to_init(h->uc);
	qp_connect(h->ud, 0);
	CHECK_OK(ibv_attach_mcast(h->ud, &h->group, 0));
	post_srq_recv(h->srq, 1, MEM(h->mr));
	CHECK_OK(ibv_req_notify_cq(h->cq, 0));
	h->rc = pair_new(h->pd);
	post_recv(h->rc.qp[1], 2, MEM(h->mr));
	wr = send_wr(IBV_WR_SEND, 3, (struct mem){ NULL, 512, h->dm_mr->lkey });
	CHECK_EQ(pair_run(&h->rc, 0, wr), IBV_WC_SUCCESS);
	CHECK_EQ(pair_done(&h->rc), IBV_WC_SUCCESS);
	CHECK_ALL(memory, HOLD_BYTE, 512);
	/* This send waits for a receive WQE, so that a timer is armed. */
	h->wait[0] = qp_new(h->parent, h->cq, IBV_QPT_RC, NULL);
	h->wait[1] = qp_new(h->parent, h->cq, IBV_QPT_RC, NULL);
	qp_join(h->wait[0], h->wait[1]);
	post_send(h->wait[0], 4, MEM(h->mr));
}

void hold_all(struct hold *h, const char *dev)
{
	*h = (struct hold){ .ctx = dev_open(dev) };
	h->group = (union ibv_gid){ .raw = { [10] = 0xff, 0xff, 224, 0, 2, 7 } };
	hold_memory(h);
	h->ah = MUST(any_ah(h));
	hold_queues(h);
}

static void check_no_new(struct hold *h)
{
	struct ibv_srq_init_attr srq = {
		.attr = { .max_wr = QP_WRS, .max_sge = 1 },
	};
	struct ibv_qp_init_attr qp = {
		.send_cq = h->cq, .recv_cq = h->cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1 },
	};
	struct ibv_shpd shpd = { .context = h->ctx, .handle = 1 };

	CHECK_NULL(ibv_alloc_pd(h->ctx), EIO);
	CHECK_NULL(any_td(h->ctx), EIO);
	CHECK_NULL(any_parent(h), EIO);
	CHECK_NULL(any_xrcd(h->ctx), EIO);
	CHECK_NULL(ibv_alloc_shpd(h->pd, HOLD_KEY, &shpd), EIO);
	CHECK_NULL(ibv_share_pd(h->ctx, &shpd, HOLD_KEY), EIO);
	CHECK_NULL(any_dm(h->ctx), EIO);
	CHECK_NULL(ibv_reg_dm_mr(h->pd, h->dm, 0, 64, IBV_ACCESS_ZERO_BASED),
		   EIO);
	CHECK_NULL(ibv_reg_mr(h->pd, memory, HOLD_BYTES, 0), EIO);
	CHECK_NULL(ibv_reg_mr(h->pd, memory, 1, IBV_ACCESS_ON_DEMAND), EIO);
	CHECK_NULL(ibv_alloc_mw(h->pd, IBV_MW_TYPE_1), EIO);
	CHECK_NULL(any_ah(h), EIO);
	CHECK_NULL(ibv_create_comp_channel(h->ctx), EIO);
	CHECK_NULL(ibv_create_cq(h->ctx, 1, NULL, NULL, 0), EIO);
	CHECK_NULL(any_cq_ex(h), EIO);
	CHECK_NULL(ibv_create_srq(h->pd, &srq), EIO);
	CHECK_NULL(any_xrc_srq(h), EIO);
	CHECK_NULL(ibv_create_qp(h->pd, &qp), EIO);
}

static void check_no_change(struct hold *h)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = 1,
			       .lkey = h->all->lkey };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_srq_attr srq = { .srq_limit = 1 };
	struct ibv_device_attr_ex device;
	struct ibv_qp_init_attr init;
	struct ibv_port_attr port;

	CHECK_RET(ibv_query_device_ex(h->ctx, NULL, &device), EIO);
	CHECK_RET(ibv_query_port(h->ctx, 1, &port), EIO);
	CHECK_RET(ibv_modify_qp(h->rc.qp[0], &attr, IBV_QP_STATE), EIO);
	CHECK_RET(ibv_query_qp(h->ud, &attr, IBV_QP_STATE, &init), EIO);
	CHECK_RET(ibv_modify_srq(h->srq, &srq, IBV_SRQ_LIMIT), EIO);
	CHECK_RET(ibv_query_srq(h->srq, &srq), EIO);
	CHECK_RET(ibv_resize_cq(h->cq, 1000), EIO);
	CHECK_RET(ibv_attach_mcast(h->ud, &h->group, 1), EIO);
	CHECK_RET(ibv_detach_mcast(h->ud, &h->group, 0), EIO);
	CHECK_RET(ibv_advise_mr(h->pd, IBV_ADVISE_MR_ADVICE_PREFETCH,
				IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1), EIO);
	errno = 0;
	CHECK(ibv_rereg_mr(h->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			   IBV_ACCESS_LOCAL_WRITE));
	CHECK_EQ(errno, EIO);
}

static void check_no_work(struct hold *h)
{
	struct ibv_mw_bind bind = {
		.bind_info = { .mr = h->mr, .addr = (uintptr_t)memory,
			       .length = 64 },
	};
	struct ibv_sge sge = { (uintptr_t)memory, 64, h->mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	struct ibv_poll_cq_attr none = {};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	char bytes[64] = "nothing";
	int i;

	/* Post more sends than the queue has room for. */
	for (i = 0; i < 10; i++)
		CHECK_RET(ibv_post_send(h->rc.qp[0],
					send_wr(IBV_WR_SEND, 5, MEM(h->mr)),
					&bad), EIO);
	CHECK_RET(ibv_post_recv(h->rc.qp[1], &recv, &bad_recv), EIO);
	CHECK(bad_recv == &recv);
	CHECK_RET(ibv_post_srq_recv(h->srq, &recv, &bad_recv), EIO);
	CHECK_RET(ibv_bind_mw(h->rc.qp[0], h->mw[0], &bind), EIO);
	/*
	 * If the waiting send ran out of retries, its CQE can still be polled.
	 */
	if (ibv_poll_cq(h->cq, 1, &wc) > 0)
		CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
	CHECK_EQ(ibv_poll_cq(h->cq, 1, &wc), -EIO);
	CHECK_RET(ibv_start_poll(h->cq_ex, &none), EIO);
	CHECK_RET(ibv_req_notify_cq(h->cq, 0), EIO);
	CHECK_RET(ibv_memcpy_to_dm(h->dm, 0, bytes, sizeof(bytes)), EIO);
	CHECK_RET(ibv_memcpy_from_dm(bytes, h->dm, 0, sizeof(bytes)), EIO);
	CHECK_STR(bytes, "nothing");
}

/*
 * All pages are one anonymous page, which was zero. UML is left out: see
 * dm_map.c. ib_core unmaps a file's mappings last, long after calls return EIO.
 */
static void check_no_memory(struct hold *h, bool over)
{
	int i;

	if (t_uml())
		return;
	for (i = 0; i < 1000 && !over && h->map[0] == HOLD_BYTE; i++)
		usleep(10000);
	for (i = 0; i < HOLD_BYTES; i += 511)
		CHECK_EQ(h->map[i], 0);
	h->map[1] = 0x77;
	CHECK_EQ(h->map[4096 + 1], 0x77);
}

void hold_check_gone(struct hold *h, bool over)
{
	check_no_new(h);
	check_no_change(h);
	check_no_work(h);
	check_no_memory(h, over);
}

static void free_queues(struct hold *h)
{
	int ret;

	CHECK_OK(ibv_destroy_qp(h->wait[0]));
	CHECK_OK(ibv_destroy_qp(h->wait[1]));
	CHECK_OK(ibv_destroy_qp(h->uc));
	/* The multicast group ends with the device. */
	ret = ibv_detach_mcast(h->ud, &h->group, 0);
	CHECK(!ret || ret == EIO);
	CHECK_OK(ibv_destroy_qp(h->ud));
	CHECK_OK(ibv_destroy_qp(h->on_srq));
	CHECK_OK(ibv_destroy_qp(h->xrc_send));
	CHECK_OK(ibv_destroy_qp(h->xrc_recv));
	pair_free(&h->rc);
	CHECK_OK(ibv_destroy_srq(h->srq));
	CHECK_OK(ibv_destroy_srq(h->xrc_srq));
	CHECK_OK(ibv_destroy_cq(h->cq));
	CHECK_OK(ibv_destroy_cq(ibv_cq_ex_to_cq(h->cq_ex)));
	CHECK_OK(ibv_destroy_comp_channel(h->channel));
}

void hold_free(struct hold *h)
{
	free_queues(h);
	CHECK_OK(ibv_destroy_ah(h->ah));
	CHECK_OK(ibv_dealloc_mw(h->mw[0]));
	CHECK_OK(ibv_dealloc_mw(h->mw[1]));
	CHECK_OK(ibv_dereg_mr(h->dm_mr));
	CHECK_OK(ibv_dereg_mr(h->mr));
	CHECK_OK(ibv_dereg_mr(h->odp));
	CHECK_OK(ibv_dereg_mr(h->all));
	CHECK_OK(ibv_free_dm(h->dm));
	CHECK_OK(ibv_close_xrcd(h->xrcd));
	CHECK_OK(ibv_dealloc_pd(h->parent));
	CHECK_OK(ibv_dealloc_td(h->td));
	CHECK_OK(ibv_dealloc_pd(h->joined));
	CHECK_OK(ibv_dealloc_pd(h->pd));
	CHECK_OK(ibv_close_device(h->ctx));
}
