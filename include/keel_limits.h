/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How many objects a device can have.
 */
#ifndef KEEL_LIMITS_H
#define KEEL_LIMITS_H

#include <linux/types.h>

struct ib_device_attr;

void keel_limits_init(u64 *limit);
void keel_limits_query(const u64 *limit, struct ib_device_attr *attr);

#if IS_ENABLED(CONFIG_KUNIT)
u32 keel_limit_scale(u32 usual, u64 ram);
#endif

#endif /* KEEL_LIMITS_H */
