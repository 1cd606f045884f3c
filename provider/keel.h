/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Internal declarations of the keel provider.
 *
 * Conventions: on failure, a verb that returns a pointer returns NULL and sets
 * errno, and a verb that returns int returns a positive errno. The kernel
 * validates everything that it receives. The provider checks only the rest:
 * pointers of another context, and members that never reach the kernel.
 */
#ifndef KEEL_H
#define KEEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <ccan/container_of.h>
#include <infiniband/driver.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <rdma/keel-abi.h>

/* Flags of work requests that are passed to the kernel unchanged. */
#define KEEL_SEND_FLAGS \
	(IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED)

/* Opcodes of messages with immediate data, or with a key to invalidate. */
#define KEEL_OPS_IMM							\
	(1U << IBV_WR_SEND_WITH_IMM | 1U << IBV_WR_SEND_WITH_INV |	\
	 1U << IBV_WR_RDMA_WRITE_WITH_IMM)

/* Opcodes that send local data, which may be inline; opcodes with any data. */
#define KEEL_OPS_OUT							\
	(1U << IBV_WR_SEND | 1U << IBV_WR_SEND_WITH_IMM |		\
	 1U << IBV_WR_SEND_WITH_INV | 1U << IBV_WR_RDMA_WRITE |	\
	 1U << IBV_WR_RDMA_WRITE_WITH_IMM | 1U << IBV_WR_ATOMIC_WRITE)
#define KEEL_OPS_DATA							\
	(KEEL_OPS_OUT | 1U << IBV_WR_RDMA_READ |			\
	 1U << IBV_WR_ATOMIC_CMP_AND_SWP |				\
	 1U << IBV_WR_ATOMIC_FETCH_AND_ADD)

/* At most so many rings, each of so many bytes or a page, are kept for later. */
#define KEEL_POOL_RINGS		16
#define KEEL_POOL_MOST		16384

struct keel_pool_ring {
	void *ptr;
	size_t size;
};

struct keel_ring_pool {
	/* Protects @n and @rings. */
	pthread_mutex_t lock;
	unsigned int room;
	unsigned int n;
	/* In the order in which they were freed. */
	struct keel_pool_ring rings[KEEL_POOL_RINGS];
};

struct keel_context {
	struct verbs_context ibvctx;
	struct keel_ring_pool pool;
	/* Power of two: alignment of offsets and lengths of DM copies. */
	uint32_t dm_access_align;
	/* The process has asked for polling, or its parent has. */
	atomic_bool polls;
	/* Mapped from the device; never_gone if the module does not have it. */
	const struct keel_uapi_state *state;
};

/*
 * Protects one side of one queue. A spinlock, because critical sections are
 * short. No code sleeps under the lock, except when it resizes a ring.
 */
struct keel_lock {
	pthread_spinlock_t spin;
	/* The application promised to serialize its calls: take no lock. */
	bool single_threaded;
};

/* A ring, and the private state of userspace. */
struct keel_ring {
	struct keel_uapi_ring *shared;
	uint8_t *entries;
	uint32_t mask;
	uint32_t stride;
	/*
	 * The index of userspace. @shared has a copy for the kernel. WQEs
	 * between the two are being written, and are not published yet.
	 */
	uint32_t user;
	enum keel_res_code res;
	size_t size;
	/* Its free() frees the memory; NULL: the provider mapped the memory. */
	struct keel_parent_domain *allocator;
	/* Keeps memory that the provider mapped; NULL: it is unmapped. */
	struct keel_ring_pool *pool;
};

struct keel_cq {
	struct verbs_cq vcq;
	struct keel_lock lock;
	struct keel_ring ring;
	/* The thread between ibv_start_poll() and ibv_end_poll(), or 0. */
	_Atomic(pthread_t) poller;
	/* The CQE that ibv_start_poll() or ibv_next_poll() has found. */
	const struct keel_uapi_cqe *cur;
	/* Parent domain that it was created with, or NULL. The CQ holds it. */
	struct keel_parent_domain *parent;
};

struct keel_sq {
	struct keel_lock lock;
	struct keel_ring ring;
	uint32_t max_sge;
	uint32_t max_inline;
	/* IBV_SEND_SIGNALED if sq_sig_all is set. */
	uint8_t sig_flags;
	/* ibv_wr_*: first index, first error, and WQE of the current batch. */
	uint32_t wr_start;
	int wr_err;
	struct keel_uapi_send_wqe *wqe;
};

/* Receive queue of a QP or an SRQ. */
struct keel_rq {
	struct keel_lock lock;
	struct keel_ring ring;
	uint32_t max_sge;
};

/* Argument of ioctl() for KEEL_METHOD_QP_DOORBELL. */
struct keel_doorbell {
	struct ib_uverbs_ioctl_hdr hdr;
	struct ib_uverbs_attr qp;
};

struct keel_qp {
	struct verbs_qp vqp;
	struct keel_doorbell doorbell;
	/* Bits 1 << enum ibv_wr_opcode: opcodes that the QP type supports. */
	uint32_t opcodes;
	/* Number of the process that created it, see polling.c, or 0. */
	uint32_t process;
	struct keel_sq sq;
	struct keel_rq rq;
};

/* Issues KEEL_METHOD_SRQ_DOORBELL. */
int keel_ring_srq_doorbell(const struct ibv_srq *ibsrq);

struct keel_srq {
	struct verbs_srq vsrq;
	struct keel_rq rq;
	/* Parent domain that it was created with, or NULL. */
	struct keel_parent_domain *parent;
};

struct keel_ah {
	struct ibv_ah ibv_ah;
	/* Number of the AH, for &struct keel_uapi_send_wqe. */
	uint32_t ah;
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

/* Every PD of kind KEEL_UAPI_PD_PARENT has this type, even if imported. */
struct keel_parent_domain {
	struct keel_pd pd;
	struct keel_td *td;
	/* Allocators of queue buffers: both are set, or both are NULL. */
	void *(*alloc)(struct ibv_pd *pd, void *pd_context, size_t size,
		       size_t alignment, uint64_t resource_type);
	void (*free)(struct ibv_pd *pd, void *pd_context, void *ptr,
		     uint64_t resource_type);
	void *pd_context;
	/* CQs created with it. The kernel cannot count them: CQs have no PD. */
	atomic_uint cqs;
	bool imported;
};

struct keel_dm {
	struct verbs_dm vdm;
	uint64_t length;
	pthread_mutex_t map_lock;
	/* Mapping of the buffer; NULL until first used. Set under map_lock. */
	_Atomic(void *) map;
	/* Bytes of the mapping before the buffer. Set before map. */
	uint32_t skip;
};

/* The method that lists the holders of an object of one type. */
struct keel_holders_of {
	const char *name;
	uint16_t object;
	uint16_t method;
};

static inline struct keel_context *to_kctx(struct ibv_context *ibctx)
{
	return container_of(ibctx, struct keel_context, ibvctx.context);
}

/*
 * Returns true if device removal has begun. The kernel sets the flag before it
 * removes anything. So if this returns false, the device was present for all
 * earlier loads of the caller, and for all stores before its last full barrier.
 */
static inline bool keel_is_gone(struct ibv_context *ibctx)
{
	__atomic_thread_fence(__ATOMIC_ACQ_REL);
	return __atomic_load_n(&to_kctx(ibctx)->state->gone, __ATOMIC_ACQUIRE);
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

static inline struct keel_cq *to_kcq(struct ibv_cq *ibcq)
{
	return container_of(ibcq, struct keel_cq, vcq.cq);
}

static inline struct keel_cq *to_kcq_ex(struct ibv_cq_ex *ibcq)
{
	return container_of(ibcq, struct keel_cq, vcq.cq_ex);
}

static inline struct keel_qp *to_kqp(struct ibv_qp *ibqp)
{
	return container_of(ibqp, struct keel_qp, vqp.qp);
}

static inline struct keel_qp *to_kqp_ex(struct ibv_qp_ex *ibqp)
{
	return container_of(ibqp, struct keel_qp, vqp.qp_ex);
}

static inline struct keel_srq *to_ksrq(struct ibv_srq *ibsrq)
{
	return container_of(ibsrq, struct keel_srq, vsrq.srq);
}

static inline struct keel_ah *to_kah(struct ibv_ah *ibah)
{
	return container_of(ibah, struct keel_ah, ibv_ah);
}

/* Returns NULL if @ibpd is NULL or a PD of another kind. */
static inline struct keel_parent_domain *to_kparent(struct ibv_pd *ibpd)
{
	if (!ibpd || to_kpd(ibpd)->kind != KEEL_UAPI_PD_PARENT)
		return NULL;
	return container_of(ibpd, struct keel_parent_domain, pd.ibv_pd);
}

static inline void keel_lock(struct keel_lock *lock)
{
	if (!lock->single_threaded)
		pthread_spin_lock(&lock->spin);
}

static inline void keel_unlock(struct keel_lock *lock)
{
	if (!lock->single_threaded)
		pthread_spin_unlock(&lock->spin);
}

/* The caller may read CQEs before the returned producer index. */
static inline uint32_t keel_ring_kernel(const struct keel_ring *ring)
{
	return __atomic_load_n(&ring->shared->kernel, __ATOMIC_ACQUIRE);
}

/* For a work queue. A ring with an invalid kernel index counts as full. */
static inline bool keel_ring_is_full(const struct keel_ring *ring)
{
	return ring->user - keel_ring_kernel(ring) > ring->mask;
}

static inline void *keel_ring_entry(const struct keel_ring *ring,
				    uint32_t index)
{
	return ring->entries + (size_t)(index & ring->mask) * ring->stride;
}

/* Pass everything before the index of userspace to the kernel. */
static inline void keel_ring_publish(const struct keel_ring *ring)
{
	__atomic_store_n(&ring->shared->user, ring->user, __ATOMIC_RELEASE);
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
struct ibv_mr *keel_reg_dmabuf_mr(struct ibv_pd *ibpd, uint64_t offset,
				  size_t length, uint64_t iova, int fd,
				  int access);
int keel_rereg_mr(struct verbs_mr *vmr, int flags, struct ibv_pd *ibpd,
		  void *addr, size_t length, int access);
struct ibv_mw *keel_alloc_mw(struct ibv_pd *ibpd, enum ibv_mw_type type);
int keel_dealloc_mw(struct ibv_mw *ibmw);

/* ah.c */
struct ibv_ah *keel_create_ah(struct ibv_pd *ibpd, struct ibv_ah_attr *attr);
int keel_destroy_ah(struct ibv_ah *ibah);

/* ring.c */
void keel_lock_init(struct keel_lock *lock, bool single_threaded);
struct keel_parent_domain *keel_pd_parent(struct ibv_pd *ibpd);
bool keel_is_single_threaded(const struct keel_parent_domain *parent);
int keel_ring_alloc(struct keel_ring *ring, struct keel_ring_pool *pool,
		    struct keel_parent_domain *parent, enum keel_res_code res,
		    uint32_t entries, uint32_t stride);
void keel_ring_free(struct keel_ring *ring);
void keel_pool_init(struct keel_ring_pool *pool, unsigned int room);
bool keel_pool_keeps(const struct keel_ring_pool *pool, size_t size);
void *keel_pool_take(struct keel_ring_pool *pool, size_t size);
void keel_pool_put(struct keel_ring_pool *pool, void *ptr, size_t size);
void keel_pool_fini(struct keel_ring_pool *pool);
void keel_ring_reset(struct keel_ring *ring);
struct keel_uapi_buf keel_ring_buf(const struct keel_ring *ring);

/* cq.c */
struct ibv_cq *keel_create_cq(struct ibv_context *ibctx, int cqe,
			      struct ibv_comp_channel *channel,
			      int comp_vector);
struct ibv_cq_ex *keel_create_cq_ex(struct ibv_context *ibctx,
				    struct ibv_cq_init_attr_ex *attr);
int keel_resize_cq(struct ibv_cq *ibcq, int cqe);
int keel_destroy_cq(struct ibv_cq *ibcq);

/* poll.c */
int keel_poll_cq(struct ibv_cq *ibcq, int room, struct ibv_wc *wc);
int keel_req_notify_cq(struct ibv_cq *ibcq, int solicited_only);
bool keel_cq_lock_unless_polling(struct keel_cq *cq);
void keel_cq_find_current(struct keel_cq *cq);
void keel_cq_clean(struct keel_cq *cq, uint32_t qp_num);
void keel_set_poll_ops(struct ibv_cq_ex *ibcq, uint64_t wc_flags);

/* srq.c */
struct ibv_srq *keel_create_srq(struct ibv_pd *ibpd,
				struct ibv_srq_init_attr *attr);
struct ibv_srq *keel_create_srq_ex(struct ibv_context *ibctx,
				   struct ibv_srq_init_attr_ex *attr);
int keel_get_srq_num(struct ibv_srq *ibsrq, uint32_t *srq_num);
int keel_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr,
		    int attr_mask);
int keel_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr);
int keel_destroy_srq(struct ibv_srq *ibsrq);

/* qp.c */
struct ibv_qp *keel_create_qp(struct ibv_pd *ibpd,
			      struct ibv_qp_init_attr *attr);
struct ibv_qp *keel_create_qp_ex(struct ibv_context *ibctx,
				 struct ibv_qp_init_attr_ex *attr);
struct ibv_qp *keel_open_qp(struct ibv_context *ibctx,
			    struct ibv_qp_open_attr *attr);
int keel_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr,
		   int attr_mask);
int keel_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int attr_mask,
		  struct ibv_qp_init_attr *init_attr);
int keel_destroy_qp(struct ibv_qp *ibqp);

/* post.c */
int keel_ring_doorbell(const struct keel_qp *qp);
int keel_ring_send_doorbell(const struct keel_qp *qp);
int keel_put_sends(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
		   struct ibv_send_wr **bad_wr, bool *posted);
int keel_ring_sends(struct ibv_qp *ibqp, int ret, struct ibv_send_wr *wr,
		    struct ibv_send_wr **bad_wr);
void keel_put_sges(void *to, const struct ibv_sge *sges, uint32_t n);
void keel_put_bind(struct keel_uapi_send_wqe *wqe, const struct ibv_mw *mw,
		   uint32_t new_rkey, const struct ibv_mw_bind_info *info);
int keel_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
		   struct ibv_send_wr **bad_wr);
int keel_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr,
		   struct ibv_recv_wr **bad_wr);
int keel_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr,
		       struct ibv_recv_wr **bad_wr);
int keel_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *ibmw,
		 struct ibv_mw_bind *bind);

/* polling.c */
uint32_t keel_process_number(void);
void keel_poll_by_env(struct ibv_context *ibctx);
bool keel_is_polled(const struct keel_qp *qp);

/* wr.c */
void keel_set_wr_ops(struct ibv_qp_ex *ibqp);

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
