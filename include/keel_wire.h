/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Links: connections to other hosts, over other RDMA devices. They carry frames of
 * keel_frame.h, and know no queue pair.
 *
 * Locks, outermost first. All are spinlocks: nobody waits long for another process.
 *	the lock of guest.c
 *	the lock of lower.c	without interrupts: AHs of the kernel are made in any context
 *	the lock of table.c	likewise
 *	keel_link.lock
 *	keel_conn.lock
 */
#ifndef KEEL_WIRE_H
#define KEEL_WIRE_H

#include <linux/completion.h>
#include <linux/jiffies.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/iw_cm.h>

#include "compat.h"
#include "keel_frame.h"

struct keel_conn;
struct keel_dev;
struct keel_link;
struct keel_lower;
struct keel_user;
struct seq_file;

/* Messages that each side has buffers to receive, and to send. */
#define KEEL_LINK_RECVS		128
#define KEEL_LINK_SENDS		64
/* How often those that wait for a link that is up are woken at least, jiffies. */
#define KEEL_WAKE_TIME		(HZ / 10 ?: 1)
/* Credits, and buffers, that only KEEL_FRAME_CREDIT, ASK and ALIVE use. */
#define KEEL_LINK_SPARE		4
/* Those that only datagrams of the kernel use in addition: rdma_cm connects with them. */
#define KEEL_LINK_RESERVED	2
/* Datagrams of the kernel, and of users, that wait until a link is up, and has credits. */
#define KEEL_LINK_HELD		8
/*
 * Buffers for frames that wait for none, whether others wait or not: datagrams, refusals, answers
 * without data to packets that came again, those of a QP that is reset or destroyed.
 */
#define KEEL_LINK_DGRAMS	8
/* So many of those that were woken are forgotten with the lock. */
#define KEEL_LINK_EXPIRE	32
/* With more free buffers, nobody waits for those that were woken before. */
#define KEEL_LINK_OPEN		((KEEL_LINK_SENDS - KEEL_LINK_SPARE - KEEL_LINK_RESERVED) / 2)
/* Connections of a link that the other host has asked for, and that are not used yet. */
#define KEEL_LINK_GUESTS	4
/* Before the first attempt to connect, &keel_link.backoff, in jiffies. */
#define KEEL_BACKOFF_MIN	(HZ / 2)
/* The same of all links, while they are not confirmed. */
#define KEEL_GUESTS_MAX		64
/* Requests of other hosts that are looked at, are guests, or end: over RoCE, over iWARP. */
#define KEEL_REQUESTS_MAX	128

/**
 * struct keel_ends - the two ends of a link
 * @net: cookie of the network namespace
 * @netdev: index of the netdev there. Addresses of the link scope are unique only
 *	on one netdev.
 * @sgid: GID of this side
 * @dgid: GID of the other side
 */
struct keel_ends {
	u64 net;
	int netdev;
	union ib_gid sgid;
	union ib_gid dgid;
};

/**
 * struct keel_cm_ops - how connections are established over a kind of lower device
 * @by_netdev: a link finds a device by its netdev alone, and only if no other kind of device
 *	has the GID
 * @listen: accept connections on a device: 0 or a negative errno
 * @unlisten: undo this; waits for handlers
 * @connect: ask another host for a connection, which has a QP; @attr: the GID of the lower
 *	device, or NULL with @by_netdev; @addr: the resolved address of the other host.
 *	After 0, KEEL_CONN_REPLIED or KEEL_CONN_ENDED comes as an event. Else a negative errno.
 * @accept: accept a connection that another host has asked for, and that has a QP.
 *	After 0, KEEL_CONN_CONFIRMED comes as an event, and then the caller gives the
 *	connection its other buffers. Else a negative errno.
 * @replied: use a connection that the other host has accepted: 0 or a negative errno
 * @end: end a connection that has an ID of the CM; waits for handlers
 *
 * All may sleep. @connect, @accept and @replied are for the work of a link: they must not wait
 * long for another host. Handlers of a CM only note what has happened, because one thread
 * calls all of them.
 */
struct keel_cm_ops {
	bool by_netdev;
	int (*listen)(struct keel_lower *lower);
	void (*unlisten)(struct keel_lower *lower);
	int (*connect)(struct keel_conn *conn, const struct ib_gid_attr *attr,
		       const struct rdma_dev_addr *addr);
	int (*accept)(struct keel_conn *conn);
	int (*replied)(struct keel_conn *conn);
	void (*end)(struct keel_conn *conn);
};

/**
 * struct keel_lower - another RDMA device, which may carry links
 * @node: in the list of lower.c
 * @ib: the device; exists until the last reference is dropped
 * @cm: how its connections are established
 * @pd: PD of what is for multicast
 * @no_chunks: it has refused to register memory for chunks
 * @signals: all frames that it sends have a completion: with iWARP, that of a later one may only
 *	say that TCP has the message. siw gives TCP a copy of those that have one, and the pages
 *	of the others, which TCP reads later.
 * @listen: accepts connections: ib_cm
 * @iw_listen: the same of iw_cm, for IPv4 and IPv6, or NULL
 * @ref: one of the list, one of each connection, and of each address that is resolved
 * @gone: completed when the last reference is dropped
 * @lost: it is removed: its connections end
 */
struct keel_lower {
	struct list_head node;
	struct ib_device *ib;
	const struct keel_cm_ops *cm;
	struct ib_pd *pd;
	bool no_chunks;
	bool signals;
	struct ib_cm_id *listen;
	struct iw_cm_id *iw_listen[2];
	struct kref ref;
	struct completion gone;
	bool lost;
};

/**
 * struct keel_home - a device of keel, to which other hosts may connect
 * @node: in the list of lower.c
 * @kdev: the device
 */
struct keel_home {
	struct list_head node;
	struct keel_dev *kdev;
};

/**
 * struct keel_load - packets of a link that were sent, and are not answered
 * @lock: protects the other members
 * @slot: the time of the last change, in units of load.c
 * @n: packets that were told of in this slot, and in the one before, by number
 */
struct keel_load {
	spinlock_t lock;
	unsigned long slot __guarded_by(&lock);
	u32 n[2] __guarded_by(&lock);
};

/**
 * struct keel_load_part - those of a QP
 * @slot: when it has told of other ones than before
 * @n: their number
 * @una: the first of them
 */
struct keel_load_part {
	unsigned long slot;
	u32 n;
	u32 una;
};

/**
 * struct keel_buf - memory of a frame, mapped for the lower device
 * @cqe: for the completion
 * @conn: the connection
 * @node: send: in &keel_conn.free or &keel_conn.posts, unless somebody has it
 * @dgram: it carries a frame that waits for no buffer
 * @kernel: likewise, a datagram of the kernel
 * @shared: likewise, and it is one of KEEL_LINK_DGRAMS
 * @dgram_user: where &keel_conn.dgram_users has the user, or NULL
 * @patient: send: the frame may wait a moment for another one; keel_link_tx() clears it
 * @chunk: send: the chunk that it has, counted from 1, or 0
 * @frame: the header
 * @page: the bytes behind it
 * @data: send: where the data goes: @page, or the chunk
 * @frame_dma: address of @frame for the device, or 0
 * @page_dma: the same for @page
 */
struct keel_buf {
	struct ib_cqe cqe;
	struct keel_conn *conn;
	struct list_head node;
	bool dgram;
	bool kernel;
	bool shared;
	const struct keel_user **dgram_user;
	bool patient;
	u32 chunk;
	struct keel_frame *frame;
	void *page;
	void *data;
	u64 frame_dma;
	u64 page_dma;
};

/* Events of a link: bits of &keel_link.events. */
enum keel_link_event {
	KEEL_LINK_WANTED,	/* there is something to send */
	KEEL_LINK_RESOLVED,	/* the address was resolved, see &keel_link.resolved */
	KEEL_LINK_DOUBTED,	/* find out whether the other side is still there */
	KEEL_LINK_OUSTED,	/* &keel_link.ousted was set */
	KEEL_LINK_CHUNKS,	/* a QP has, or expects, long packets */
};

/**
 * struct keel_turns - what waits for a link, in turn: see turn.c
 * @users: struct keel_link_wait, the first of each user, by the address of the user
 * @order: the same; the first one is woken next
 */
struct keel_turns {
	struct rb_root users;
	struct list_head order;
};

/* Why there is a link: each has its limit. */
enum keel_link_origin {
	KEEL_LINK_ASKED,	/* another host has asked for it, or it is unused now */
	KEEL_LINK_DATAGRAMS,	/* for an AH of the kernel: rdma_cm makes them for users */
	KEEL_LINK_KERNEL,	/* for a QP of the kernel */
	KEEL_LINK_USER,		/* for a QP or an AH of a user, who is charged for it */
	KEEL_LINK_ORIGINS,
};

/**
 * struct keel_link - a link to another host
 * @node: in the table
 * @ref: one of the table, one of each user, one of each connection, one while @work or
 *	@again is queued or runs
 * @users: QPs and AHs that may use it; under the lock of the table
 * @user: who is charged for it, or NULL; likewise
 * @origin: why there is one; likewise
 * @age: among those of the same @origin, the one that was asked for last at the end;
 *	likewise. Out of the table, it is of keel_links_remove().
 * @ousted: it had to give way to another one: nobody finds it; likewise
 * @kdev: the device of this side; valid as long as a connection can be up
 * @ends: the addresses
 * @work: all that is not a frame
 * @again: queues @work later
 * @events: enum keel_link_event, for @work
 * @conn: the connection; only for @work
 * @attr: GID of the lower device while the address is resolved, with a reference, or NULL
 *	with &keel_cm_ops.by_netdev; only for @work
 * @lower: the same device, with a reference
 * @addr: the address that is resolved
 * @resolved: 0 or a negative errno, with KEEL_LINK_RESOLVED
 * @guests: connections that the other side has asked for, and that were accepted; the
 *	first that the other side confirms becomes @conn; only for @work
 * @nguests: their number
 * @retry: connect not before, jiffies; only for @work
 * @backoff: how long to wait after the next failure; only for @work
 * @tries: attempts that failed soon, one after the other; only for @work
 * @hurry: the next one follows without a pause; only for @work
 * @expire: until when buffers are kept for @woken, jiffies; only for @work
 * @lock: protects the members below
 * @dead: the device of this side is removed, or the link had to go: no connection any more
 * @offers: connections that the other side has asked for, for @work
 * @noffers: their number
 * @up: the connection, if it carries frames
 * @load: packets that are under way
 * @busy: &keel_conn.busy of @up, or false; read without @lock
 * @epoch: number of connections so far
 * @turns: what waits for a buffer
 * @chunk_turns: what waits for a chunk
 * @woken: struct keel_link_wait, the oldest first: those that were woken, for which buffers
 *	are kept
 * @nwoken: their number
 * @nwoken_chunks: number of those of them that have waited for a chunk
 * @held: struct keel_held, the oldest first
 * @nheld: their number
 * @rcu: to free it; a lookup may still read it
 * @used: when it has carried a frame last, jiffies
 * @moved: when a buffer was taken last, or nothing waited, jiffies
 * @asked: when KEEL_FRAME_ASK was sent that is not answered yet, jiffies; or 0
 */
struct keel_link {
	struct hlist_node node;
	struct kref ref;
	u32 users;
	struct keel_user *user;
	enum keel_link_origin origin;
	struct list_head age;
	bool ousted;
	struct keel_dev *kdev;
	struct keel_ends ends;
	struct work_struct work;
	struct delayed_work again;
	unsigned long events;
	struct keel_conn *conn;
	const struct ib_gid_attr *attr;
	struct keel_lower *lower;
	struct rdma_dev_addr addr;
	int resolved;
	struct list_head guests;
	u32 nguests;
	unsigned long retry;
	unsigned long backoff;
	u32 tries;
	bool hurry;
	unsigned long expire;
	spinlock_t lock;
	bool dead __guarded_by(&lock);
	struct list_head offers __guarded_by(&lock);
	u32 noffers __guarded_by(&lock);
	struct keel_conn *up __guarded_by(&lock);
	struct keel_load load;
	bool busy;
	u64 epoch __guarded_by(&lock);
	struct keel_turns turns __guarded_by(&lock);
	struct keel_turns chunk_turns __guarded_by(&lock);
	struct list_head woken __guarded_by(&lock);
	u32 nwoken __guarded_by(&lock);
	u32 nwoken_chunks __guarded_by(&lock);
	struct list_head held __guarded_by(&lock);
	u32 nheld __guarded_by(&lock);
	struct rcu_head rcu;
	unsigned long used;
	unsigned long moved __guarded_by(&lock);
	unsigned long asked __guarded_by(&lock);
};

/**
 * struct keel_sender - who sends a frame that waits in no queue
 * @kernel: the kernel sends a datagram
 * @user: a user does: only compared, see &keel_conn.dgram_users; or NULL
 */
struct keel_sender {
	bool kernel;
	const struct keel_user *user;
};

/**
 * struct keel_held - a datagram that waits until a link is up
 * @node: in &keel_link.held
 * @frame: its header
 * @len: bytes of @data
 * @from: who sends it
 * @data: its data
 */
struct keel_held {
	struct list_head node;
	struct keel_frame frame;
	u32 len;
	struct keel_sender from;
	u8 data[];
};

/**
 * struct keel_link_wait - something that waits until a link can carry a frame
 * @node: in a ring of those of one user that wait, or in &keel_link.woken
 * @turn: in &keel_turns.order, if it is the first of its user
 * @rb: likewise in &keel_turns.users
 * @chunk: it needs a chunk
 * @waits: it is in &keel_link.turns, or with @chunk in &keel_link.chunk_turns
 * @woken: it is in &keel_link.woken
 * @since: when it was woken, jiffies
 * @user: in whose turn it is woken; NULL: the kernel
 * @qp: for &keel_wire_ops.wake
 */
struct keel_link_wait {
	struct list_head node;
	struct list_head turn;
	struct rb_node rb;
	bool chunk;
	bool waits;
	bool woken;
	unsigned long since;
	const struct keel_user *user;
	void *qp;
};

/**
 * struct keel_wire_ops - what links do not know: queue pairs
 * @request: a KEEL_FRAME_REQUEST has come
 * @answer: a KEEL_FRAME_ANSWER has come
 * @datagram: a KEEL_FRAME_DATAGRAM has come
 * @group: a KEEL_FRAME_GROUP has come; @ends has the group as its own side
 * @wake: the link can carry a frame, or has changed. Under &keel_link.lock.
 *
 * All but the last one: @data has &keel_frame.len bytes; both are valid during the call only,
 * and nobody has checked the numbers that are for a queue pair. They may sleep, but
 * wait for no process.
 */
struct keel_wire_ops {
	void (*request)(struct keel_link *link, const struct keel_frame *frame,
			const void *data);
	void (*answer)(struct keel_link *link, const struct keel_frame *frame,
		       const void *data);
	void (*datagram)(struct keel_link *link, const struct keel_frame *frame,
			 const void *data);
	void (*group)(struct keel_dev *kdev, const struct keel_ends *ends,
		      const struct keel_frame *frame, const void *data);
	void (*wake)(struct keel_link_wait *wait);
};

/* client.c */
int keel_wire_init(const struct keel_wire_ops *ops);
void keel_wire_exit(void);

/* asleep.c */
bool keel_wire_is_asleep(void);
#if IS_ENABLED(CONFIG_KUNIT)
struct notifier_block;
int keel_wire_sleep(struct notifier_block *nb, unsigned long event, void *unused);
#endif

/* lower.c */
bool keel_wire_is_on(void);
bool keel_lower_may(const struct ib_device *ib);
bool keel_ends_of(const struct ib_gid_attr *attr, const union ib_gid *dgid,
		  struct keel_ends *ends);
struct net_device *keel_gid_netdev(const struct ib_gid_attr *attr);
enum ib_mtu keel_gid_mtu(const struct ib_gid_attr *attr);
void keel_lower_add(struct keel_lower *lower);
void keel_lower_del(struct keel_lower *lower);
struct keel_lower *keel_lower_find(const struct keel_ends *ends,
				   const struct ib_gid_attr **attr);
void keel_home_add(struct keel_home *home);
void keel_home_del(struct keel_home *home);
struct keel_link *keel_home_link(const struct keel_ends *ends, struct net_device *netdev);
struct keel_link *keel_home_use(struct keel_dev *kdev, const struct keel_ends *ends,
				enum keel_link_origin origin, gfp_t gfp);

/* table.c */
void keel_links_init(work_func_t run);
struct keel_link *keel_link_alloc(struct keel_dev *kdev, const struct keel_ends *ends,
				  gfp_t gfp);
struct keel_link *keel_link_get(struct keel_link *spare);
struct keel_link *keel_link_use(struct keel_link *spare);
struct keel_link *keel_link_join(struct keel_dev *kdev, const struct keel_ends *ends);
struct keel_link *keel_link_lookup(struct keel_dev *kdev, const struct keel_ends *ends);
void keel_link_unuse(struct keel_link *link);
unsigned long keel_link_rests(struct keel_link *link, bool connected);
bool keel_link_is_used(struct keel_link *link);
void keel_link_forget(struct keel_link *link);
void keel_links_remove(struct keel_dev *kdev);
void keel_links_lost(void);
void keel_links_show(struct seq_file *m, struct keel_dev *kdev);

/* state.c */
int keel_links_start(const struct keel_wire_ops *ops);
void keel_links_stop(void);
void keel_link_put(struct keel_link *link);
void keel_link_queue(struct keel_link *link);
void keel_link_later(struct keel_link *link, unsigned long delay);
void keel_link_waits(struct keel_link *link, bool first) __must_hold(&link->lock);
void keel_link_stop(struct keel_link *link);
void keel_link_again(struct work_struct *work);
void keel_link_event(struct keel_link *link, enum keel_link_event event);
void keel_link_frame(struct keel_link *link, const struct keel_frame *frame,
		     const void *data);
void keel_link_leave(struct keel_link *link, struct keel_link_wait *wait)
	__must_hold(&link->lock);
void keel_link_unchunk(struct keel_link *link) __must_hold(&link->lock);
bool keel_link_is_open(const struct keel_link *link) __must_hold(&link->lock);
void keel_link_wake(struct keel_link *link, u32 room);
void keel_link_wake_waiters(struct keel_link *link, u32 room);
void keel_link_expire(struct keel_link *link);
bool keel_link_is_awaited(const struct keel_link *link) __must_hold(&link->lock);
bool keel_link_has_waiters(struct keel_link *link);
bool keel_link_is_dead(struct keel_link *link);
bool keel_request_begin(const struct keel_lower *lower);
void keel_request_end(const struct keel_lower *lower);
unsigned long keel_link_sooner(unsigned long next, unsigned long end);
void keel_link_unwait(struct keel_link *link, struct keel_link_wait *wait);

/* guest.c */
void keel_guests_accept(struct keel_link *link);
struct keel_conn *keel_guests_confirmed(struct keel_link *link);
void keel_guest_dismiss(struct keel_link *link, struct keel_conn *conn);
void keel_guest_send_away(struct keel_link *link, struct keel_conn *conn);
void keel_guests_send_older(struct keel_link *link, const struct keel_conn *conn);
unsigned long keel_guests_next(struct keel_link *link, unsigned long next);

/* link.c */
void keel_link_work(struct work_struct *work);

/* turn.c */
void keel_turns_init(struct keel_turns *turns);
void keel_wait_init(struct keel_link_wait *wait, void *qp, const struct keel_user *user);
void keel_turns_add(struct keel_turns *turns, struct keel_link_wait *wait);
void keel_turns_del(struct keel_turns *turns, struct keel_link_wait *wait);
struct keel_link_wait *keel_turns_next(struct keel_turns *turns);

/**
 * keel_turns_empty() - does nothing wait?
 * @turns: what waits
 *
 * Return: true if so.
 */
static inline bool keel_turns_empty(const struct keel_turns *turns)
{
	return list_empty(&turns->order);
}

/* How long an answer waits for a request, ns: &keel_buf.patient. */
#define KEEL_PATIENT_NS		NSEC_PER_MSEC

/* load.c */
void keel_load_set(struct keel_load *load, struct keel_load_part *part, u32 n, u32 una);
u32 keel_load_but(struct keel_load *load, const struct keel_load_part *part);

/* tx.c */
struct keel_buf *keel_link_tx(struct keel_link *link, struct keel_link_wait *wait, u32 len,
			      u64 *epoch);
bool keel_link_has_chunks(struct keel_link *link);
void keel_link_want_chunks(struct keel_link *link);
void keel_link_send(struct keel_buf *buf, struct keel_frame *frame, u32 len);
void keel_link_unsend(struct keel_buf *buf);
int keel_link_datagram(struct keel_link *link, struct keel_frame *frame, const void *data,
		       u32 len, const struct keel_user *user, gfp_t gfp);
void keel_link_release_held(struct keel_link *link);
void keel_link_drop_held(struct keel_link *link);

/* frame.c */
bool keel_frame_is_valid(const struct keel_frame *frame, u32 bytes);

/* way.c */
bool keel_way_is_known(const struct keel_ends *ends, struct net_device *netdev);

/* request.c */
void keel_hello_set(struct keel_hello *hello, struct keel_conn *conn, u32 credits);
bool keel_hello_is_known(const struct keel_hello *hello);
struct keel_conn *keel_request_new(struct keel_lower *lower, const struct keel_ends *ends,
				   struct net_device *netdev, const struct keel_hello *hello);
int keel_request_offer(struct keel_conn *conn);

/* cm.c */
extern const struct keel_cm_ops keel_cm_ib;

/* cm_iw.c */
extern const struct keel_cm_ops keel_cm_iw;
#if IS_ENABLED(CONFIG_KUNIT)
bool keel_iw_is_root(struct sockaddr_storage *addr);
bool keel_iw_ends(const struct net_device *netdev, struct sockaddr_storage *local,
		  struct sockaddr_storage *remote, struct keel_ends *ends);
void keel_iw_addr(const union ib_gid *gid, int netdev, struct sockaddr_storage *addr);
#endif

/**
 * keel_lower_get() - get a reference on a lower device
 * @lower: the device; the caller has a reference, or the lock of the list
 */
static inline void keel_lower_get(struct keel_lower *lower)
{
	kref_get(&lower->ref);
}

static inline void keel_lower_release(struct kref *ref)
{
	complete(&container_of(ref, struct keel_lower, ref)->gone);
}

/**
 * keel_lower_put() - drop such a reference
 * @lower: the device, or NULL
 */
static inline void keel_lower_put(struct keel_lower *lower)
{
	if (lower)
		kref_put(&lower->ref, keel_lower_release);
}

#endif /* KEEL_WIRE_H */
