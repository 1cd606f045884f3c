// SPDX-License-Identifier: GPL-2.0
/*
 * Split virtqueues in the memory of the guest, as the device sees them. Every
 * address and index of the guest's is copied once and checked before use.
 */
#include <errno.h>
#include <unistd.h>

#include "queue.h"

/**
 * memory_at() - find guest memory by its physical address
 * @memory: the mapped memory
 * @guest: physical address in the guest
 * @len: bytes that must be there
 *
 * Return: where it is mapped, or NULL if any byte is outside.
 */
void *memory_at(const struct guest_memory *memory, uint64_t guest, uint64_t len)
{
	uint64_t offset = guest - memory->guest_start;

	if (guest < memory->guest_start || offset > memory->size ||
	    len > memory->size - offset)
		return NULL;
	return memory->map + offset;
}

/**
 * memory_at_user() - find guest memory by the address vhost-user calls "user"
 * @memory: the mapped memory
 * @user: address in the front end's address space
 * @len: bytes that must be there
 *
 * Return: where it is mapped, or NULL if any byte is outside.
 */
void *memory_at_user(const struct guest_memory *memory, uint64_t user,
		     uint64_t len)
{
	if (user < memory->user_start)
		return NULL;
	return memory_at(memory, memory->guest_start +
			 (user - memory->user_start), len);
}

/**
 * queue_init() - make a queue that the guest has not set up yet
 * @ring: the queue
 * @memory: where its rings will be
 */
void queue_init(struct queue *ring, const struct guest_memory *memory)
{
	*ring = (struct queue) { .memory = memory, .kick = -1, .call = -1 };
}

/**
 * queue_set_addr() - place the three parts of a queue
 * @ring: the queue, whose num is set
 * @desc: user address of the descriptor table
 * @avail: user address of the available ring
 * @used: user address of the used ring
 *
 * Return: 0, or -EINVAL if a part is outside the guest's memory.
 */
int queue_set_addr(struct queue *ring, uint64_t desc, uint64_t avail,
		   uint64_t used)
{
	const struct guest_memory *memory = ring->memory;
	unsigned int num = ring->num;

	ring->desc = memory_at_user(memory, desc, num * sizeof(*ring->desc));
	ring->avail = memory_at_user(memory, avail, sizeof(*ring->avail) +
				     num * sizeof(ring->avail->ring[0]));
	ring->used = memory_at_user(memory, used, sizeof(*ring->used) +
				    num * sizeof(ring->used->ring[0]));
	if (!num || !ring->desc || !ring->avail || !ring->used)
		return -EINVAL;
	return 0;
}

/**
 * queue_ready() - tell whether the guest has set the queue up
 * @ring: the queue
 *
 * Return: true if the device may use it.
 */
bool queue_ready(const struct queue *ring)
{
	return ring->enabled && ring->desc && ring->avail && ring->used &&
	       ring->kick >= 0;
}

static int chain_add(const struct queue *ring, struct queue_chain *chain,
		     uint64_t addr, uint32_t len)
{
	void *base = memory_at(ring->memory, addr, len);

	if (!base || chain->count == sizeof(chain->iov) / sizeof(chain->iov[0]))
		return -EINVAL;
	chain->iov[chain->count].iov_base = base;
	chain->iov[chain->count].iov_len = len;
	chain->count++;
	chain->bytes += len;
	return 0;
}

/**
 * queue_peek() - read a chain that the guest made available
 * @ring: the queue
 * @ahead: how many available chains to skip
 * @chain: filled in; the chain stays available until queue_put()
 *
 * Return: 1 if there is one, 0 if not, -EINVAL if the guest broke the rules.
 */
int queue_peek(struct queue *ring, unsigned int ahead, struct queue_chain *chain)
{
	uint16_t idx = __atomic_load_n(&ring->avail->idx, __ATOMIC_ACQUIRE);
	uint16_t left = idx - ring->next;
	uint16_t i, flags;

	if (left > ring->num)
		return -EINVAL;
	if (ahead >= left)
		return 0;
	i = ring->avail->ring[(uint16_t)(ring->next + ahead) % ring->num];
	chain->head = i;
	chain->count = 0;
	chain->bytes = 0;
	do {
		struct vring_desc desc;

		if (i >= ring->num)
			return -EINVAL;
		desc = *(volatile struct vring_desc *)&ring->desc[i];
		if (chain_add(ring, chain, desc.addr, desc.len))
			return -EINVAL;
		flags = desc.flags;
		i = desc.next;
	} while (flags & VRING_DESC_F_NEXT);
	return 1;
}

/**
 * queue_put() - give the oldest available chain back to the guest
 * @ring: the queue
 * @head: of the chain, from queue_peek()
 * @written: bytes that the device wrote into it
 */
void queue_put(struct queue *ring, uint16_t head, uint32_t written)
{
	struct vring_used_elem *elem = &ring->used->ring[ring->done % ring->num];

	elem->id = head;
	elem->len = written;
	ring->next++;
	ring->done++;
	__atomic_store_n(&ring->used->idx, ring->done, __ATOMIC_RELEASE);
}

/**
 * queue_notify() - interrupt the guest, unless it asked not to be
 * @ring: the queue in which chains were put
 */
void queue_notify(struct queue *ring)
{
	const uint64_t one = 1;
	uint16_t flags;

	/* The guest must see used->idx before its flags are read. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	flags = __atomic_load_n(&ring->avail->flags, __ATOMIC_RELAXED);
	if (flags & VRING_AVAIL_F_NO_INTERRUPT || ring->call < 0)
		return;
	while (write(ring->call, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/**
 * queue_wait() - wait until the guest kicks the queue
 * @ring: the queue
 */
void queue_wait(const struct queue *ring)
{
	uint64_t n;

	while (read(ring->kick, &n, sizeof(n)) < 0 && errno == EINTR)
		;
}
