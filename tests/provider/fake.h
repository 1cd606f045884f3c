/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's side of the contract, for unit tests of the user library without
 * a device. The tests call libibverbs and the provider as an application does.
 * The commands that the provider issues end in fake_cmd.c and fake_ioctl.c,
 * and the tests move the kernel's side of each ring themselves.
 */
#ifndef FAKE_H
#define FAKE_H

#include "keel.h"
#include "t.h"

#define FAKE_PAGE	4096
/* Bytes of the device: its state page, and its device memory. */
#define FAKE_DEVICE	(65 * FAKE_PAGE)
/* Number of a QP, and of an SRQ: this plus its handle. */
#define FAKE_QPN	0x100
#define FAKE_SRQN	0x300
#define FAKE_OBJECTS	64
/*
 * Handles of PDs, parent domains, thread domains and XRC domains; first ones of MRs
 * and MWs.
 */
#define FAKE_PD		7
#define FAKE_PARENT	8
#define FAKE_TD		9
#define FAKE_XRCD	10
#define FAKE_MR		20
#define FAKE_MW		30

/* Objects without a structure of their own; a handle may exist several times. */
enum fake_kind {
	FAKE_PDS,
	FAKE_TDS,
	FAKE_AHS,
	FAKE_MRS,
	FAKE_MWS,
	FAKE_XRCDS,
	FAKE_KINDS
};

/* Calls of the provider. */
enum fake_call {
	FAKE_GET_CONTEXT,
	FAKE_ALLOC_PD,
	FAKE_DEALLOC_PD,
	FAKE_ALLOC_PARENT,
	FAKE_QUERY_PD,
	FAKE_ALLOC_TD,
	FAKE_FREE_TD,
	FAKE_HOLDERS,
	FAKE_CREATE_CQ,
	FAKE_RESIZE_CQ,
	FAKE_DESTROY_CQ,
	FAKE_CREATE_SRQ,
	FAKE_MODIFY_SRQ,
	FAKE_QUERY_SRQ,
	FAKE_DESTROY_SRQ,
	FAKE_SRQ_DOORBELL,
	FAKE_CREATE_QP,
	FAKE_MODIFY_QP,
	FAKE_QUERY_QP,
	FAKE_DESTROY_QP,
	FAKE_QP_DOORBELL,
	FAKE_QP_DOORBELLS,
	FAKE_CREATE_AH,
	FAKE_DESTROY_AH,
	FAKE_REG_MR,
	FAKE_REREG_MR,
	FAKE_DEREG_MR,
	FAKE_QUERY_MR,
	FAKE_REG_DM_MR,
	FAKE_ALLOC_MW,
	FAKE_DEALLOC_MW,
	FAKE_OPEN_XRCD,
	FAKE_CLOSE_XRCD,
	FAKE_ALLOC_DM,
	FAKE_FREE_DM,
	FAKE_QUERY_DM,
	FAKE_MAP_DM,
	FAKE_POLL,
	/* of the C library and libibverbs */
	FAKE_MMAP,
	FAKE_CALLOC,
	FAKE_DONTFORK,
	FAKE_WIPEONFORK,
	FAKE_CALLS
};

/* A ring as the kernel sees it. */
struct fake_ring {
	struct keel_uapi_ring *head;
	uint32_t mask;
	uint32_t stride;
	uint32_t index;
};

struct fake_cq {
	struct fake_ring ring;
	bool live;
	/* It overran, or its consumer index was invalid. */
	bool dead;
	uint32_t flags;
	uint32_t wc_flags;
	int channel_fd;
	int vector;
	unsigned int events;
	/* Threads of the kernel take turns. */
	pthread_mutex_t lock;
};

struct fake_rq {
	struct fake_ring ring;
	bool live;
	/* Requesters wait for a receive WQE. */
	bool wanted;
	/* As the newest request says. */
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t limit;
	unsigned int doorbells;
};

struct fake_qp {
	struct fake_ring sq;
	struct fake_ring rq;
	bool live;
	enum ibv_qp_type type;
	struct ibv_qp_cap cap;
	/* Members of the newest request to modify it; mask of the newest query. */
	struct ibv_qp_attr attr;
	int mask;
	unsigned int doorbells;
};

/* A request to register or reregister a region. */
struct fake_mr_request {
	uint32_t pd;
	uint32_t dm;
	uint32_t flags;
	uint32_t access;
	void *addr;
	uint64_t length;
	/* The offset, for device memory. */
	uint64_t iova;
};

struct fake_dm {
	bool live;
	uint64_t length;
	/* Its first page in the device, and pages of its extents. */
	uint32_t page;
	uint32_t extent;
};

struct fake {
	const struct verbs_device_ops *ops;
	struct ibv_context *ctx;
	/* The device: its state page and its memory. */
	uint8_t *device;
	struct fake_cq cq[FAKE_OBJECTS];
	struct fake_rq srq[FAKE_OBJECTS];
	struct fake_qp qp[FAKE_OBJECTS];
	struct fake_dm dm[FAKE_OBJECTS];
	/* Objects of any type that the provider has not destroyed. */
	int live;
	/* Bytes excluded from fork(), less those included again. */
	long dontfork;
	unsigned int calls[FAKE_CALLS];
	/* Let the call fail with this errno, after @pass calls that succeed. */
	int fail[FAKE_CALLS];
	unsigned int pass[FAKE_CALLS];
	/* Called by each command after its effect, before its return. */
	void (*hook)(enum fake_call call, uint32_t handle);
	/*
	 * The answer of KEEL_METHOD_DM_MAP if its length is not 0, after
	 * @dm_map_pass correct answers.
	 */
	struct keel_uapi_dm_map dm_map;
	unsigned int dm_map_pass;
	/* Bytes of each mapping before the buffer. 0: a module that does not say. */
	uint32_t dm_skip;
	/* The holders of any object. */
	struct keel_uapi_holder holders[32];
	uint32_t nholders;
	/* Members of the newest request for them. */
	uint32_t holders_of;
	uint32_t holders_handle;
	uint32_t holders_room;
	uint32_t holders_flags;
	/* Kind of the next PD that is imported. */
	enum keel_uapi_pd_kind kind;
	/* Members of the newest request to allocate a parent domain. */
	uint32_t parent_pd;
	int64_t parent_td;
	/* Members of other newest requests. */
	uint32_t queried_pd;
	uint32_t poll_us;
	struct fake_mr_request mr;
	struct ibv_ah_attr ah;
	struct ibv_xrcd_init_attr xrcd;
	/* Objects by kind and handle. */
	int objects[FAKE_KINDS][FAKE_OBJECTS];
};

extern struct fake fake;
/* Locks that this thread has taken or waits for, and those of all threads. */
extern __thread unsigned int fake_locks;
extern atomic_uint fake_all_locks;

/* fake.c */
struct ibv_context *fake_open(void);
/* The same, which may fail: NULL and errno. */
struct ibv_context *fake_try_open(void);
/* Let the next ring find no memory: none of former rings, and none that is mapped. */
void fake_map_fails(int err);
/* Check that nothing is left of the objects, and close the device. */
void fake_close(void);
/* Count the objects; begin a call, which may fail; end it. */
void fake_count(int n);
void fake_add_object(enum fake_kind kind, uint32_t handle);
void fake_drop_object(enum fake_kind kind, uint32_t handle);
/* Check that it exists. */
void fake_has_object(enum fake_kind kind, uint32_t handle);
int fake_enter(enum fake_call call);
int fake_leave(enum fake_call call, uint32_t handle);
void fake_gone(void);
/* Map a ring, as the kernel does; returns 0 or a positive errno. */
int fake_ring_map(struct fake_ring *ring, const struct keel_uapi_buf *buf,
		  uint32_t entries, uint32_t stride, bool exact);
/* Set the indexes of both sides. */
void fake_at(struct keel_ring *user, struct fake_ring *ring, uint32_t index);
void *fake_slot(const struct fake_ring *ring, uint32_t index);
/* Number of WQEs, or of CQEs, in the ring. */
uint32_t fake_posted(const struct fake_ring *ring);
uint32_t fake_queued(const struct fake_ring *ring);
void fake_advance(struct fake_ring *ring);

struct fake_cq *fake_cq(struct ibv_cq *cq);
struct fake_rq *fake_srq(struct ibv_srq *srq);
struct fake_qp *fake_qp(struct ibv_qp *qp);
/* The same, for commands: check that the object exists. */
struct fake_cq *fake_live_cq(struct ibv_cq *cq);
struct fake_rq *fake_live_srq(struct ibv_srq *srq);
struct fake_qp *fake_live_qp(struct ibv_qp *qp);
/* Add a CQE; returns 0, or EIO if the CQ is in error now. */
int fake_add(struct ibv_cq *cq, const struct keel_uapi_cqe *cqe,
	     bool solicited);
/*
 * Add a CQE unless the CQ is full; returns whether it was added. A thread that
 * looks for room first, and then calls fake_add(), may find that another has
 * resized the CQ in between, so that the CQEs just fit.
 */
bool fake_try_add(struct ibv_cq *cq, const struct keel_uapi_cqe *cqe,
		  bool solicited);
/* Add a CQE with this wr_id, of this QP. */
void fake_wc(struct ibv_cq *cq, uint64_t wr_id, uint32_t qpn);
/* Add @n CQEs, with wr_ids from @first on. */
void fake_wcs(struct ibv_cq *cq, uint64_t first, int n);
/*
 * Take the next send WQE, and check that it has this wr_id. It is copied to a
 * buffer of KEEL_MAX_STRIDE bytes that the next call overwrites.
 */
struct keel_uapi_send_wqe *fake_take(struct fake_ring *ring, uint64_t wr_id);
struct keel_uapi_recv_wqe *fake_take_recv(struct fake_ring *ring,
					  uint64_t wr_id);
/* The SGEs or inline data of such a WQE. */
#define fake_data(wqe)	((void *)((wqe) + 1))

/* Objects, with default attributes. */
struct ibv_pd *fake_parent(struct ibv_pd *pd, struct ibv_td *td);
struct ibv_cq *fake_new_cq(int cqe);
struct ibv_cq_ex *fake_new_cq_ex(uint32_t cqe, uint64_t wc_flags,
				 uint32_t flags);
struct ibv_qp *fake_new_qp(struct ibv_pd *pd, struct ibv_cq *cq,
			   enum ibv_qp_type type, uint32_t wrs);
/* The same for ibv_wr_*(), with other attributes, in RTS. */
struct ibv_qp *fake_new_qp_ex(struct ibv_pd *pd, struct ibv_cq *cq,
			      struct ibv_qp_init_attr_ex *attr);
void fake_to(struct ibv_qp *qp, enum ibv_qp_state state);

/* Rounds of a test with threads: fewer in a short run. */
int fake_rounds(int n);

#endif /* FAKE_H */
