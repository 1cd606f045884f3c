/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters of a device.
 */
#ifndef KEEL_COUNTERS_H
#define KEEL_COUNTERS_H

#include <linux/percpu.h>
#include <linux/types.h>

/*
 * Counters of a device, as "rdma statistic" names them. One per line: its name and
 * what it counts.
 */
#define KEEL_COUNTERS(X)						\
	X(tx_msgs)	/* work requests that succeeded */		\
	X(tx_bytes)	/* their bytes */				\
	X(rx_msgs)	/* messages that used a receive WQE */		\
	X(rx_bytes)	/* their bytes */				\
	X(rdma_writes)	/* RDMA writes served */			\
	X(rdma_reads)	/* RDMA reads served */				\
	X(atomics)	/* atomic operations served */			\
	X(atomic_writes)	/* atomic writes served */		\
	X(rdma_flushes)	/* RDMA flushes served */			\
	X(rnr_waits)	/* waits of a send queue for a receive WQE */	\
	X(peer_waits)	/* waits of a send queue for a peer */		\
	X(ud_drops)	/* datagrams dropped */				\
	X(wc_errors)	/* error completions, without flushes */	\
	X(flushes)	/* work requests flushed */			\
	X(cq_overruns)	/* CQs that overran */				\
	X(fast_msgs)	/* work requests that took the fast path */	\
	X(big_msgs)	/* big messages that workers ended */		\
	X(shared_msgs)	/* of which helpers copied a part */		\
	X(sq_polls)	/* how often workers began to poll a queue */	\
	X(far_packets)	/* packets sent to other hosts, without answers */	\
	X(far_resends)	/* how often such packets were sent again */	\
	X(far_served)	/* packets of other hosts executed */

enum keel_counter {
#define KEEL_COUNTER_ENUM(_name)	KEEL_CTR_##_name,
	KEEL_COUNTERS(KEEL_COUNTER_ENUM)
#undef KEEL_COUNTER_ENUM
	KEEL_NCOUNTERS,
};

struct keel_counters {
	u64 n[KEEL_NCOUNTERS];
};

/* counters.c */
#define keel_count(_kdev, _name, _by)					\
	this_cpu_add((_kdev)->counters->n[KEEL_CTR_##_name], _by)

#endif /* KEEL_COUNTERS_H */
