// SPDX-License-Identifier: GPL-2.0
/*
 * Lists of segments and the end of a copy: what the walker needs besides itself.
 */
#include <linux/string.h>
#include <kunit/visibility.h>

#include "keel_copy.h"

/* Up to 8 bytes to where a word begins, each piece in one store. */
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
		/* In order, as the bytes before the tail. */
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
 * @to: where to
 * @from: where from
 * @len: bytes
 *
 * Userspace polls the end of what an RDMA write brings. So the last aligned word
 * is stored last, in one go where the message ends on a word.
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
	/* The bytes before it are seen before it is. */
	smp_wmb();
	keel_copy_tail(to, from, tail);
}

/**
 * keel_segs_may_lack() - may memory of a list be absent?
 * @segs: the list
 *
 * To copy from or to it may sleep, then, for what it has to look at; it waits for
 * nobody.
 *
 * Context: any.
 * Return: true if so: on demand, or of a dma-buf.
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
 * keel_segs_dead() - was a key taken back meanwhile?
 * @seg: segments, whose keys the caller has
 * @n: how many
 *
 * Any of them counts, be it done with or not needed at all: whoever took it
 * back waits until the whole list is let go of.
 *
 * Context: any.
 * Return: whether one was.
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
 * keel_segs_put() - let go of what a list uses
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
