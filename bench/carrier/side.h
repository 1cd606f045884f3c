/* SPDX-License-Identifier: GPL-2.0 */
/* One end of a connection: side.c has its objects, main.c the file that it belongs to. */
#ifndef CARRIER_SIDE_H
#define CARRIER_SIDE_H

#include <linux/mutex.h>
#include <rdma/ib_verbs.h>

#include "carrier.h"

/* Each device of RoCE has it. */
#define CARRIER_PORT	1

/**
 * struct carrier_side - one end of a connection
 * @ib: its device, or NULL
 * @gid_index: its GID there
 * @context: of @cq, enum carrier_context
 * @page: counters that programs map, which the handlers of @cq write
 * @lock: held while posting; protects @up and @sends
 * @up: messages may be posted
 * @sends: sends that were posted
 * @credits: messages that may be posted, as far as @cq has room
 * @began: the QP has receive WQEs, so that it has to be drained
 * @pd: of @qp
 * @cq: completions, which are handled one after the other
 * @thread: CARRIER_THREAD: the thread that does so
 * @qp: the queue pair
 * @send_cqe: completion of CARRIER_BATCH sends
 * @rdma_cqe: completion of an RDMA operation
 * @recv_cqe: completion of a receive WQE
 * @buf: data of all messages
 * @dma: address of @buf for the device, or 0
 * @remote: address of the other side's buffer
 * @rkey: its key
 */
struct carrier_side {
	struct ib_device *ib;
	u32 gid_index;
	u32 context;
	struct carrier_page *page;
	struct mutex lock;
	bool up;
	u32 sends;
	atomic_t credits;
	bool began;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct task_struct *thread;
	struct ib_qp *qp;
	struct ib_cqe send_cqe;
	struct ib_cqe rdma_cqe;
	struct ib_cqe recv_cqe;
	void *buf;
	u64 dma;
	u64 remote;
	u32 rkey;
};

int carrier_begin(struct carrier_side *side);
int carrier_join(struct carrier_side *side, struct carrier_side *peer);
void carrier_end(struct carrier_side *side);
int carrier_post(struct carrier_side *side, const struct carrier_post *what);

#endif
