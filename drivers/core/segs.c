// SPDX-License-Identifier: GPL-2.0
/*
 * Lists of segments, and the end of a copy: helpers of the segment walker.
 */
#include <linux/string.h>
#include <kunit/visibility.h>

#include "keel_aperture.h"
#include "keel_copy.h"

/* Copy at most 8 bytes to an aligned address, each part in one store. */
static void keel_copy_tail(void *to, const void *from, size_t len)
{
	union {
		u64 dword;
		u32 word;
		u16 half;
		u8 byte;
	} v;

	if (len == sizeof(u64)) {
		memcpy(&v, from, sizeof(u64));
		WRITE_ONCE(*(u64 *)to, v.dword);
		return;
	}
	if (len & sizeof(u32)) {
		memcpy(&v, from, sizeof(u32));
		WRITE_ONCE(*(u32 *)to, v.word);
		to += sizeof(u32);
		from += sizeof(u32);
		/* Keep the order of the bytes before the tail. */
		smp_wmb();
	}
	if (len & sizeof(u16)) {
		memcpy(&v, from, sizeof(u16));
		WRITE_ONCE(*(u16 *)to, v.half);
		to += sizeof(u16);
		from += sizeof(u16);
		/* As above. */
		smp_wmb();
	}
	if (len & 1)
		WRITE_ONCE(*(u8 *)to, *(const u8 *)from);
}

/**
 * keel_copy_last() - copy the last bytes of a message
 * @to: destination
 * @from: source
 * @len: bytes
 *
 * Applications poll the last bytes of an RDMA write. So the last aligned 8
 * bytes are stored last, and with one store if the message ends on an 8-byte
 * boundary.
 *
 * Context: any.
 */
void keel_copy_last(void *to, const void *from, size_t len)
{
	size_t tail = (uintptr_t)(to + len) % sizeof(u64) ?: sizeof(u64);

	if (tail > len) {
		memcpy(to, from, len);
		return;
	}
	len -= tail;
	memcpy(to, from, len);
	to += len;
	from += len;
	/* The bytes before the tail must be visible before the tail. */
	smp_wmb();
	keel_copy_tail(to, from, tail);
}

/**
 * keel_segs_may_lack() - check whether memory of a list may be absent
 * @segs: the list
 *
 * If so, a copy from or to it may sleep for the lookup, but does not wait for
 * another process.
 *
 * Context: any.
 * Return: true if the list has ODP memory or a dma-buf.
 */
bool keel_segs_may_lack(const struct keel_segs *segs)
{
	u32 i;

	for (i = 0; i < segs->n; i++)
		if (segs->seg[i].mem->type == KEEL_MEM_ODP ||
		    segs->seg[i].mem->type == KEEL_MEM_DMABUF)
			return true;
	return false;
}

/**
 * keel_segs_may_share() - may several threads copy from or to a list at once?
 * @segs: the list
 *
 * They do so without preemption. So memory that may be absent is none for this, and device
 * memory behind a BAR is not, either: it may be slow, and the slower the more threads read.
 *
 * Context: any.
 * Return: true if so.
 */
bool keel_segs_may_share(const struct keel_segs *segs)
{
	const struct keel_mem *mem;
	u32 i;

	for (i = 0; i < segs->n; i++) {
		mem = segs->seg[i].mem;
		if (mem->type == KEEL_MEM_DM && mem->ap->ops->atomic)
			return false;
	}
	return !keel_segs_may_lack(segs);
}
EXPORT_SYMBOL_IF_KUNIT(keel_segs_may_share);

/**
 * keel_segs_dead() - check whether a key of a list was invalidated
 * @seg: segments; the caller has references on their keys
 * @n: number of segments
 *
 * Checks all segments, even those that are already copied or not needed: the
 * thread that invalidates a key waits until keel_segs_put() of the whole list.
 *
 * Context: any.
 * Return: true if a key was invalidated.
 */
bool keel_segs_dead(const struct keel_seg *seg, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++)
		if (seg[i].key && READ_ONCE(seg[i].key->dead))
			return true;
	return false;
}

/**
 * keel_segs_put() - drop the references of a list
 * @segs: the list; empty afterwards
 *
 * Context: any.
 */
void keel_segs_put(struct keel_segs *segs)
{
	u32 i;

	for (i = 0; i < segs->n; i++)
		if (segs->seg[i].key)
			keel_key_put(segs->seg[i].key);
	segs->n = 0;
	segs->len = 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_segs_put);
