/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Numbers of the one object type that the device keel_floor has. */
#ifndef FLOOR_H
#define FLOOR_H

#include <rdma/ib_user_ioctl_cmds.h>

enum {
	KEEL_FLOOR_OBJECT = (1U << UVERBS_ID_NS_SHIFT),
};

enum {
	KEEL_FLOOR_METHOD_MAKE = (1U << UVERBS_ID_NS_SHIFT),
	KEEL_FLOOR_METHOD_DROP,
};

/* Of both methods. */
enum {
	KEEL_FLOOR_ATTR_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
};

#endif
