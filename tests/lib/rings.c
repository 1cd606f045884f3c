// SPDX-License-Identifier: GPL-2.0
/*
 * Queues whose rings a test can overwrite. See rings.h.
 */
#include "peer.h"
#include "qp.h"
#include "rings.h"
#include "t.h"

struct keel_uapi_ring *rings[RINGS];
size_t ring_sizes[RINGS];
int n_rings;

static void *ring_alloc(struct ibv_pd *pd, void *context, size_t size,
			size_t alignment, uint64_t type)
{
	CHECK(n_rings < RINGS);
	ring_sizes[n_rings] = size;
	return rings[n_rings++] = MUST(aligned_alloc(alignment, size));
}

static void ring_free(struct ibv_pd *pd, void *context, void *ptr,
		      uint64_t type)
{
	free(ptr);
}

static void *ring_alloc_shared(struct ibv_pd *pd, void *context, size_t size,
			       size_t alignment, uint64_t type)
{
	CHECK(n_rings < RINGS);
	ring_sizes[n_rings] = size;
	return rings[n_rings++] = peer_shared(size);
}

/* A child may use them: they stay until the process ends. */
static void ring_keep(struct ibv_pd *pd, void *context, void *ptr, uint64_t type)
{
}

static struct ibv_pd *rings_parent(struct ibv_context *ctx, bool shared)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = MUST(ibv_alloc_pd(ctx)),
		.alloc = shared ? ring_alloc_shared : ring_alloc,
		.free = shared ? ring_keep : ring_free,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
	};

	n_rings = 0;
	return MUST(ibv_alloc_parent_domain(ctx, &attr));
}

struct ibv_pd *rings_pd(struct ibv_context *ctx)
{
	return rings_parent(ctx, false);
}

struct ibv_pd *rings_pd_shared(struct ibv_context *ctx)
{
	return rings_parent(ctx, true);
}

struct ibv_cq *rings_cq(struct ibv_pd *parent)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = QP_WRS, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
		.parent_domain = parent,
	};

	return ibv_cq_ex_to_cq(MUST(ibv_create_cq_ex(parent->context, &attr)));
}

/* All rings have QP_WRS WQEs, which is a power of two. */
static void *last_entry(int ring, size_t stride)
{
	CHECK(ring_sizes[ring] >= sizeof(*rings[ring]) + QP_WRS * stride);
	return (char *)(rings[ring] + 1) +
	       (rings[ring]->user - 1) % QP_WRS * stride;
}

struct keel_uapi_send_wqe *rings_send_wqe(int ring)
{
	return last_entry(ring, KEEL_SQ_STRIDE(QP_SGES, QP_INLINE));
}

struct keel_uapi_recv_wqe *rings_recv_wqe(int ring)
{
	return last_entry(ring, KEEL_RQ_STRIDE(QP_SGES));
}
