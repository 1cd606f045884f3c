/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The objects, rings and memory that the calls of an input have created. Threads
 * share them without locks: a stale value is only another input.
 */
#ifndef WORLD_H
#define WORLD_H

#include "fuzz.h"

enum kind {
	K_PD, K_TD, K_SHPD, K_DM, K_MR, K_MW, K_AH, K_XRCD, K_CHAN, K_CQ, K_SRQ,
	K_QP, KINDS,
};

/* A ring in the memory of the fuzzer. */
struct ring {
	struct keel_uapi_ring *head;
	uint32_t entries;
	uint32_t stride;
};

struct obj {
	bool live;
	uint32_t handle;
	uint32_t domain;	/* number of the protection domain */
	uint32_t num;		/* QPN, SRQN, lkey, rkey of a window, number of an AH */
	uint32_t access;	/* MR */
	uint64_t addr, len;	/* MR: range of its key; DM: size; SHPD: key */
	uint8_t type;		/* QP, SRQ, MW, PD */
	struct ring ring;	/* CQ, SRQ, send queue */
	struct ring rq;
	struct obj *cq, *rcq, *srq, *peer, *ah;
	bool failed;		/* QP: a completion reported an error */
	bool all_signaled;	/* QP */
};

#define SLOTS		16
#define DATA_PAGES	64
#define RING_BYTES	16384
#define RINGS		64
#define MAPS		8

/* First number of a reference that may name a dead object. */
#define STALE		0xf8

struct world {
	struct obj objs[KINDS][SLOTS];
	atomic_uint next[KINDS];
	atomic_uint rings;
	void *maps[MAPS];
	size_t map_len[MAPS];
	atomic_uint n_maps;
	int async_fd;		/* 0 if there is none */
	atomic_int waiting;	/* signaled work requests without a completion */
};

extern struct world w;
extern uint8_t *data_area;

void world_init(void);
/* Start and end an input. */
void world_open(void);
void world_close(void);
/* Give a child a context of its own. It may join shared domains. */
void world_of_child(void);
/* Get one more context; use it from now on, or close it. */
void world_reopen(bool by_write, bool use);

/* Remember a new object of a protection domain, or of none: 0. */
struct obj *obj_add(enum kind kind, uint32_t handle, uint32_t domain);
/* Return an object, or NULL if there is none of this kind. */
struct obj *obj_pick(enum kind kind, uint8_t sel);
/* Return an object, which is created first if there is none. */
struct obj *obj_need(enum kind kind, uint8_t sel);
/* Return an MR of a domain with these rights, or NULL. */
struct obj *mr_pick(uint32_t domain, uint32_t access, uint8_t sel);

/* The same; registers an MR of all these rights if there is none. */
struct obj *mr_need(uint32_t domain, uint32_t access, uint8_t sel);

bool ring_new(struct ring *ring, uint32_t entries, uint32_t stride);
/*
 * Copy a ring of an object, which another thread may replace. Return false if
 * there is none.
 */
bool ring_read(const struct ring *from, struct ring *ring);
struct keel_uapi_buf ring_buf(const struct ring *ring);

/* Remember a mapping of the file; unmap it, or only the first page of it. */
void map_add(void *p, size_t len);
void map_drop(unsigned int index, bool one_page);

/* The GIDs of the port: IPv6 first, and IPv4. */
#define GIDS		4
extern uint8_t gids[GIDS][16];
extern int n_gids;

/* handles.c */
struct obj *ah_new(struct obj *pd, const uint8_t *to, uint8_t from);
void obj_destroy(enum kind kind, struct obj *obj, bool by_ioctl);

/* queues.c */
struct obj *cq_new(uint8_t size, uint8_t how, struct obj *chan);

/* qp.c */
/* Connect a QP to its peer, or connect it once more after an error. */
void qp_connect(struct obj *qp, const uint8_t *a);

/* post.c */
void cq_drain(void);

/* Data: page @page of @pages, inside of the data area. */
static inline uint64_t data_at(uint8_t page)
{
	return (uintptr_t)data_area + page % DATA_PAGES * PAGE;
}

static inline uint64_t data_len(uint8_t page, uint8_t pages)
{
	return (pages % (DATA_PAGES - page % DATA_PAGES) + 1) * PAGE;
}

#endif /* WORLD_H */
