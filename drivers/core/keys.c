// SPDX-License-Identifier: GPL-2.0
/*
 * Table of lkeys and rkeys. Lookups take no lock.
 */
#include <linux/err.h>
#include <linux/percpu.h>
#include <linux/random.h>
#include <linux/wait_bit.h>
#include <kunit/visibility.h>

#include "keel_keys.h"
#include "keel_point.h"
#include "keel_wait.h"

/* Odd while a thread of the processor is in a section of keel_keys_enter(). */
static DEFINE_PER_CPU(unsigned long, keel_key_section);

#define KEEL_KEY_INDEX_MAX	(U32_MAX >> KEEL_KEY_INDEX_SHIFT)

/**
 * keel_keys_init() - initialize an empty table
 * @keys: the table
 */
void keel_keys_init(struct keel_keys *keys)
{
	keel_numbers_init(&keys->numbers, 1, KEEL_KEY_INDEX_MAX);
	get_random_bytes(&keys->secret, sizeof(keys->secret));
	atomic64_set(&keys->invalidated, 0);
}
EXPORT_SYMBOL_IF_KUNIT(keel_keys_init);

/**
 * keel_keys_fini() - destroy an empty table
 * @keys: the table
 */
void keel_keys_fini(struct keel_keys *keys)
{
	keel_numbers_fini(&keys->numbers, "key");
}
EXPORT_SYMBOL_IF_KUNIT(keel_keys_fini);

/*
 * Compute the lower 8 bits of a key. Each index has a start and a step, which
 * depend on the secret. The step is odd, so a value returns after 256 rounds
 * only.
 */
static u8 keel_key_salt(const struct keel_keys *keys, u32 index, u8 round)
{
	u64 hash = siphash_1u32(index, &keys->secret);
	u8 step = (u8)(hash >> 8) | 1;

	return (u8)hash + step * round;
}

static void keel_drain_add(struct keel_drain *drain)
{
	if (drain)
		atomic_inc(&drain->keys);
}

static void keel_drain_sub(struct keel_drain *drain)
{
	if (!drain || !atomic_dec_and_test(&drain->keys))
		return;
	/*
	 * From here on, the object with @drain may be freed; only its address is
	 * used. The atomic operation is a full barrier, as in keel_key_put().
	 */
	wake_up_var(&drain->keys);
}

static void keel_key_publish(struct keel_keys *keys, struct keel_key *key)
{
	key->dead = false;
	refcount_set(&key->users, 1);
	keel_drain_add(key->drain);
	keel_drain_add(key->region);
	keel_number_publish(&keys->numbers, key->key >> KEEL_KEY_INDEX_SHIFT, key);
}

/**
 * keel_key_insert() - allocate a key
 * @keys: the table
 * @key: complete except @key->key, which this sets; must stay valid for an RCU
 *	grace period after keel_key_remove()
 *
 * Lookups find the key before this returns. All other indexes are used before
 * an index is reused. The reused index gets other lower 8 bits: a stale key
 * opens nothing, and userspace cannot guess the next key. Key 0 is never
 * allocated.
 *
 * Context: may sleep.
 * Return: 0, or -ENOMEM.
 */
int keel_key_insert(struct keel_keys *keys, struct keel_key *key)
{
	u32 index;
	u8 round;

	if (keel_number_add(&keys->numbers, &index, &round, NULL, GFP_KERNEL))
		return -ENOMEM;
	key->key = index << KEEL_KEY_INDEX_SHIFT | keel_key_salt(keys, index, round);
	keel_key_publish(keys, key);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_insert);

/* Lookups no longer find @key. Threads that have references stop soon. */
static void keel_key_invalidate(struct keel_keys *keys, struct keel_key *key)
{
	keel_point("key_erased");
	/* A reader that observes the new count cannot find the key. */
	smp_mb__before_atomic();
	atomic64_inc(&keys->invalidated);
	WRITE_ONCE(key->dead, true);
	keel_key_put(key);
}

/**
 * keel_key_exchange() - begin to replace the memory and rights of a key
 * @keys: the table
 * @old: the current key
 * @new: as keel_key_replace()
 *
 * As keel_key_replace(), but does not wait for the threads that use @old. The
 * caller calls keel_key_drain() later.
 *
 * Context: any but interrupts. The caller's lock allows one change at a time.
 */
void keel_key_exchange(struct keel_keys *keys, struct keel_key *old,
		       struct keel_key *new)
{
	WARN_ON((old->key ^ new->key) >> KEEL_KEY_INDEX_SHIFT);
	keel_key_publish(keys, new);
	keel_key_invalidate(keys, old);
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_exchange);

/**
 * keel_key_erase() - begin to invalidate a key
 * @keys: the table
 * @key: the key
 *
 * As keel_key_remove(), but does not wait for the threads that use the key. The
 * caller calls keel_key_drain() later.
 *
 * Context: any but interrupts.
 */
void keel_key_erase(struct keel_keys *keys, struct keel_key *key)
{
	keel_number_remove(&keys->numbers, key->key >> KEEL_KEY_INDEX_SHIFT);
	keel_key_invalidate(keys, key);
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_erase);

/**
 * keel_keys_enter() - begin a section, in which keys need no references
 *
 * References of many threads on one key would all write to it. Instead, a thread that
 * is not preempted announces that it may use any key: keel_key_usable(). The thread that
 * invalidates a key waits until each processor has left the section in which it was.
 *
 * Context: preemption is disabled until keel_keys_leave(), not in an interrupt, not in a
 * section, KEEL_KEY_SECTIONS. A section takes some microseconds, as others spin for its
 * end. It waits for nothing but spinlocks that are held for as short a time, and calls
 * none of the functions that drain a key.
 */
void keel_keys_enter(void)
{
	unsigned long *section = this_cpu_ptr(&keel_key_section);

	WRITE_ONCE(*section, *section + 1);
	/*
	 * Pairs with the barrier in keel_keys_settle(): either this thread sees that a key
	 * is dead (that an SRQ is in no table), or the thread that has invalidated it sees
	 * this section.
	 */
	smp_mb();
}
EXPORT_SYMBOL_IF_KUNIT(keel_keys_enter);

/**
 * keel_keys_leave() - end a section
 *
 * No key is used any more.
 *
 * Context: as keel_keys_enter().
 */
void keel_keys_leave(void)
{
	unsigned long *section = this_cpu_ptr(&keel_key_section);

	/* Pairs with keel_keys_settle(): after all accesses to the memory. */
	smp_store_release(section, *section + 1);
}
EXPORT_SYMBOL_IF_KUNIT(keel_keys_leave);

/**
 * keel_keys_settle() - wait until each processor has left its section
 *
 * Keys that are dead before the call are not used in later sections. Neither are objects
 * that are in no table any more: sections look up SRQs, too.
 *
 * Context: any but a section of keel_keys_enter(), and interrupts. This spins for some
 * microseconds: a thread in a section is not preempted.
 */
void keel_keys_settle(void)
{
	const unsigned long __percpu *section = &keel_key_section;
	unsigned long was;
	int cpu;

	if (!KEEL_KEY_SECTIONS)
		return;
	/* Pairs with the barrier in keel_keys_enter(). */
	smp_mb();
	/* A processor that comes online sees dead keys; one that goes is in no section. */
	for_each_online_cpu(cpu) {
		/* Pairs with keel_keys_leave(). */
		was = smp_load_acquire(per_cpu_ptr(section, cpu));
		if (!(was & 1))
			continue;
		keel_point("section_waits");
		/* Likewise. */
		while (smp_load_acquire(per_cpu_ptr(section, cpu)) == was)
			cpu_relax();
	}
}
EXPORT_SYMBOL_IF_KUNIT(keel_keys_settle);

/**
 * keel_key_try_drain() - does no thread use a key any more?
 * @key: as keel_key_drain()
 *
 * Context: as keel_keys_settle().
 * Return: whether keel_key_drain() need not wait.
 */
bool keel_key_try_drain(const struct keel_key *key)
{
	if (refcount_read(&key->users))
		return false;
	/* Order the accesses of its users before those of the owner. */
	smp_acquire__after_ctrl_dep();
	keel_keys_settle();
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_try_drain);

/**
 * keel_key_drain() - wait until no thread uses a key
 * @key: the key, after keel_key_exchange() or keel_key_erase()
 *
 * Several threads may wait. Each may free what the key needs, but the key itself
 * after an RCU grace period only.
 *
 * Context: may sleep. Waits until all references on @key are dropped, so the
 * caller must have none, nor hold a lock that a thread with one may need.
 */
void keel_key_drain(struct keel_key *key)
{
	keel_wait_var(&key->users, keel_key_try_drain(key));
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_drain);

static bool keel_drain_is_empty(const struct keel_drain *drain)
{
	if (atomic_read(&drain->keys))
		return false;
	/* Order the accesses of the users before those of the owner. */
	smp_acquire__after_ctrl_dep();
	keel_keys_settle();
	return true;
}

/**
 * keel_drain_wait() - wait until no thread uses some memory
 * @drain: counts the keys that open it. All were invalidated, and no new one can
 *	be inserted.
 *
 * Other threads may have replaced or invalidated some of the keys, and wait for
 * their users, too: see keel_key_drain(). This does not wait for these threads.
 * When it returns, no thread accesses @drain any more.
 *
 * Context: as keel_key_drain().
 */
void keel_drain_wait(struct keel_drain *drain)
{
	keel_wait_var(&drain->keys, keel_drain_is_empty(drain));
}
EXPORT_SYMBOL_IF_KUNIT(keel_drain_wait);

/**
 * keel_key_replace() - replace the memory and rights of a key
 * @keys: the table
 * @old: the current key
 * @new: the new key, complete; only the lower 8 bits of its number may differ
 *	from those of @old
 *
 * A concurrent lookup finds @old, @new or none. When this returns, no thread
 * uses @old. The caller owns it, and may free it after an RCU grace period.
 *
 * Context: as keel_key_drain().
 */
void keel_key_replace(struct keel_keys *keys, struct keel_key *old,
		      struct keel_key *new)
{
	keel_key_exchange(keys, old, new);
	keel_key_drain(old);
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_replace);

/**
 * keel_key_swap() - keel_key_replace() for a key with its own allocation
 * @keys: the table
 * @slot: the owner's pointer to the key, replaced by @new; others may read it
 *	under RCU. Only the caller changes it.
 * @new: as keel_key_replace(); allocated with kmalloc(), as the old key
 *
 * Context: as keel_key_replace().
 */
void keel_key_swap(struct keel_keys *keys, struct keel_key __rcu **slot,
		   struct keel_key *new)
{
	struct keel_key *old = rcu_replace_pointer(*slot, new, true);

	keel_key_replace(keys, old, new);
	kfree_rcu(old, rcu);
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_swap);

/**
 * keel_key_remove() - invalidate a key
 * @keys: the table
 * @key: the key
 *
 * When this returns, no thread uses the key. The caller owns it, and may free
 * it after an RCU grace period.
 *
 * Context: as keel_key_drain().
 */
void keel_key_remove(struct keel_keys *keys, struct keel_key *key)
{
	keel_key_erase(keys, key);
	keel_key_drain(key);
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_remove);

/**
 * keel_key_get() - look up a key, check it, and take a reference
 * @keys: the table
 * @key: the key, as userspace wrote it
 * @domain: domain of the queue pair that wants it
 * @access: the rights that are needed, enum ib_access_flags
 * @addr: first byte, in the addresses of the key
 * @len: bytes
 *
 * The caller checks &keel_key.qpn.
 *
 * Context: any.
 * Return: the key, with a reference that the caller soon drops with
 * keel_key_put(), because deregistration waits for it; or ERR_PTR(): -ENOENT if
 * the key is invalid, -EPERM if it belongs to another domain, -EACCES if it
 * lacks a right, -ERANGE if the range leaves the memory.
 */
struct keel_key *keel_key_get(struct keel_keys *keys, u32 key, u32 domain,
			      u32 access, u64 addr, u64 len)
{
	struct keel_key *k;
	int ret;

	guard(rcu)();
	k = keel_key_load(keys, key);
	if (!k)
		return ERR_PTR(-ENOENT);
	ret = keel_key_check(k, domain, access, addr, len);
	if (ret)
		return ERR_PTR(ret);
	keel_point("key_found");
	/* RCU keeps k until here; only a reference keeps its memory. */
	if (!refcount_inc_not_zero(&k->users))
		return ERR_PTR(-ENOENT);
	return k;
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_get);

/**
 * keel_key_peek() - look up a key without checks of rights and range
 * @keys: the table
 * @key: the key, as userspace wrote it
 * @domain: domain of the queue pair that wants it
 *
 * Context: RCU read side, which keeps the key, but neither its memory nor a
 * reference on its object.
 * Return: as keel_key_find().
 */
struct keel_key *keel_key_peek(struct keel_keys *keys, u32 key, u32 domain)
{
	struct keel_key *k = keel_key_load(keys, key);

	if (!k)
		return ERR_PTR(-ENOENT);
	return k->domain == domain ? k : ERR_PTR(-EPERM);
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_peek);

/**
 * keel_key_find() - as keel_key_peek(), and take a reference
 * @keys: the table
 * @key: the key, as userspace wrote it
 * @domain: domain of the queue pair that wants it
 *
 * As keel_key_get(), for callers that access no bytes. The key may be a null
 * key.
 *
 * Context: any.
 * Return: as keel_key_get(): -ENOENT and -EPERM.
 */
struct keel_key *keel_key_find(struct keel_keys *keys, u32 key, u32 domain)
{
	struct keel_key *k;

	guard(rcu)();
	k = keel_key_peek(keys, key, domain);
	if (IS_ERR(k))
		return k;
	keel_point("key_found");
	if (!refcount_inc_not_zero(&k->users))
		return ERR_PTR(-ENOENT);
	return k;
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_find);

/**
 * keel_key_put() - drop a reference on a key
 * @key: the key; may be freed afterwards
 *
 * Context: any.
 */
void keel_key_put(struct keel_key *key)
{
	struct keel_drain *drain = key->drain;
	struct keel_drain *region = key->region;

	if (!refcount_dec_and_test(&key->users))
		return;
	keel_point("key_unused");
	/*
	 * From here on the key may be freed; only its address is used. The
	 * barrier pairs with that of a thread that begins to wait: either it
	 * sees that no references are left, or wake_up_var() sees the waiter.
	 */
	smp_mb();
	wake_up_var(&key->users);
	/* Each is in an object that exists until its own count is 0. */
	keel_drain_sub(region);
	keel_drain_sub(drain);
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_put);
