/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KEEL_RUN_QUEUE_H
#define KEEL_RUN_QUEUE_H

#include <linux/virtio_ring.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* The guest's memory as it is mapped here. One region is all UML has. */
struct guest_memory {
	uint64_t guest_start;
	uint64_t user_start;
	uint64_t size;
	unsigned char *map;	/* the host's address of guest_start */
};

/*
 * The device's side of a split virtqueue. When queue_ready() is true it belongs to
 * one thread.
 */
struct queue {
	const struct guest_memory *memory;
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
	unsigned int num;
	uint16_t next;		/* of avail->ring, to be taken */
	uint16_t done;		/* used->idx as it will be published */
	int kick, call;		/* event descriptors, or -1 */
	bool enabled;
};

/* A chain of descriptors that the guest made available */
struct queue_chain {
	uint16_t head;
	unsigned int count;	/* of iov */
	size_t bytes;
	struct iovec iov[64];
};

void *memory_at(const struct guest_memory *memory, uint64_t guest, uint64_t len);
void *memory_at_user(const struct guest_memory *memory, uint64_t user,
		     uint64_t len);

void queue_init(struct queue *ring, const struct guest_memory *memory);
int queue_set_addr(struct queue *ring, uint64_t desc, uint64_t avail,
		   uint64_t used);
bool queue_ready(const struct queue *ring);
int queue_peek(struct queue *ring, unsigned int ahead,
	       struct queue_chain *chain);
void queue_put(struct queue *ring, uint16_t head, uint32_t written);
void queue_notify(struct queue *ring);
void queue_wait(const struct queue *ring);

#endif
