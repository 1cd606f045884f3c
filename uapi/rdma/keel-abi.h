/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR Linux-OpenIB) */
/*
 * keel: the contract between keel.ko and its user library.
 *
 * Everything a program can ask of keel beyond the common uverbs interface is
 * defined here and nowhere else. The module and the provider are built from
 * this one file.
 *
 * Rules
 *  - Structures have the same layout for 32 and 64 bit programs: fixed-width
 *    types only, 64-bit members on 8-byte boundaries, padding spelled out.
 *  - Reserved members and unknown flag bits must be zero: -EINVAL otherwise.
 *    A request longer than the kernel knows is accepted only when the part it
 *    does not know is zero: -EOPNOTSUPP otherwise.
 *  - A handle is a uobject handle of the calling file. The core answers for
 *    one that does not exist (-ENOENT), is of another object type (-EINVAL) or
 *    is being destroyed (-EBUSY), exactly as for the common verbs.
 *  - Nothing here says where a peer is. A shared protection domain is named by
 *    a number of the device; who resolves that number is not part of the
 *    contract.
 *
 * Incompatible changes raise KEEL_ABI_VERSION; the user library refuses a
 * module whose version it does not know, in one line.
 */
#ifndef KEEL_ABI_H
#define KEEL_ABI_H

#include <linux/types.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/keel-queue.h>

/* Reported as the device's uverbs ABI version. */
#define KEEL_ABI_VERSION	2

/*
 * keel's driver id ("keel" in ASCII). enum rdma_driver_id numbers its members
 * from zero and is handed out upstream; a private id far from them cannot be
 * mistaken for one of theirs.
 */
#define KEEL_DRIVER_ID		0x6b65656c

/*
 * Lower 32 bits of the resource_type that the allocators of a parent domain
 * get (IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS); the upper 32 are
 * KEEL_DRIVER_ID.
 */
enum keel_res_code {
	KEEL_RES_CQ		= 1,	/* ring of a completion queue */
	KEEL_RES_SQ		= 2,	/* ring of a send queue */
	KEEL_RES_RQ		= 3,	/* ring of a receive queue */
	KEEL_RES_SRQ		= 4,	/* ring of a shared receive queue */
};

/*
 * Kinds of objects, X(name, number, word): the words are those of debugfs, the
 * trace events and the holder lists. All lists of kinds are made of this one, or
 * compared with it.
 */
#define KEEL_UAPI_KINDS(X)						\
	X(DOMAIN, 1, "domain")						\
	X(PD, 2, "pd")							\
	X(PARENT, 3, "parent")						\
	X(TD, 4, "td")							\
	X(XRCD, 5, "xrcd")						\
	X(SHPD, 6, "shpd")						\
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

/* Where mmap() on the uverbs file finds &struct keel_uapi_state. */
#define KEEL_STATE_OFFSET	0

/**
 * struct keel_uapi_state - what a program can see of its device at any time
 * @gone: not 0 when the device has gone: its mappings are about to lose their
 *	memory, or have lost it, and every call fails with EIO
 *
 * One page, shared, to be read only. A program that copied out of or into
 * device memory looks here afterwards.
 */
struct keel_uapi_state {
	__u32 gone;
};

/**
 * enum keel_uapi_context_mask - what a module can do besides
 * @KEEL_CONTEXT_STATE: there is a &struct keel_uapi_state
 */
enum keel_uapi_context_mask {
	KEEL_CONTEXT_STATE	= 1U << 0,
};

/**
 * struct keel_uapi_context_resp - what a program learns when it opens keel
 * @comp_mask: enum keel_uapi_context_mask
 * @dm_access_align: ibv_memcpy_to_dm() and ibv_memcpy_from_dm() refuse an
 *	offset or a length that is not a multiple of this, a power of two;
 *	1 means that any will do. Module parameter of the same name.
 *
 * Answer to IB_USER_VERBS_CMD_GET_CONTEXT and to
 * KEEL_ATTR_QUERY_CONTEXT_RESP.
 */
struct keel_uapi_context_resp {
	__u32 comp_mask;
	__u32 dm_access_align;
};

/**
 * enum keel_uapi_pd_kind - what a PD handle stands for
 * @KEEL_UAPI_PD_PLAIN: a protection domain with a domain of its own below it
 * @KEEL_UAPI_PD_PARENT: a parent domain: another handle of the domain of the
 *	PD that it was made from, with an optional thread domain
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
 * @shpd_handle: SHARED: the handle that KEEL_METHOD_PD_SHARE gave; else 0
 * @share_key: SHARED: the key that was given to KEEL_METHOD_PD_SHARE; else 0
 *
 * An absent request is a PLAIN one. Parent domains are made by
 * KEEL_METHOD_PD_ALLOC_PARENT, because they need handles of other objects.
 *
 * Errors: EINVAL for an unknown kind, or a member that must be 0 and is not;
 * EACCES for a @shpd_handle and @share_key that do not belong together,
 * whichever of the two is wrong; ENOMEM beyond the device's max_pd.
 */
struct keel_uapi_alloc_pd_req {
	__u32 kind;
	__u32 shpd_handle;
	__aligned_u64 share_key;
};

/**
 * struct keel_uapi_pd_info - what is behind a PD handle
 * @domain: number of the domain that keys of this PD are checked against; the
 *	same for a PD, its parent domains and every instance of it
 * @kind: enum keel_uapi_pd_kind
 *
 * Driver part of the answer to IB_USER_VERBS_CMD_ALLOC_PD, and answer of
 * KEEL_METHOD_PD_ALLOC_PARENT and KEEL_METHOD_PD_QUERY.
 */
struct keel_uapi_pd_info {
	__u32 domain;
	__u32 kind;
};

/**
 * struct keel_uapi_holder - one object that keeps another one alive
 * @kind: enum keel_uapi_kind
 * @id: its number, as in debugfs
 * @pid: thread group that made it, in the pid namespace of the caller; 0 if it
 *	cannot be seen from there
 * @reserved: 0
 * @comm: command name of that process, terminated
 */
struct keel_uapi_holder {
	__u32 kind;
	__u32 id;
	__u32 pid;
	__u32 reserved;
	char comm[16];
};

/**
 * struct keel_uapi_dm_info - where a device memory buffer is
 * @start: address on the device: offset of the first byte from the start of
 *	the device's memory
 * @length: usable bytes, as asked for
 */
struct keel_uapi_dm_info {
	__aligned_u64 start;
	__aligned_u64 length;
};

/**
 * struct keel_uapi_dm_map - how to map one stretch of a buffer
 * @mmap_offset: offset for mmap() on the uverbs file, with MAP_SHARED
 * @length: length for mmap(), exactly; a multiple of the page size
 * @start: offset in the buffer where the stretch starts
 * @reserved: 0
 *
 * Device memory need not be one stretch of physical memory. A program that
 * wants the whole buffer asks for offset 0, maps what it is told, and goes on
 * at @start + @length until it has the length of the buffer.
 */
struct keel_uapi_dm_map {
	__aligned_u64 mmap_offset;
	__aligned_u64 length;
	__aligned_u64 start;
	__aligned_u64 reserved;
};

/* Objects of keel's own. */
enum keel_objects {
	KEEL_OBJECT_TD = (1U << UVERBS_ID_NS_SHIFT),
};

/*
 * KEEL_METHOD_TD_ALLOC: a new thread domain. Errors: ENOMEM.
 * KEEL_METHOD_TD_FREE: EBUSY while a parent domain uses it.
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
 * KEEL_METHOD_PD_SHARE: make the domain of this PD one that others can join.
 *	Errors: EINVAL when it is shared already, or when this PD is a parent
 *	domain or an instance of a shared one; ENOSPC when the device has given
 *	out every handle it has.
 * KEEL_METHOD_PD_HOLDERS: who holds this PD? See enum keel_attrs_holders.
 * KEEL_METHOD_PD_ALLOC_PARENT: a parent domain. Errors: EINVAL when the PD
 *	below is itself a parent domain; ENOMEM beyond the device's max_pd.
 * KEEL_METHOD_PD_QUERY: struct keel_uapi_pd_info.
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

/* No list of holders is longer; the count is right all the same. */
#define KEEL_UAPI_HOLDERS_MAX	1024

/**
 * enum keel_uapi_holders_flags - of KEEL_ATTR_HOLDERS_FLAGS
 * @KEEL_UAPI_HOLDERS_F_REFUSED: a destroy of the object has come back with
 *	EBUSY. Leaves a keel_destroy_refused trace event, if the core refused it
 *	before keel could.
 */
enum keel_uapi_holders_flags {
	KEEL_UAPI_HOLDERS_F_REFUSED	= 1U << 0,
};

/*
 * The same attributes serve every KEEL_METHOD_*_HOLDERS. The list may be
 * absent; one that is there gets as many entries as fit, and nothing is
 * written behind them.
 */
enum keel_attrs_holders {
	KEEL_ATTR_HOLDERS_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	KEEL_ATTR_HOLDERS_RESP_LIST,	/* out, struct keel_uapi_holder[] */
	KEEL_ATTR_HOLDERS_RESP_COUNT,	/* out, u32: all there are */
	KEEL_ATTR_HOLDERS_FLAGS,	/* in, optional */
};

/*
 * Methods on UVERBS_OBJECT_DM.
 *
 * KEEL_METHOD_DM_QUERY: struct keel_uapi_dm_info.
 * KEEL_METHOD_DM_MAP: struct keel_uapi_dm_map for the stretch that covers an
 *	offset. Errors: EINVAL for an offset beyond the buffer; ENOMEM.
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
};

/*
 * Methods on UVERBS_OBJECT_QP.
 *
 * KEEL_METHOD_QP_DOORBELL: run the send queue, in the error state flush the
 *	receive queue, and wake a sender that waits for a receive. WQEs that
 *	were posted before the call run before it returns, unless another thread
 *	runs the queue already, the peer is not ready, memory is not present, or
 *	they take longer than a tenth of a second: then a kernel thread of the
 *	process goes on. Errors of a work request are reported in its
 *	completion. Errors: ENOENT for a number that is no QP of this context,
 *	or one that has no send queue (XRC_RECV).
 */
enum keel_methods_qp {
	KEEL_METHOD_QP_DOORBELL = (1U << UVERBS_ID_NS_SHIFT),
};

/*
 * The method is keel's, so its attributes can count from 0: the core then needs
 * no memory for the call.
 */
enum keel_attrs_qp_doorbell {
	KEEL_ATTR_QP_DOORBELL_QPN,	/* in, u32 */
};

/*
 * Methods on UVERBS_OBJECT_SRQ.
 *
 * KEEL_METHOD_SRQ_DOORBELL: wake the senders that wait for a receive.
 */
enum keel_methods_srq {
	KEEL_METHOD_SRQ_DOORBELL = (1U << UVERBS_ID_NS_SHIFT),
};

enum keel_attrs_srq_doorbell {
	KEEL_ATTR_SRQ_DOORBELL_SRQ = (1U << UVERBS_ID_NS_SHIFT),
};

/* On UVERBS_METHOD_QUERY_CONTEXT: what ibv_import_device() needs to know. */
enum keel_attrs_query_context {
	KEEL_ATTR_QUERY_CONTEXT_RESP = (1U << UVERBS_ID_NS_SHIFT),
};

#endif /* KEEL_ABI_H */
