// SPDX-License-Identifier: GPL-2.0
/*
 * Counters: "rdma statistic show link keel0/1". Each CPU has its own set of
 * counters; a query adds them up.
 */
#include "keel.h"

static const struct rdma_stat_desc keel_counter_descs[] = {
#define KEEL_COUNTER_DESC(_name)	{ .name = #_name },
	KEEL_COUNTERS(KEEL_COUNTER_DESC)
#undef KEEL_COUNTER_DESC
};

static struct rdma_hw_stats *keel_alloc_port_stats(struct ib_device *ibdev,
						   u32 port)
{
	return rdma_alloc_hw_stats_struct(keel_counter_descs, KEEL_NCOUNTERS,
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

static int keel_get_hw_stats(struct ib_device *ibdev,
			     struct rdma_hw_stats *stats, u32 port, int index)
{
	struct keel_counters __percpu *all = to_kdev(ibdev)->counters;
	int n, cpu;

	/* All counters belong to the port; without alloc_hw_device_stats, no other. */
	for (n = 0; n < KEEL_NCOUNTERS; n++) {
		stats->value[n] = 0;
		for_each_possible_cpu(cpu)
			stats->value[n] += READ_ONCE(per_cpu_ptr(all, cpu)->n[n]);
	}
	return KEEL_NCOUNTERS;
}

const struct ib_device_ops keel_counters_ops = {
	.alloc_hw_port_stats = keel_alloc_port_stats,
	.get_hw_stats = keel_get_hw_stats,
};
