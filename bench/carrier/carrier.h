/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The ioctls of /dev/keel_carrier. An open file has two sides, 0 and 1, each with a QP of its own
 * device. Page 0 of a mapping has the counters of side 0, page 1 those of side 1.
 */
#ifndef CARRIER_H
#define CARRIER_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* The most bytes of a message, and the most messages of a side that have not completed. */
#define CARRIER_BYTES	0x100000U
#define CARRIER_DEPTH	128U
/* Only so many sends have a completion together. */
#define CARRIER_BATCH	32U

#define CARRIER_NAME	64

struct carrier_device {
	char name[CARRIER_NAME];
	__u32 gid_index;
};

/* The context of handlers of completions: a thread with real-time priority, as in keel; a softirq. */
enum carrier_context {
	CARRIER_THREAD,
	CARRIER_SOFTIRQ,
	CARRIER_CONTEXTS,
};

/* Connect the sides. */
struct carrier_connect {
	struct carrier_device devices[2];
	__u32 context;
};

enum carrier_op {
	CARRIER_SEND,
	CARRIER_WRITE,
	CARRIER_READ,
};

/* Post a message from one side to the other one. EAGAIN: CARRIER_DEPTH have not completed. */
struct carrier_post {
	__u32 side;
	__u32 op;
	__u32 bytes;
};

/**
 * struct carrier_page - counters of a side since it is connected
 * @received: sends of the other side that have arrived
 * @sent: messages of this side that have completed
 * @failed: status of the first completion with an error, or 0
 */
struct carrier_page {
	__u64 received;
	__u64 sent;
	__u64 failed;
};

#define CARRIER_IOC_CONNECT	_IOW(0xb9, 0, struct carrier_connect)
#define CARRIER_IOC_POST	_IOW(0xb9, 1, struct carrier_post)

#endif
