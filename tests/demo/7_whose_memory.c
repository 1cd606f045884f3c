/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queues in memory that the application allocates, an RDMA write to device
 * memory, and a key that the responder refuses.
 */
#include <infiniband/keeldv.h>

#include "talk.h"

#define LENGTH 65536

static const char text[] = "written by RDMA into the device";
static char page[4096] __attribute__((aligned(4096)));
static int allocated, freed;

static const char *ring_name(uint64_t type)
{
	static const char * const names[] = {
		[KEELDV_RES_CQ] = "completion queue",
		[KEELDV_RES_SQ] = "send queue",
		[KEELDV_RES_RQ] = "receive queue",
		[KEELDV_RES_SRQ] = "shared receive queue",
	};

	must(type >> 32 == KEELDV_DRIVER_ID);
	must((uint32_t)type <= KEELDV_RES_SRQ);
	return names[(uint32_t)type];
}

static void *give(struct ibv_pd *pd, void *pd_context, size_t size,
		  size_t alignment, uint64_t type)
{
	void *p = aligned_alloc(alignment, size);

	must(p);
	did("asked for %zu bytes for a %s -> %p", size, ring_name(type), p);
	*(int *)pd_context += 1;
	return p;
}

static void take(struct ibv_pd *pd, void *pd_context, void *p, uint64_t type)
{
	did("the %s at %p is given back", ring_name(type), p);
	free(p);
	freed++;
}

/* Create two queue pairs in memory that this process allocates. */
static void own_queues(struct ibv_pd *pd, struct ibv_qp **qp)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = pd, .alloc = give, .free = take, .pd_context = &allocated,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
	};
	struct ibv_pd *parent = ibv_alloc_parent_domain(pd->context, &attr);
	struct ibv_cq *cq = new_cq(pd->context);

	must(parent);
	qp[0] = new_qp(parent, cq, IBV_QPT_RC);
	qp[1] = new_qp(parent, cq, IBV_QPT_RC);
	must(allocated == 4);
	connect_to(qp[0], qp[1]->qp_num);
	connect_to(qp[1], qp[0]->qp_num);
}

static void give_back(struct ibv_qp **qp)
{
	struct ibv_pd *parent = qp[0]->pd;
	struct ibv_cq *cq = qp[0]->send_cq;

	must_be(ibv_destroy_qp(qp[0]), 0);
	must_be(ibv_destroy_qp(qp[1]), 0);
	must(freed == allocated);
	must_be(ibv_dealloc_pd(parent), 0);
	must_be(ibv_destroy_cq(cq), 0);
}

int main(void)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_alloc_dm_attr attr = { .length = LENGTH };
	struct ibv_context *context = open_keel();
	struct ibv_pd *pd = ibv_alloc_pd(context), *other;
	struct ibv_mr *mr, *dm_mr, *secret;
	struct ibv_qp *qp[2];
	struct ibv_dm *dm;
	char *map;

	must(pd);
	say("A parent domain with allocators: the program says where queues are.");
	own_queues(pd, qp);

	say("An RDMA write into device memory, seen through its mapping.");
	dm = ibv_alloc_dm(context, &attr);
	must(dm);
	map = keeldv_dm_map(dm);
	must(map);
	dm_mr = ibv_reg_dm_mr(pd, dm, 0, LENGTH, access | IBV_ACCESS_ZERO_BASED);
	mr = ibv_reg_mr(pd, page, sizeof(page), access);
	must(mr && dm_mr);
	strcpy(page, text);
	must(rdma_write(qp[0], mr, sizeof(text), 4096, dm_mr->rkey) ==
	     IBV_WC_SUCCESS);
	did("the mapping says: \"%s\"", map + 4096);
	must(!strcmp(map + 4096, text));

	say("A key of another domain opens nothing, in the same process too.");
	other = ibv_alloc_pd(context);
	must(other);
	secret = ibv_reg_mr(other, page + 2048, 2048, access);
	must(secret);
	must(rdma_write(qp[0], mr, sizeof(text), (uintptr_t)page + 2048,
			secret->rkey) == IBV_WC_REM_ACCESS_ERR);
	must(!page[2048]);
	did("not a byte of it was written");

	say("Everything goes, and the queues' memory comes back.");
	must_be(ibv_dereg_mr(secret), 0);
	must_be(ibv_dealloc_pd(other), 0);
	must_be(ibv_dereg_mr(dm_mr), 0);
	must_be(ibv_free_dm(dm), 0);
	must_be(ibv_dereg_mr(mr), 0);
	give_back(qp);
	must_be(ibv_dealloc_pd(pd), 0);
	return ibv_close_device(context);
}
