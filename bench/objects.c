// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * objects DEVICE: microseconds to create and destroy an object of each of the
 * types that programs make many of, one JSON object.
 */
#include "bench.h"

#define PAIRS	300

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static void *page;

static void pair_pd(struct ibv_context *context)
{
	struct ibv_pd *one = ibv_alloc_pd(context);

	if (!one || ibv_dealloc_pd(one))
		die("PD");
}

static void pair_mr(struct ibv_context *context)
{
	struct ibv_mr *mr;

	(void)context;
	mr = ibv_reg_mr(pd, page, 4096, IBV_ACCESS_LOCAL_WRITE |
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!mr || ibv_dereg_mr(mr))
		die("MR");
}

static void pair_cq(struct ibv_context *context)
{
	struct ibv_cq *one = ibv_create_cq(context, 128, NULL, NULL, 0);

	if (!one || ibv_destroy_cq(one))
		die("CQ");
}

static void pair_qp(struct ibv_context *context)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = 128,
			.max_recv_wr = 128,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	(void)context;
	if (!qp || ibv_destroy_qp(qp))
		die("RC QP");
}

static double cost(struct ibv_context *context,
		   void (*pair)(struct ibv_context *context))
{
	double start;
	int i;

	/* The first ones fill the allocators' caches. */
	for (i = 0; i < PAIRS / 10; i++)
		pair(context);
	start = now();
	for (i = 0; i < PAIRS; i++)
		pair(context);
	return (now() - start) / PAIRS * 1e6;
}

int main(int argc, char **argv)
{
	struct ibv_context *context;

	if (argc != 2)
		die("usage: objects DEVICE");
	context = open_device(argv[1]);
	page = aligned_alloc(4096, 4096);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 256, NULL, NULL, 0);
	if (!page || !pd || !cq)
		die("what the objects need");
	memset(page, 0, 4096);
	printf("{\"pd\": %.2f, \"mr\": %.2f, \"cq\": %.2f, \"qp\": %.2f}\n",
	       cost(context, pair_pd), cost(context, pair_mr),
	       cost(context, pair_cq), cost(context, pair_qp));
	return 0;
}
