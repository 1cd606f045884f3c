/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory regions and windows, as the queues see them.
 *
 * Locks: &keel_mw.lock, then &keel_mr.lock. Both are spinlocks, because the owner of
 * a region needs those of the windows that other processes have bound to it: a
 * thread that holds one is not preempted, except with PREEMPT_RT. No thread waits for
 * the references on a key with such a lock, nor binds with a reference on the key of
 * a region.
 *
 * A thread that replaces or invalidates a key waits until no thread uses it, and frees
 * it. The owner of the object waits for the users of all its keys, but not for that
 * thread, which may belong to another process: see keel_drain_wait().
 */
#ifndef KEEL_MR_H
#define KEEL_MR_H

#include "keel.h"
#include "keel_copy.h"

struct dma_buf;
struct keel_own;
struct sg_table;

/* Fast registration: maximum number of pages, and supported page sizes. */
#define KEEL_MAX_FAST_REG	1024
#define KEEL_PAGE_SIZES		GENMASK_ULL(31, 12)

/**
 * struct keel_pages - pinned pages of a user process
 * @ref: number of regions that use them: ibv_rereg_mr() can keep the memory
 * @mm: the address space that they are in, with a reference on the structure;
 *	only compared
 * @umem: keeps them pinned; NULL: no pages, the length of the region is 0
 * @blocks: where they are; or NULL, likewise
 */
struct keel_pages {
	refcount_t ref;
	struct mm_struct *mm;
	struct ib_umem *umem;
	struct keel_blocks *blocks;
};

/**
 * struct keel_mr - a memory region
 * @obj: the object; holds the PD, and the buffer of device memory, but not if
 *	that was registered as a dma-buf
 * @holds: of @obj
 * @key: its lkey and rkey, which are the same key. Only fast registration and
 *	its invalidate (both under @lock), the work of @own, ibv_rereg_mr() and
 *	ibv_dereg_mr() change it. NULL: the region is being deregistered.
 * @null_key: fast registration: replaces @key when that is invalidated; under
 *	@lock
 * @keys: the table that @key is in
 * @mem: its memory
 * @pages: PAGES of a user process, or NULL
 * @dm: DM: the buffer, or NULL
 * @own: DM that was registered as a dma-buf, or NULL
 * @start: user address, for ibv_rereg_mr(); or offset in the dma-buf
 * @ctx: user context that owns it; only compared after registration. NULL: a
 *	kernel consumer
 * @task: the task that registered it, as ib_core lists it, with a reference.
 *	NULL: a kernel consumer
 * @lock: protects @windows, @ours, @going and fast registration
 * @windows: current bindings of windows to it. The region is not closed before this
 *	list is empty.
 * @ours: number of these windows that belong to @ctx and were bound by it
 * @drain: keys that open @mem, those of windows too. The region is not closed before
 *	it is empty.
 * @going: no window can be bound to it any more
 * @list: fast registration: number of pages that fit in @mem.list; else 0
 */
struct keel_mr {
	struct keel_obj obj;
	struct keel_hold holds[2];
	struct keel_key __rcu *key __guarded_by(&lock);
	struct keel_key *null_key __guarded_by(&lock);
	struct keel_keys *keys;
	struct keel_mem mem;
	struct keel_pages *pages;
	struct keel_dm *dm;
	struct keel_own *own;
	u64 start;
	const struct ib_ucontext *ctx;
	struct task_struct *task;
	spinlock_t lock;
	struct list_head windows __guarded_by(&lock);
	u32 ours __guarded_by(&lock);
	struct keel_drain drain;
	bool going __guarded_by(&lock);
	u32 list;
};

/**
 * struct keel_binding - the rkey of a window, and the region that it opens
 * @key: the key
 * @mr: the region that lists it, or NULL: a null key, or a binding that was
 *	replaced. Under &keel_mw.lock; the list keeps the region.
 * @node: in &keel_mr.windows; under &keel_mr.lock
 * @ours: the owner of the region owns the window, and has bound it
 */
struct keel_binding {
	struct keel_key key;
	struct keel_mr *mr;
	struct list_head node;
	bool ours;
};

/**
 * struct keel_mw - a memory window
 * @obj: the object; holds the PD
 * @holds: of @obj
 * @type: IB_MW_TYPE_1 or IB_MW_TYPE_2
 * @ctx: user context that owns it; only compared
 * @lock: serializes bind and invalidate
 * @bound: its rkey; each change replaces the whole structure; under @lock. NULL: the
 *	window is being deallocated.
 * @spare: becomes @bound when the window is unbound, so that an unbind needs no
 *	memory; not NULL while the window is bound; under @lock
 * @drain: keys that open memory. The window is not closed before it is empty.
 * @keys: the table that its rkey is in
 */
struct keel_mw {
	struct keel_obj obj;
	struct keel_hold holds[1];
	enum ib_mw_type type;
	const struct ib_ucontext *ctx;
	spinlock_t lock;
	struct keel_binding __rcu *bound __guarded_by(&lock);
	struct keel_binding *spare __guarded_by(&lock);
	struct keel_drain drain;
	struct keel_keys *keys;
};

static inline struct keel_mw *keel_binding_mw(const struct keel_binding *b)
{
	return container_of(b->key.obj, struct keel_mw, obj);
}

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

/**
 * keel_mr_key() - the key of a region, while no other thread changes it
 * @mr: the region
 */
static inline struct keel_key *keel_mr_key(struct keel_mr *mr)
{
	/* No other thread changes it now. */
	return context_unsafe(rcu_dereference_protected(mr->key, true));
}

/**
 * keel_mr_key_rcu() - the key of a region, while other threads may change it
 * @mr: the region
 *
 * Context: RCU read side, which keeps the key.
 * Return: the key, or NULL.
 */
static inline struct keel_key *keel_mr_key_rcu(const struct keel_mr *mr)
	__must_hold_shared(RCU)
{
	/* RCU keeps the key. */
	return context_unsafe(rcu_dereference(mr->key));
}

/* mr_object.c */
void keel_pages_put(struct keel_pages *pages);
struct keel_mr *keel_mr_new(u32 access, u64 iova, u64 length, gfp_t gfp);
void keel_mr_free(struct keel_mr *mr);
struct ib_mr *keel_mr_publish(struct ib_pd *ibpd, struct keel_mr *mr);

/* mr_odp.c */
struct keel_mr *keel_mr_odp(struct mm_struct *mm, u64 start, u64 length,
			    u64 iova, u32 access);

/* mr_dmabuf_bar.c */
#if KEEL_DMABUF_EXPORT
int keel_own_map(struct keel_dev *kdev, struct keel_mr *mr,
		 struct dma_buf *dmabuf, u64 offset);
void keel_own_start(struct keel_mr *mr);
void keel_own_stop(struct keel_mr *mr);
void keel_own_unmap(struct keel_own *own);
void keel_own_free(struct keel_mr *mr);
#if IS_ENABLED(CONFIG_KUNIT)
int keel_own_find(const struct keel_dev *kdev, const struct dma_buf *dmabuf,
		  struct sg_table *sgt, u64 *start);
#endif
#else
static inline int keel_own_map(struct keel_dev *kdev, struct keel_mr *mr,
			       struct dma_buf *dmabuf, u64 offset)
{
	return -EOPNOTSUPP;
}

static inline void keel_own_start(struct keel_mr *mr)
{
}

static inline void keel_own_stop(struct keel_mr *mr)
{
}

static inline void keel_own_unmap(struct keel_own *own)
{
}

static inline void keel_own_free(struct keel_mr *mr)
{
}
#endif

/* mr_kernel.c */
enum ib_wc_status keel_mr_fast_reg(struct keel_dev *kdev, u32 domain,
				   struct ib_mr *ibmr, u32 rkey, u32 access,
				   u32 *why);
struct keel_key *keel_mr_invalidate(struct keel_mr *mr, u32 rkey);

/* mw.c */
void keel_binding_unlist(struct keel_mw *mw, struct keel_binding *b)
	__must_hold(&mw->lock);
struct keel_binding *keel_mw_unbind_locked(struct keel_mw *mw)
	__must_hold(&mw->lock);
void keel_binding_free(struct keel_binding *b);
void keel_mr_unbind(struct keel_mr *mr);

#endif /* KEEL_MR_H */
