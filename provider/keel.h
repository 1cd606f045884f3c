/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Inside of the keel provider.
 *
 * Conventions: a verb that returns a pointer returns NULL and sets errno, one
 * that returns int returns 0 or a positive errno. What the kernel can refuse
 * it refuses; here is checked only what it cannot see: pointers of another
 * context, members that never reach it.
 */
#ifndef KEEL_H
#define KEEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <ccan/container_of.h>
#include <infiniband/driver.h>
#include <rdma/keel-abi.h>

struct keel_context {
	struct verbs_context ibvctx;
	/* Power of two that offsets and lengths of DM copies must divide by. */
	uint32_t dm_access_align;
};

struct keel_td {
	struct ibv_td ibv_td;
	uint32_t handle;
};

struct keel_pd {
	struct ibv_pd ibv_pd;
	enum keel_uapi_pd_kind kind;
	uint32_t domain;
};

/* Every KEEL_UAPI_PD_PARENT is one of these, imported ones included. */
struct keel_parent_domain {
	struct keel_pd pd;
	struct keel_td *td;
	/* For the buffers of queues; NULL unless the program gave both. */
	void *(*alloc)(struct ibv_pd *pd, void *pd_context, size_t size,
		       size_t alignment, uint64_t resource_type);
	void (*free)(struct ibv_pd *pd, void *pd_context, void *ptr,
		     uint64_t resource_type);
	void *pd_context;
};

struct keel_dm {
	struct verbs_dm vdm;
	uint64_t length;
	pthread_mutex_t map_lock;
	/* The whole buffer; NULL until first asked for. Set under map_lock. */
	_Atomic(void *) map;
};

/* How to ask the kernel who holds an object of one type. */
struct keel_holders_of {
	const char *name;
	uint16_t object;
	uint16_t method;
};

static inline struct keel_context *to_kctx(struct ibv_context *ibctx)
{
	return container_of(ibctx, struct keel_context, ibvctx.context);
}

static inline struct keel_td *to_ktd(struct ibv_td *ibtd)
{
	return container_of(ibtd, struct keel_td, ibv_td);
}

static inline struct keel_pd *to_kpd(struct ibv_pd *ibpd)
{
	return container_of(ibpd, struct keel_pd, ibv_pd);
}

static inline struct keel_dm *to_kdm(struct ibv_dm *ibdm)
{
	return container_of(ibdm, struct keel_dm, vdm.dm);
}

/* keel.c */
bool keel_is_ours(struct ibv_device *device);

/* holders.c */
extern const struct keel_holders_of keel_holders_of_pd;
extern const struct keel_holders_of keel_holders_of_td;
extern const struct keel_holders_of keel_holders_of_dm;

int keel_cmd_holders(struct ibv_context *ibctx,
		     const struct keel_holders_of *of, uint32_t handle,
		     struct keel_uapi_holder *list, uint32_t room,
		     uint32_t *count, uint32_t flags);
void keel_report_busy(struct ibv_context *ibctx,
		      const struct keel_holders_of *of, uint32_t handle);
const char *keel_kind_str(uint32_t kind);

/* pd.c */
struct ibv_pd *keel_new_pd(struct ibv_context *ibctx,
			   const struct keel_uapi_alloc_pd_req *req);
struct ibv_pd *keel_alloc_pd(struct ibv_context *ibctx);
int keel_dealloc_pd(struct ibv_pd *ibpd);
struct ibv_pd *keel_import_pd(struct ibv_context *ibctx, uint32_t handle);
void keel_unimport_pd(struct ibv_pd *ibpd);

/* parent_domain.c */
struct ibv_pd *keel_alloc_parent_domain(struct ibv_context *ibctx,
					struct ibv_parent_domain_init_attr *attr);

/* td.c */
struct ibv_td *keel_alloc_td(struct ibv_context *ibctx,
			     struct ibv_td_init_attr *attr);
int keel_dealloc_td(struct ibv_td *ibtd);

/* xrcd.c */
struct ibv_xrcd *keel_open_xrcd(struct ibv_context *ibctx,
				struct ibv_xrcd_init_attr *attr);
int keel_close_xrcd(struct ibv_xrcd *ibxrcd);

/* mr.c */
struct ibv_mr *keel_reg_mr(struct ibv_pd *ibpd, void *addr, size_t length,
			   uint64_t iova, int access);
struct ibv_mr *keel_reg_dm_mr(struct ibv_pd *ibpd, struct ibv_dm *ibdm,
			      uint64_t offset, size_t length,
			      unsigned int access);
int keel_dereg_mr(struct verbs_mr *vmr);
struct ibv_mr *keel_import_mr(struct ibv_pd *ibpd, uint32_t handle);
void keel_unimport_mr(struct ibv_mr *ibmr);
struct ibv_mw *keel_alloc_mw(struct ibv_pd *ibpd, enum ibv_mw_type type);
int keel_dealloc_mw(struct ibv_mw *ibmw);

/* ah.c */
struct ibv_ah *keel_create_ah(struct ibv_pd *ibpd, struct ibv_ah_attr *attr);
int keel_destroy_ah(struct ibv_ah *ibah);

/* dm.c */
struct ibv_dm *keel_alloc_dm(struct ibv_context *ibctx,
			     struct ibv_alloc_dm_attr *attr);
int keel_free_dm(struct ibv_dm *ibdm);
struct ibv_dm *keel_import_dm(struct ibv_context *ibctx, uint32_t handle);
void keel_unimport_dm(struct ibv_dm *ibdm);
int keel_cmd_query_dm(struct ibv_context *ibctx, uint32_t handle,
		      struct keel_uapi_dm_info *info);
int keel_dm_map(struct keel_dm *dm, void **map);

#endif /* KEEL_H */
