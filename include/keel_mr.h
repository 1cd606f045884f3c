/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory regions and windows, as the queues see them.
 */
#ifndef KEEL_MR_H
#define KEEL_MR_H

#include "keel.h"
#include "keel_walk.h"

/**
 * struct keel_pages - pinned pages of a program
 * @ref: regions that use them; ibv_rereg_mr() may leave the memory alone
 * @umem: keeps them pinned
 * @page: the pages, one after the other
 */
struct keel_pages {
	refcount_t ref;
	struct ib_umem *umem;
	struct page *page[];
};

/**
 * struct keel_mr - a memory region
 * @obj: the object; holds the PD, and the buffer if it is of device memory
 * @key: its lkey and rkey, which are one
 * @keys: the table that @key is in
 * @mem: its memory
 * @pages: PAGES of a program, or NULL
 * @dm: DM: the buffer, or NULL
 * @start: address in the program, for ibv_rereg_mr()
 * @bound: windows that are bound to it; -1: it is going, none can be bound
 * @list: fast registration: room for so many pages in @mem.pages; else 0
 */
struct keel_mr {
	struct keel_obj obj;
	struct keel_key key;
	struct keel_keys *keys;
	struct keel_mem mem;
	struct keel_pages *pages;
	struct keel_dm *dm;
	u64 start;
	atomic_t bound;
	u32 list;
};

/**
 * struct keel_mw - a memory window
 * @obj: the object; holds the PD
 * @type: IB_MW_TYPE_1 or IB_MW_TYPE_2
 * @lock: one bind or invalidate at a time; taken inside the locks of queues
 * @key: its rkey, replaced as a whole when it changes; under @lock
 * @mr: the region that it is bound to, or NULL; under @lock. The region's
 *	@bound keeps it.
 * @keys: the table that @key is in
 */
struct keel_mw {
	struct keel_obj obj;
	enum ib_mw_type type;
	struct mutex lock;
	struct keel_key *key;
	struct keel_mr *mr;
	struct keel_keys *keys;
};

struct keel_ib_mr {
	struct ib_mr ib;
	struct keel_mr *mr;
};

struct keel_ib_mw {
	struct ib_mw ib;
	struct keel_mw *mw;
};

static inline struct keel_mr *to_kmr(struct ib_mr *ib)
{
	return container_of(ib, struct keel_ib_mr, ib)->mr;
}

static inline struct keel_mw *to_kmw(struct ib_mw *ib)
{
	return container_of(ib, struct keel_ib_mw, ib)->mw;
}

#endif /* KEEL_MR_H */
