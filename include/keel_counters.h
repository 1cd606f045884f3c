/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters of a device.
 */
#ifndef KEEL_COUNTERS_H
#define KEEL_COUNTERS_H

#include <linux/percpu.h>
#include <linux/types.h>

/*
 * Counters of a device, as "rdma statistic" names them. One line each: the
 * name and what it counts.
 */
#define KEEL_COUNTERS(X)						\
	X(tx_msgs)	/* messages that went */			\
	X(tx_bytes)	/* their bytes */				\
	X(rx_msgs)	/* messages that took a receive */		\
	X(rx_bytes)	/* their bytes */				\
	X(rdma_writes)	/* RDMA writes served */			\
	X(rdma_reads)	/* RDMA reads served */				\
	X(atomics)	/* atomics served */				\
	X(atomic_writes)	/* atomic writes served */		\
	X(rdma_flushes)	/* flushes of memory served */			\
	X(rnr_waits)	/* times that a queue began to wait for a receive */ \
	X(peer_waits)	/* times that a queue began to wait for a peer */ \
	X(ud_drops)	/* datagrams nobody could take */		\
	X(wc_errors)	/* completions in error, flushes left out */	\
	X(flushes)	/* work requests flushed */			\
	X(cq_overruns)	/* CQs that had no room */

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
