// SPDX-License-Identifier: GPL-2.0
/*
 * All bytes that keys open, as they are and as they should be; and what a key
 * opens.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model.h"

uint8_t *arena;

static uint8_t *arena_want;

/* Bytes that the kernel wrote, which the model takes over after the step. */
static struct {
	struct span span;
} unknown[64];
static int n_unknown;

void bytes_init(void)
{
	struct dice d = dice_of(1, 2);
	int i;

	arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	arena_want = malloc(ARENA);
	if (arena == MAP_FAILED || !arena_want)
		diverge("the model has no memory");
	for (i = 0; i < ARENA; i++)
		arena[i] = dice_roll(&d, 256);
	memcpy(arena_want, arena, ARENA);
}

uint8_t *bytes_at(const struct mem *mem)
{
	if (mem->want)
		return mem->want + mem->off;
	return (mem->dm ? mem->dm->dm.want : arena_want) + mem->off;
}

unsigned int bytes_align(const struct mem *mem)
{
	/* The arena and each buffer start on a page. */
	return mem->off % 8;
}

static bool key_of_mr(const struct obj *o, struct key *key)
{
	*key = (struct key){
		.owner = (struct obj *)o, .domain = o->holds[0]->pd.domain,
		.access = o->mr.access, .iova = o->mr.iova,
		.length = o->mr.length, .mem = o->mr.mem, .odp = o->mr.odp,
	};
	return true;
}

/* An unbound window has a key that opens nothing. */
static bool key_of_mw(const struct obj *o, struct key *key)
{
	*key = (struct key){
		.owner = (struct obj *)o, .domain = o->holds[0]->pd.domain,
	};
	if (o->mw.mr) {
		key->access = o->mw.access;
		key->iova = o->mw.iova;
		key->length = o->mw.length;
		key->mem = o->mw.mem;
		key->qp = o->mw.qp;
		key->odp = o->mw.mr->mr.odp;
	}
	return true;
}

bool key_find(uint32_t num, struct key *key)
{
	static const enum kind kinds[] = { K_MR, K_DM_MR };
	int i, k;

	for (k = 0; k < COUNT(kinds); k++)
		for (i = 0; i < world.n[kinds[k]]; i++)
			if (world.live[kinds[k]][i]->mr.key == num)
				return key_of_mr(world.live[kinds[k]][i], key);
	for (i = 0; i < world.n[K_MW]; i++)
		if (world.live[K_MW][i]->mw.key == num)
			return key_of_mw(world.live[K_MW][i], key);
	return false;
}

int key_check(uint32_t num, const struct obj *domain, unsigned int access,
	      uint64_t addr, uint64_t len, struct key *key)
{
	if (!key_find(num, key))
		return KEELDV_WHY_KEY;
	if (key->domain != domain)
		return KEELDV_WHY_DOMAIN;
	if (access & ~key->access)
		return KEELDV_WHY_ACCESS;
	if (addr < key->iova || addr - key->iova > key->length ||
	    len > key->length - (addr - key->iova))
		return KEELDV_WHY_RANGE;
	return 0;
}

void spans_of_key(struct spans *s, const struct key *key, uint64_t addr,
		  uint32_t len)
{
	struct span *span = &s->at[s->n++];

	span->mem = key->mem;
	span->mem.off += addr - key->iova;
	span->len = len;
	s->len += len;
	s->odp |= key->odp;
}

void spans_of_data(struct spans *s, uint8_t *data, uint32_t len)
{
	*s = (struct spans){ .n = 1, .len = len };
	s->at[0].mem.want = data;
	s->at[0].len = len;
}

int spans_of_sges(struct spans *s, const struct ibv_sge *sge, int n,
		  uint64_t len, const struct obj *domain, unsigned int access)
{
	struct key key;
	uint32_t part;
	int i, why;

	*s = (struct spans){ 0 };
	for (i = 0; i < n && s->len < len; i++) {
		part = sge[i].length;
		if (part > len - s->len)
			part = len - s->len;
		if (!part)
			continue;
		why = key_check(sge[i].lkey, domain, access, sge[i].addr, part,
				&key);
		/* A window has an rkey only. */
		if (!why && key.owner->kind == K_MW)
			why = KEELDV_WHY_KEY;
		if (why)
			return why;
		spans_of_key(s, &key, sge[i].addr, part);
	}
	return 0;
}

static bool overlap(const struct span *a, const struct span *b)
{
	if (a->mem.want || b->mem.want || a->mem.dm != b->mem.dm)
		return false;
	return a->mem.off < b->mem.off + b->len &&
	       b->mem.off < a->mem.off + a->len;
}

/* A message to itself is not defined. */
static bool overlaps(const struct spans *a, const struct spans *b)
{
	int i, j;

	for (i = 0; i < a->n; i++)
		for (j = 0; j < b->n; j++)
			if (overlap(&a->at[i], &b->at[j]))
				return true;
	return false;
}

bool bytes_are_unknown(const struct spans *src)
{
	int i, j;

	for (i = 0; i < src->n; i++)
		for (j = 0; j < n_unknown; j++)
			if (overlap(&src->at[i], &unknown[j].span))
				return true;
	return false;
}

static uint8_t *byte_of(const struct spans *s, uint64_t off, uint64_t *room)
{
	int i;

	for (i = 0; i < s->n; i++) {
		if (off < s->at[i].len) {
			*room = s->at[i].len - off;
			return bytes_at(&s->at[i].mem) + off;
		}
		off -= s->at[i].len;
	}
	*room = 0;
	return NULL;
}

void bytes_copy(const struct spans *dst, uint64_t dst_off,
		const struct spans *src)
{
	uint64_t done = 0, to_room, from_room, n;
	uint8_t *to, *from;

	if (dst->odp || src->odp)
		world.loose = true;
	if (overlaps(dst, src) || bytes_are_unknown(src)) {
		bytes_unknown(dst, dst_off, src->len);
		result->adopted++;
		return;
	}
	while (done < src->len) {
		to = byte_of(dst, dst_off + done, &to_room);
		from = byte_of(src, done, &from_room);
		n = to_room < from_room ? to_room : from_room;
		memcpy(to, from, n);
		done += n;
	}
}

void bytes_unknown(const struct spans *dst, uint64_t off, uint32_t len)
{
	struct span span;
	int i;

	for (i = 0; i < dst->n && len; i++) {
		span = dst->at[i];
		if (off >= span.len) {
			off -= span.len;
			continue;
		}
		span.mem.off += off;
		span.len -= off;
		off = 0;
		if (span.len > len)
			span.len = len;
		len -= span.len;
		if (n_unknown == COUNT(unknown))
			diverge("the model has no room for unknown memory");
		unknown[n_unknown++].span = span;
	}
}

static void read_dm(struct obj *dm, uint64_t off, void *to, uint64_t len)
{
	int ret = ibv_memcpy_from_dm(to, dm->dm.p, off, len);

	if (ret)
		diverge("ibv_memcpy_from_dm() of %lu bytes: got %s, want success",
			(unsigned long)len, errname(ret));
}

static void adopt_unknown(void)
{
	struct span *s;
	int i;

	for (i = 0; i < n_unknown; i++) {
		s = &unknown[i].span;
		if (!s->mem.dm)
			memcpy(arena_want + s->mem.off, arena + s->mem.off,
			       s->len);
		else if (!s->mem.dm->dead)
			read_dm(s->mem.dm, s->mem.off, bytes_at(&s->mem),
				s->len);
	}
}

/* Return true if all is as it should be; else @text says what differs. */
static bool compare(char *text, size_t size)
{
	uint8_t got[16384];
	struct obj *dm;
	uint64_t off;
	int i;

	adopt_unknown();
	if (memcmp(arena, arena_want, ARENA)) {
		for (off = 0; arena[off] == arena_want[off]; off++)
			;
		snprintf(text, size, "memory: byte %lu of the arena: got 0x%02x, want 0x%02x",
			 (unsigned long)off, arena[off], arena_want[off]);
		return false;
	}
	for (i = 0; i < world.n[K_DM]; i++) {
		dm = world.live[K_DM][i];
		if (dm->dead)
			continue;
		read_dm(dm, 0, got, dm->dm.length);
		if (!memcmp(got, dm->dm.want, dm->dm.length))
			continue;
		for (off = 0; got[off] == dm->dm.want[off]; off++)
			;
		snprintf(text, size, "memory: byte %lu of DM %d: got 0x%02x, want 0x%02x",
			 (unsigned long)off, i, got[off], dm->dm.want[off]);
		return false;
	}
	return true;
}

void bytes_compare(void)
{
	char text[200];
	int ms;

	/* Kernel threads may still copy. */
	if (n_unknown && world.loose)
		usleep(20000);
	for (ms = 0; !compare(text, sizeof(text)); ms++) {
		if (ms >= (world.loose ? patience_ms : 200))
			diverge("%s", text);
		usleep(1000);
	}
	n_unknown = 0;
}

void bytes_write(uint64_t off, uint32_t len, struct dice *d)
{
	uint32_t i;

	for (i = off; i < off + len; i++) {
		arena[i] = dice_roll(d, 256);
		arena_want[i] = arena[i];
	}
}
