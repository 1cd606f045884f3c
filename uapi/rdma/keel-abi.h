/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR Linux-OpenIB) */
/*
 * keel: the contract between keel.ko and its userspace provider.
 *
 * This file defines every interface of keel beyond the common uverbs interface.
 * The module and the provider are both built from it.
 *
 * Rules
 *  - Structures have the same layout for 32 and 64 bit applications. They use
 *    fixed-width types only, 64-bit members are on 8-byte boundaries, and
 *    padding is explicit.
 *  - Reserved members and unknown flag bits of a request must be zero. The
 *    kernel returns -EINVAL otherwise.
 *  - A request may be longer than the structure that the kernel knows, if the
 *    excess bytes are zero. The kernel returns -EOPNOTSUPP otherwise.
 *  - A handle is a uobject handle of the calling file. As for the common verbs,
 *    ib_core returns -ENOENT if the handle does not exist, -EINVAL if it is of
 *    another object type, and -EBUSY if it is being destroyed.
 *  - The contract does not say where a peer is. A number of the device names a
 *    shared protection domain. How this number is resolved is not part of the
 *    contract.
 *
 * Incompatible changes increment KEEL_ABI_VERSION. The provider refuses a module
 * of an unknown version with a one-line message.
 */
#ifndef KEEL_ABI_H
#define KEEL_ABI_H

#include <linux/types.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/keel-queue.h>

/* The uverbs ABI version that the device reports. */
#define KEEL_ABI_VERSION	2

/*
 * keel's driver id ("keel" in ASCII). enum rdma_driver_id numbers its members
 * from zero, and upstream assigns them. This private id is far from them and
 * cannot be confused with an upstream one.
 */
#define KEEL_DRIVER_ID		0x6b65656c

/*
 * Lower 32 bits of the resource_type argument of a parent domain's allocators
 * (IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS). The upper 32 bits are
 * KEEL_DRIVER_ID.
 */
enum keel_res_code {
	KEEL_RES_CQ		= 1,	/* ring of a completion queue */
	KEEL_RES_SQ		= 2,	/* ring of a send queue */
	KEEL_RES_RQ		= 3,	/* ring of a receive queue */
	KEEL_RES_SRQ		= 4,	/* ring of a shared receive queue */
};

/*
 * Kinds of objects, X(name, number, word): KEEL_UAPI_KIND_<name>. debugfs, the trace
 * events and the holder lists print the words. The module's list of kinds and the
 * provider's are generated from this list or compared with it.
 */
#define KEEL_UAPI_KINDS(X)						\
	X(DOMAIN, 1, "domain")						\
	X(PD, 2, "pd")							\
	X(PARENT, 3, "parent")		/* parent domain */		\
	X(TD, 4, "td")							\
	X(XRCD, 5, "xrcd")						\
	X(SHPD, 6, "shpd")		/* shared-PD handle */		\
	X(DM, 7, "dm")							\
	X(MR, 8, "mr")							\
	X(DM_MR, 9, "dm_mr")						\
	X(MW, 10, "mw")							\
	X(AH, 11, "ah")							\
	X(CQ, 12, "cq")							\
	X(SRQ, 13, "srq")						\
	X(QP, 14, "qp")

enum keel_uapi_kind {
#define KEEL_UAPI_KIND(_name, _number, _word)	KEEL_UAPI_KIND_##_name = _number,
	KEEL_UAPI_KINDS(KEEL_UAPI_KIND)
#undef KEEL_UAPI_KIND
};

/* Offset of &struct keel_uapi_state for mmap() on the uverbs file. */
#define KEEL_STATE_OFFSET	0

/**
 * struct keel_uapi_state - state of the device, readable at any time
 * @gone: not 0 after device removal has begun: mappings of device memory lose
 *	their memory, and system calls fail with EIO, now or soon
 *
 * One page, which the application maps shared and read-only. After a copy from or
 * to device memory, the application checks @gone.
 */
struct keel_uapi_state {
	__u32 gone;
};

/**
 * enum keel_uapi_context_mask - optional features of a module
 * @KEEL_CONTEXT_STATE: &struct keel_uapi_state can be mapped
 * @KEEL_CONTEXT_RING_END: the kernel does not write to a ring after the destroy of its
 *	queue, or after a resize has replaced it: the memory can be used again
 */
enum keel_uapi_context_mask {
	KEEL_CONTEXT_STATE	= 1U << 0,
	KEEL_CONTEXT_RING_END	= 1U << 1,
};

/**
 * struct keel_uapi_context_resp - properties of a context
 * @comp_mask: enum keel_uapi_context_mask
 * @dm_access_align: a power of two. ibv_memcpy_to_dm() and ibv_memcpy_from_dm()
 *	refuse an offset or a length that is not a multiple of it. 1 allows any.
 *	Module parameter of the same name.
 *
 * Response to IB_USER_VERBS_CMD_GET_CONTEXT, and value of
 * KEEL_ATTR_QUERY_CONTEXT_RESP.
 */
struct keel_uapi_context_resp {
	__u32 comp_mask;
	__u32 dm_access_align;
};

/**
 * enum keel_uapi_pd_kind - kind of a PD handle
 * @KEEL_UAPI_PD_PLAIN: a protection domain with a domain of its own
 * @KEEL_UAPI_PD_PARENT: a parent domain: another handle of the domain of the
 *	PD that it was created from, with an optional thread domain
 * @KEEL_UAPI_PD_SHARED: an instance of a domain that another PD shared
 */
enum keel_uapi_pd_kind {
	KEEL_UAPI_PD_PLAIN	= 0,
	KEEL_UAPI_PD_PARENT	= 1,
	KEEL_UAPI_PD_SHARED	= 2,
};

/**
 * struct keel_uapi_alloc_pd_req - driver part of IB_USER_VERBS_CMD_ALLOC_PD
 * @kind: KEEL_UAPI_PD_PLAIN or KEEL_UAPI_PD_SHARED
 * @shpd_handle: SHARED: the handle that KEEL_METHOD_PD_SHARE returned; else 0
 * @share_key: SHARED: the key that was passed to KEEL_METHOD_PD_SHARE; else 0
 *
 * Without a request, the kernel allocates a PLAIN PD. Parent domains need handles
 * of other objects, so KEEL_METHOD_PD_ALLOC_PARENT creates them.
 *
 * Errors:
 *  - -EINVAL if @kind is unknown, or if a member that must be 0 is not.
 *  - -EACCES if @shpd_handle does not exist, or if @share_key is not its key.
 *  - -ENOMEM if the device has no PD left (max_pd), if the user has used up its
 *    share of them, or if memory is short.
 */
struct keel_uapi_alloc_pd_req {
	__u32 kind;
	__u32 shpd_handle;
	__aligned_u64 share_key;
};

/**
 * struct keel_uapi_pd_info - properties of a PD handle
 * @domain: number of the domain that keys of this PD are checked against. A PD,
 *	its parent domains and all instances of its domain have the same number.
 * @kind: enum keel_uapi_pd_kind
 *
 * Driver part of the response to IB_USER_VERBS_CMD_ALLOC_PD, and response of
 * KEEL_METHOD_PD_ALLOC_PARENT and KEEL_METHOD_PD_QUERY.
 */
struct keel_uapi_pd_info {
	__u32 domain;
	__u32 kind;
};

/**
 * struct keel_uapi_holder - one object that keeps another one alive
 * @kind: enum keel_uapi_kind
 * @id: number of the holder, as in debugfs
 * @pid: thread group that created the holder, in the pid namespace of the
 *	caller; 0 if it is not visible there
 * @reserved: 0
 * @comm: command name of that process, null-terminated
 */
struct keel_uapi_holder {
	__u32 kind;
	__u32 id;
	__u32 pid;
	__u32 reserved;
	char comm[16];
};

/**
 * struct keel_uapi_dm_info - location of a device memory buffer
 * @start: offset of its first byte from the start of the device's memory
 * @length: usable bytes, as requested
 */
struct keel_uapi_dm_info {
	__aligned_u64 start;
	__aligned_u64 length;
};

/**
 * struct keel_uapi_dm_map - how to map one contiguous extent of a buffer
 * @mmap_offset: offset for mmap() on the uverbs file, with MAP_SHARED
 * @length: exact length for mmap(); a multiple of the page size
 * @start: offset in the buffer where the extent starts
 * @reserved: 0
 *
 * Device memory need not be physically contiguous. To map a whole buffer, the
 * application starts with offset 0 and maps the extent that the kernel returns.
 * It continues at @start + @length until the whole buffer is mapped.
 *
 * A buffer that shares its page has one extent, the page, and may not start where that
 * starts: see %KEEL_ATTR_DM_MAP_SKIP.
 */
struct keel_uapi_dm_map {
	__aligned_u64 mmap_offset;
	__aligned_u64 length;
	__aligned_u64 start;
	__aligned_u64 reserved;
};

/* Objects that only keel has. */
enum keel_objects {
	KEEL_OBJECT_TD = (1U << UVERBS_ID_NS_SHIFT),
};

/*
 * KEEL_METHOD_TD_ALLOC: allocate a thread domain. Returns -ENOMEM if memory is
 *	short, if the device has no thread domain left, or if the user has used
 *	up its share.
 * KEEL_METHOD_TD_FREE: free it. Returns -EBUSY if a parent domain uses it.
 * KEEL_METHOD_TD_HOLDERS: as KEEL_METHOD_PD_HOLDERS.
 */
enum keel_methods_td {
	KEEL_METHOD_TD_ALLOC = (1U << UVERBS_ID_NS_SHIFT),
	KEEL_METHOD_TD_FREE,
	KEEL_METHOD_TD_HOLDERS,
};

enum keel_attrs_td_alloc {
	KEEL_ATTR_TD_ALLOC_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
};

enum keel_attrs_td_free {
	KEEL_ATTR_TD_FREE_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
};

/*
 * Methods on UVERBS_OBJECT_PD.
 *
 * KEEL_METHOD_PD_SHARE: share the domain of this PD, so that other PDs can join
 *	it. Returns -EINVAL if the domain is shared already, or if this PD is a
 *	parent domain or an instance of a shared one. Returns -ENOSPC if the
 *	device has issued all its handles, or the user has used up its share.
 *	Returns -ENOMEM if memory is short.
 * KEEL_METHOD_PD_HOLDERS: list the objects that hold this PD, see enum
 *	keel_attrs_holders.
 * KEEL_METHOD_PD_ALLOC_PARENT: create a parent domain. Returns -EINVAL if the PD
 *	below is itself a parent domain, and -ENOMEM as
 *	IB_USER_VERBS_CMD_ALLOC_PD does.
 * KEEL_METHOD_PD_QUERY: return struct keel_uapi_pd_info.
 */
enum keel_methods_pd {
	KEEL_METHOD_PD_SHARE = (1U << UVERBS_ID_NS_SHIFT),
	KEEL_METHOD_PD_HOLDERS,
	KEEL_METHOD_PD_ALLOC_PARENT,
	KEEL_METHOD_PD_QUERY,
};

enum keel_attrs_pd_alloc_parent {
	KEEL_ATTR_PD_ALLOC_PARENT_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	KEEL_ATTR_PD_ALLOC_PARENT_PD,	/* the PD below */
	KEEL_ATTR_PD_ALLOC_PARENT_TD,	/* optional */
	KEEL_ATTR_PD_ALLOC_PARENT_RESP,	/* out, struct keel_uapi_pd_info */
};

enum keel_attrs_pd_query {
	KEEL_ATTR_PD_QUERY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	KEEL_ATTR_PD_QUERY_RESP,	/* out, struct keel_uapi_pd_info */
};

enum keel_attrs_pd_share {
	KEEL_ATTR_PD_SHARE_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	KEEL_ATTR_PD_SHARE_KEY,		/* in, u64 */
	KEEL_ATTR_PD_SHARE_RESP_SHPD,	/* out, u32 */
};

/*
 * Maximum length of a list of holders. KEEL_ATTR_HOLDERS_RESP_COUNT is not
 * limited by it.
 */
#define KEEL_UAPI_HOLDERS_MAX	1024

/**
 * enum keel_uapi_holders_flags - of KEEL_ATTR_HOLDERS_FLAGS
 * @KEEL_UAPI_HOLDERS_F_REFUSED: the caller tried to destroy the object and got
 *	EBUSY. If ib_core refuses the destroy before keel can, keel emits a
 *	keel_destroy_refused trace event.
 */
enum keel_uapi_holders_flags {
	KEEL_UAPI_HOLDERS_F_REFUSED	= 1U << 0,
};

/*
 * Attributes of every KEEL_METHOD_*_HOLDERS. The list is optional. The kernel
 * writes as many holders as fit, and leaves the rest of the list unchanged.
 */
enum keel_attrs_holders {
	KEEL_ATTR_HOLDERS_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	KEEL_ATTR_HOLDERS_RESP_LIST,	/* out, struct keel_uapi_holder[] */
	KEEL_ATTR_HOLDERS_RESP_COUNT,	/* out, u32: all holders */
	KEEL_ATTR_HOLDERS_FLAGS,	/* in, optional */
};

/*
 * Methods on UVERBS_OBJECT_DM.
 *
 * KEEL_METHOD_DM_QUERY: return struct keel_uapi_dm_info.
 * KEEL_METHOD_DM_MAP: return struct keel_uapi_dm_map of the contiguous extent
 *	that covers an offset. Returns -EINVAL if the offset is beyond the buffer,
 *	-EOPNOTSUPP if the buffer shares its page and there is no
 *	%KEEL_ATTR_DM_MAP_SKIP, and -ENOMEM.
 * KEEL_METHOD_DM_HOLDERS: as KEEL_METHOD_PD_HOLDERS.
 */
enum keel_methods_dm {
	KEEL_METHOD_DM_QUERY = (1U << UVERBS_ID_NS_SHIFT),
	KEEL_METHOD_DM_MAP,
	KEEL_METHOD_DM_HOLDERS,
};

enum keel_attrs_dm_query {
	KEEL_ATTR_DM_QUERY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	KEEL_ATTR_DM_QUERY_RESP,	/* out, struct keel_uapi_dm_info */
};

enum keel_attrs_dm_map {
	KEEL_ATTR_DM_MAP_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	KEEL_ATTR_DM_MAP_OFFSET,	/* in, u64 */
	KEEL_ATTR_DM_MAP_RESP,		/* out, struct keel_uapi_dm_map */
	KEEL_ATTR_DM_MAP_SKIP,		/* out, optional, u32: see below */
};

/*
 * KEEL_ATTR_DM_MAP_SKIP: how many bytes of the extent are before the buffer. They belong
 *	to other buffers of the context, or to none, and so do those behind it.
 */

/* On UVERBS_METHOD_DM_ALLOC. */
enum keel_attrs_dm_alloc {
	KEEL_ATTR_DM_ALLOC_FLAGS = (1U << UVERBS_ID_NS_SHIFT),	/* in, optional */
};

/**
 * enum keel_dm_alloc_flags - for %KEEL_ATTR_DM_ALLOC_FLAGS; others are refused with -EINVAL
 * @KEEL_DM_ALLOC_SHARES_PAGE: the buffer may share its page with other buffers of the
 *	process in this context. They share no 64 bytes that are aligned so. It has pages of
 *	its own if it has more than half a page, or a page's alignment or a coarser one; if
 *	another process or user has opened the context; or if the device offers export.
 */
enum keel_dm_alloc_flags {
	KEEL_DM_ALLOC_SHARES_PAGE	= 1U << 0,
};

/*
 * Methods on UVERBS_OBJECT_QP.
 *
 * KEEL_METHOD_QP_DOORBELL: run the send queue. Flush the receive queue if the QP
 *	is in the error state. Wake a requester that waits for a receive WQE.
 *
 *	The method executes the WQEs that were posted before the call, and then
 *	returns. If another thread is running the send queue already, that thread
 *	executes them. A kernel thread of the process continues if the peer is
 *	not ready, memory is not present, or 100 ms have passed. It may also execute
 *	messages of 256 KiB or more, and those behind them, while the caller goes on.
 *
 *	Errors of a work request are reported in its completion. The method
 *	returns -ENOENT if the number is not that of a QP of this context, or if
 *	the QP has no send queue (XRC_RECV). If the process that ran the QP is
 *	dead, the caller takes the QP over. The method returns -ENOMEM or -EAGAIN
 *	if the caller's process cannot have a kernel thread for it.
 *
 * KEEL_METHOD_QP_DOORBELLS: the same for each of up to %KEEL_UAPI_DOORBELLS QPs, in the
 *	order of their numbers in the list. The 100 ms are for all of them. The method
 *	returns the first error, but rings the others. It rings none, and returns -EINVAL if
 *	the length of the list is not that of 1 to %KEEL_UAPI_DOORBELLS numbers, or -EFAULT
 *	if it cannot be read.
 */
enum keel_methods_qp {
	KEEL_METHOD_QP_DOORBELL = (1U << UVERBS_ID_NS_SHIFT),
	KEEL_METHOD_QP_DOORBELLS,
};

/* Numbers of one KEEL_METHOD_QP_DOORBELLS. */
#define KEEL_UAPI_DOORBELLS	64

/*
 * The method belongs to keel, so its attributes are numbered from 0. ib_core then
 * allocates no memory for the call.
 */
enum keel_attrs_qp_doorbell {
	KEEL_ATTR_QP_DOORBELL_QPN,	/* in, u32 */
};

/* Likewise. */
enum keel_attrs_qp_doorbells {
	KEEL_ATTR_QP_DOORBELLS_QPNS,	/* in, array of u32 */
};

/*
 * Methods on UVERBS_OBJECT_SRQ.
 *
 * KEEL_METHOD_SRQ_DOORBELL: wake the requesters that wait for a receive WQE.
 */
enum keel_methods_srq {
	KEEL_METHOD_SRQ_DOORBELL = (1U << UVERBS_ID_NS_SHIFT),
};

enum keel_attrs_srq_doorbell {
	KEEL_ATTR_SRQ_DOORBELL_SRQ = (1U << UVERBS_ID_NS_SHIFT),
};

/*
 * Methods on UVERBS_OBJECT_DEVICE.
 *
 * KEEL_METHOD_DEVICE_POLL_SENDS: polling of the send queues of this context by the calling
 *	process. After each KEEL_METHOD_QP_DOORBELL for send WQEs, a kernel thread of the
 *	process polls the send queue, until it has found no new ones for the given time.
 *	KEEL_RING_F_POLLED is set meanwhile. 0 ends polling, as it was at first.
 *
 *	A doorbell begins polling only if that thread may run on several processors, and
 *	has the scheduling policy and priority of the caller, which is not of real time.
 *
 *	Errors:
 *	- -EINVAL if the time is longer than %KEEL_UAPI_POLL_SENDS_US.
 *	- -EOPNOTSUPP if this kernel offers no such threads to modules (before 6.10).
 *	- -ENOMEM or -EAGAIN if the process cannot have the thread.
 */
enum keel_methods_device {
	KEEL_METHOD_DEVICE_POLL_SENDS = (1U << UVERBS_ID_NS_SHIFT),
};

/* The longest time of KEEL_METHOD_DEVICE_POLL_SENDS, us. */
#define KEEL_UAPI_POLL_SENDS_US	1000000

enum keel_attrs_device_poll_sends {
	KEEL_ATTR_DEVICE_POLL_SENDS_US = (1U << UVERBS_ID_NS_SHIFT),	/* in, u32 */
};

/* On UVERBS_METHOD_QUERY_CONTEXT: properties for ibv_import_device(). */
enum keel_attrs_query_context {
	KEEL_ATTR_QUERY_CONTEXT_RESP = (1U << UVERBS_ID_NS_SHIFT),
};

#endif /* KEEL_ABI_H */
