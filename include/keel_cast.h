/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Multicast to and from other hosts. A lower device of RoCE v2 carries each datagram in one
 * packet to the group: there is no link, and no answer. A device of keel has one QP of a lower
 * device for all groups. Only the work of struct keel_cast makes, uses and destroys it.
 *
 * &keel_cast.lock is inside of &keel_mcasts.lock.
 */
#ifndef KEEL_CAST_H
#define KEEL_CAST_H

#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "compat.h"
#include "keel_frame.h"
#include "keel_wire.h"

struct keel_cast_qp;
struct keel_dev;
struct keel_user;
struct seq_file;

/* Datagrams that wait, or that the lower device sends. */
#define KEEL_CAST_SENDS		64
/* Buffers to receive. */
#define KEEL_CAST_RECVS		64
/* A datagram is one packet: most bytes of its data, with the largest MTU of RoCE. */
#define KEEL_CAST_DATA		(SZ_4K - sizeof(struct keel_frame))

static_assert(KEEL_CAST_DATA <= KEEL_FRAME_DATA);

/**
 * struct keel_cast_group - a group that QPs of a device are attached to
 * @node: in a list of struct keel_cast, unless the work changes its state just now
 * @cast: the device
 * @gid: its address
 * @wanted: it has members; under &keel_cast.lock. Else the work frees it.
 * @attached: the QP is attached to it; only the work changes it
 */
struct keel_cast_group {
	struct list_head node;
	struct keel_cast *cast;
	union ib_gid gid;
	bool wanted;
	bool attached;
};

/**
 * struct keel_cast - multicast of a device to and from other hosts
 * @work: all that may sleep
 * @again: queues @work later
 * @hurry: the devices have changed: look for a lower device at once
 * @retry: look for one not before, jiffies; only for @work
 * @check: when to look whether @qp is still that of the right one, jiffies; only for @work
 * @used: when a datagram was sent last, jiffies
 * @cookie: &keel_frame.cookie of the datagrams that this device sends
 * @lock: protects the members below
 * @on: other hosts may be reached
 * @qp: QP of a lower device, or NULL; only @work changes it
 * @todo: struct keel_cast_group: those whose state is to change, the oldest first
 * @groups: those to which @qp is attached
 * @failed: those to which it cannot be attached
 * @msgs: struct keel_cast_msg: all of them
 * @nmsgs: their number
 * @queue: those that @work is to send, the oldest first
 */
struct keel_cast {
	struct work_struct work;
	struct delayed_work again;
	bool hurry;
	unsigned long retry;
	unsigned long check;
	unsigned long used;
	__le64 cookie;
	spinlock_t lock;
	bool on __guarded_by(&lock);
	struct keel_cast_qp *qp;
	struct list_head todo __guarded_by(&lock);
	struct list_head groups __guarded_by(&lock);
	struct list_head failed __guarded_by(&lock);
	struct list_head msgs __guarded_by(&lock);
	u32 nmsgs __guarded_by(&lock);
	struct list_head queue __guarded_by(&lock);
};

/**
 * struct keel_cast_msg - a datagram to a group
 * @node: in &keel_cast.msgs
 * @waits: in &keel_cast.queue
 * @cqe: for the completion
 * @cast: the device
 * @user: whose it is, or NULL: the kernel. It may be gone: nobody follows the pointer.
 * @ends: the source GID, and the group
 * @sl: service level
 * @ah: the address, or NULL
 * @dma: address of @frame for the lower device, or 0
 * @len: bytes of @data
 * @frame: its header
 * @data: its data
 */
struct keel_cast_msg {
	struct list_head node;
	struct list_head waits;
	struct ib_cqe cqe;
	struct keel_cast *cast;
	const struct keel_user *user;
	struct keel_ends ends;
	u8 sl;
	struct ib_ah *ah;
	u64 dma;
	u32 len;
	struct keel_frame frame;
	u8 data[];
};

static_assert(offsetof(struct keel_cast_msg, data) ==
	      offsetofend(struct keel_cast_msg, frame));

/* cast.c */
void keel_cast_init(struct keel_cast *cast, work_func_t run);
void keel_cast_start(struct keel_cast *cast);
void keel_cast_stop(struct keel_cast *cast);
void keel_cast_flush(struct keel_cast *cast);
void keel_cast_hurry(struct keel_cast *cast);
void keel_cast_run(struct keel_cast *cast);
void keel_cast_later(struct keel_cast *cast, unsigned long delay);
struct keel_cast_group *keel_cast_group_new(struct keel_cast *cast, const union ib_gid *gid,
					    gfp_t gfp);
void keel_cast_join(struct keel_cast_group *group);
void keel_cast_leave(struct keel_cast_group *group);
struct keel_cast_msg *keel_cast_msg_new(struct keel_cast *cast, const struct keel_user *user,
					u32 len, gfp_t gfp);
void keel_cast_msg_send(struct keel_cast_msg *msg);
void keel_cast_msg_free(struct keel_cast_msg *msg);
void keel_cast_msg_drop(struct keel_cast_msg *msg);

/* cast_qp.c */
struct keel_cast_qp *keel_cast_qp_new(struct keel_cast *cast, struct keel_lower *lower,
				      u32 port);
void keel_cast_qp_destroy(struct keel_cast_qp *cqp);
bool keel_cast_qp_is_broken(const struct keel_cast_qp *cqp);
bool keel_cast_qp_is_at(const struct keel_cast_qp *cqp, const struct keel_lower *lower,
			u32 port);
const char *keel_cast_qp_device(const struct keel_cast_qp *cqp);
int keel_cast_qp_attach(struct keel_cast_qp *cqp, struct keel_cast_group *group);
void keel_cast_qp_detach(struct keel_cast_qp *cqp, struct keel_cast_group *group);
int keel_cast_qp_send(struct keel_cast_qp *cqp, struct keel_cast_msg *msg,
		      const struct ib_gid_attr *attr);

/* cast_work.c */
void keel_cast_work(struct work_struct *work);
void keel_cast_show(struct seq_file *m, struct keel_cast *cast);

/* state.c */
void keel_wire_run(struct work_struct *work);
void keel_wire_later(struct delayed_work *work, unsigned long delay);
void keel_wire_group(struct keel_dev *kdev, const struct keel_ends *ends,
		     const struct keel_frame *frame, const void *data);

/* lower.c */
void keel_homes_hurry(void);

/* frame.c */
bool keel_frame_is_group(const struct keel_frame *frame, u32 bytes);

#endif /* KEEL_CAST_H */
