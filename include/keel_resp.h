/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Responders: the receiving side of a QP.
 */
#ifndef KEEL_RESP_H
#define KEEL_RESP_H

#include <linux/mutex.h>
#include <rdma/ib_verbs.h>
#include <rdma/keel-abi.h>

#include "keel_copy.h"
#include "keel_keys.h"
#include "keel_memreq.h"
#include "keel_rq.h"
#include "keel_runs.h"
#include "keel_xfer.h"

struct keel_qp;
struct keel_srq;

/* Maximum payload of a datagram: the MTU. */
#define KEEL_UD_MTU	4096

/**
 * struct keel_dgram - datagrams of a UD QP of a user process
 * @pending: @data is a datagram for the receive WQE that was taken, whose memory
 *	may be absent; changes under &keel_resp.lock
 * @fetch: progress of its copy
 * @len: bytes of @data
 * @cqe: its CQE, without the members that come from the receive WQE
 * @solicited: the requester asked for an event
 * @data: GRH and payload
 * @source: copy of a datagram that the QP sends, from which it is delivered to its
 *	receivers; under the lock of the send queue
 * @source_mem: describes @source as memory
 */
struct keel_dgram {
	bool pending;
	struct keel_fetch fetch;
	u32 len;
	struct keel_uapi_cqe cqe;
	bool solicited;
	u8 data[KEEL_GRH_BYTES + KEEL_UD_MTU] __aligned(16);
	u8 source[KEEL_UD_MTU] __aligned(16);
	struct keel_mem source_mem;
};

/**
 * struct keel_resp - the responder of a QP
 * @lock: its holder delivers to the QP
 * @have: @recv is a receive WQE that was taken and is not completed yet
 * @recv: the receive WQE
 * @segs: the responder's segments of the message that is delivered
 * @srq: XRC: the SRQ that @recv came from. Its owner may have destroyed it: used
 *	only while the message or the flush has a reference on it; else only
 *	compared, together with @srq_id
 * @srq_id: its &keel_obj.id
 * @last: IB_EVENT_QP_LAST_WQE_REACHED was raised
 * @from_gen: &keel_qp.gen of the requester whose message began to use @recv
 * @caches: last-lookup caches of the lkeys of the first SGEs: fast path
 * @dgram: UD QPs of user processes; else NULL
 */
struct keel_resp {
	struct mutex lock;
	bool have __guarded_by(&lock);
	bool last __guarded_by(&lock);
	u64 from_gen __guarded_by(&lock);
	struct keel_recv recv __guarded_by(&lock);
	struct keel_segs segs __guarded_by(&lock);
	struct keel_srq *srq __guarded_by(&lock);
	u32 srq_id __guarded_by(&lock);
	struct keel_key_cache caches[KEEL_RUNS_SGES] __guarded_by(&lock);
	struct keel_dgram *dgram;
};

#endif /* KEEL_RESP_H */
