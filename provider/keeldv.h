/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Queries and calls beyond the common verbs: see keeldv(7).
 * Link with -lkeel -libverbs.
 *
 * Every call that returns int returns 0, or the value of errno. It returns
 * EINVAL if an argument is NULL, and EOPNOTSUPP if an object is not of a keel
 * device.
 */
#ifndef INFINIBAND_KEELDV_H
#define INFINIBAND_KEELDV_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of objects that keel tracks. */
enum keeldv_kind {
	KEELDV_KIND_DOMAIN	= 1,
	KEELDV_KIND_PD		= 2,
	KEELDV_KIND_PARENT	= 3,	/* parent domain */
	KEELDV_KIND_TD		= 4,
	KEELDV_KIND_XRCD	= 5,
	KEELDV_KIND_SHPD	= 6,	/* shared-PD handle */
	KEELDV_KIND_DM		= 7,
	KEELDV_KIND_MR		= 8,
	KEELDV_KIND_DM_MR	= 9,
	KEELDV_KIND_MW		= 10,
	KEELDV_KIND_AH		= 11,
	KEELDV_KIND_CQ		= 12,
	KEELDV_KIND_SRQ		= 13,
	KEELDV_KIND_QP		= 14,
};

/* Upper 32 bits of the resource_type that parent domain allocators get. */
#define KEELDV_DRIVER_ID	0x6b65656c

/* Lower 32 bits of resource_type. */
enum keeldv_res {
	KEELDV_RES_CQ		= 1,	/* ring of a completion queue */
	KEELDV_RES_SQ		= 2,	/* ring of a send queue */
	KEELDV_RES_RQ		= 3,	/* ring of a receive queue */
	KEELDV_RES_SRQ		= 4,	/* ring of a shared receive queue */
};

/* Vendor errors: vendor_err of a completion. */
enum keeldv_why {
	KEELDV_WHY_NONE		= 0,
	KEELDV_WHY_OPCODE	= 1,
	KEELDV_WHY_SGES		= 2,
	KEELDV_WHY_LENGTH	= 3,
	KEELDV_WHY_KEY		= 4,
	KEELDV_WHY_DOMAIN	= 5,
	KEELDV_WHY_ACCESS	= 6,
	KEELDV_WHY_RANGE	= 7,
	KEELDV_WHY_FAULT	= 8,
	KEELDV_WHY_AH		= 9,
	KEELDV_WHY_PEER		= 10,
	KEELDV_WHY_NOT_READY	= 11,
	KEELDV_WHY_QP_ACCESS	= 12,
	KEELDV_WHY_DEPTH	= 13,
	KEELDV_WHY_ALIGN	= 14,
	KEELDV_WHY_SRQ		= 15,
	KEELDV_WHY_WINDOW	= 16,
	KEELDV_WHY_FLUSH	= 17,
	KEELDV_WHY_RING		= 18,
	KEELDV_WHY_PLACEMENT	= 19,
	KEELDV_WHY_RESERVED	= 20,
	KEELDV_WHY_PSN		= 21,
};

/* Kinds of PDs. */
enum keeldv_pd_kind {
	KEELDV_PD_PLAIN		= 0,	/* from ibv_alloc_pd() */
	KEELDV_PD_PARENT	= 1,	/* from ibv_alloc_parent_domain() */
	KEELDV_PD_SHARED	= 2,	/* from ibv_share_pd() */
};

/**
 * struct keeldv_pd_attr - properties of a PD
 * @domain: number of the domain that keys of this PD are checked against. A PD,
 *	its parent domains and all instances of its domain have the same number.
 * @kind: kind of the PD
 */
struct keeldv_pd_attr {
	uint32_t domain;
	enum keeldv_pd_kind kind;
};

/**
 * struct keeldv_dm_attr - location of a device memory buffer
 * @start: offset of its first byte from the start of device memory
 * @length: usable bytes, as requested
 */
struct keeldv_dm_attr {
	uint64_t start;
	uint64_t length;
};

/**
 * struct keeldv_holder - one object that keeps another one alive
 * @kind: kind of the holder
 * @id: number of the holder, as in debugfs
 * @pid: process that created the holder, in the PID namespace of the caller;
 *	0 if it is not visible there
 * @reserved: 0
 * @comm: command name of that process, null-terminated
 */
struct keeldv_holder {
	enum keeldv_kind kind;
	uint32_t id;
	uint32_t pid;
	uint32_t reserved;
	char comm[16];
};

/**
 * keeldv_is_supported - check for a keel device
 * @device: from ibv_get_device_list(), or the device of a context
 */
bool keeldv_is_supported(struct ibv_device *device);

/**
 * keeldv_query_pd - query the domain of a PD
 * @pd: any PD
 * @attr: filled in
 */
int keeldv_query_pd(struct ibv_pd *pd, struct keeldv_pd_attr *attr);

/**
 * keeldv_query_dm - query the location of a device memory buffer
 * @dm: any DM
 * @attr: filled in
 */
int keeldv_query_dm(struct ibv_dm *dm, struct keeldv_dm_attr *attr);

/**
 * keeldv_dm_map - map a device memory buffer
 * @dm: any DM
 *
 * Returns a pointer to the whole buffer, for loads and stores of any size, or
 * NULL and sets errno. Every call for @dm returns the same pointer. It is valid
 * until ibv_free_dm() or ibv_unimport_dm() succeeds.
 */
void *keeldv_dm_map(struct ibv_dm *dm);

/**
 * struct keeldv_post - send work requests for one queue pair
 * @qp: the queue pair
 * @wr: list of work requests, as for ibv_post_send()
 * @bad_wr: filled in if @ret is not 0: the first work request that was not posted
 * @ret: filled in: the result, as that of ibv_post_send()
 */
struct keeldv_post {
	struct ibv_qp *qp;
	struct ibv_send_wr *wr;
	struct ibv_send_wr *bad_wr;
	int ret;
};

/**
 * keeldv_post_sends - post send work requests to several queue pairs
 * @posts: @qp and @wr of each; the other members are filled in
 * @n: number of @posts
 *
 * Posts each list as ibv_post_send() does. A list that fails does not prevent the others.
 * One system call rings the doorbells of up to 64 posts to queue pairs of one context that
 * follow each other in @posts.
 *
 * Returns 0, or the first @ret that is not 0.
 */
int keeldv_post_sends(struct keeldv_post *posts, unsigned int n);

/* The longest time of keeldv_poll_sends(), us. */
#define KEELDV_POLL_SENDS_MAX		1000000

/**
 * keeldv_poll_sends - let a kernel thread look for posted send work requests
 * @context: a context of a keel device
 * @usec: how long it looks after the last one; at most KEELDV_POLL_SENDS_MAX; 0: not at all
 *
 * Posting then needs no system call, as long as the pauses are shorter. The thread belongs
 * to the process, and uses a processor meanwhile. See the manual page for when it helps.
 *
 * Returns 0; EINVAL; EOPNOTSUPP if @context does not belong to a keel device, or if the
 * kernel or the module does not support it; ENOMEM or EAGAIN if the process cannot have
 * the thread.
 */
int keeldv_poll_sends(struct ibv_context *context, uint32_t usec);

/**
 * keeldv_pd_holders - list objects that make ibv_dealloc_pd() return EBUSY
 * @pd: any PD
 * @list: filled in, the rest zeroed; may be NULL if *@count is 0
 * @count: in: room in @list. out: number of all holders, which may be larger
 *
 * keeldv_td_holders() and keeldv_dm_holders() do the same for
 * ibv_dealloc_td() and ibv_free_dm().
 */
int keeldv_pd_holders(struct ibv_pd *pd, struct keeldv_holder *list,
		      uint32_t *count);
int keeldv_td_holders(struct ibv_td *td, struct keeldv_holder *list,
		      uint32_t *count);
int keeldv_dm_holders(struct ibv_dm *dm, struct keeldv_holder *list,
		      uint32_t *count);

/**
 * keeldv_kind_str - return the name of a kind of object
 * @kind: any value
 *
 * Returns "unknown" if @kind is not in enum keeldv_kind.
 */
const char *keeldv_kind_str(enum keeldv_kind kind);

/**
 * keeldv_why_str - describe the vendor error of a completion
 * @vendor_err: from ibv_wc.vendor_err or ibv_wc_read_vendor_err()
 *
 * Returns "unknown" if @vendor_err is not in enum keeldv_why.
 */
const char *keeldv_why_str(uint32_t vendor_err);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_KEELDV_H */
