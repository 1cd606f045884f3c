/* SPDX-License-Identifier: GPL-2.0 */
/*
 * QPs that are connected to a QP on another host.
 *
 * The requester divides a message into packets of at most 4096 bytes, or 256 KiB if the
 * responder has room for such long ones, and sends them over a link. The responder executes
 * them one after the other, in the turns of its QP, and answers each. A packet of RC that is
 * not answered in time is sent again; the responder knows by its number whether it was
 * executed.
 */
#ifndef KEEL_FAR_H
#define KEEL_FAR_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/spinlock.h>

#include "keel_ah.h"
#include "keel_far_ring.h"
#include "keel_from.h"
#include "keel_wire.h"
#include "keel_xfer.h"

struct keel_qp;
struct keel_srq;

/*
 * Most packets of a QP that are not answered, and so most messages: a power of two. Those that are
 * not long have KEEL_FAR_BYTES at most, see keel_far_is_full().
 */
#define KEEL_FAR_WINDOW	32
/* Packets that a QP keeps, unless it is for datagrams: requests that it received, and answers. */
#define KEEL_FAR_SLOTS	(2 * KEEL_FAR_WINDOW)
/* Long packets that a QP keeps in each direction: those with more than KEEL_FRAME_DATA bytes. */
#define KEEL_FAR_LONGS	3
/* A QP alone does not have all chunks of a link. */
static_assert(KEEL_FAR_LONGS < KEEL_CHUNKS);
/* Most such areas of a user: the other host has a part in what is charged to the user. */
#define KEEL_FAR_USER_LONGS	32
/* A message with more bytes is worth the memory for long packets. */
#define KEEL_FAR_WORTH	KEEL_FAR_BYTES
/* Datagrams that a QP keeps: as many as it may have receive WQEs, but no less and no more. */
#define KEEL_FAR_DGRAMS_MIN	16
#define KEEL_FAR_DGRAMS		64

/**
 * struct keel_far_longs - memory for the data of long packets
 * @wanted: there is a message that it is worth for: keel_far_grow()
 * @retry: not before, jiffies: there was no memory
 * @data: KEEL_FAR_LONGS times KEEL_CHUNK_DATA bytes, or NULL
 * @used: bits: those that packets have
 */
struct keel_far_longs {
	bool wanted;
	unsigned long retry;
	u8 *data;
	unsigned long used;
};

/**
 * struct keel_far_dgram - memory for a datagram
 * @data: its data
 * @ends: those of the link that it came from
 */
struct keel_far_dgram {
	u8 data[KEEL_FRAME_DATA] __aligned(16);
	struct keel_ends ends;
};

/**
 * struct keel_far_slot - a packet that was received
 * @node: in &keel_far_list.slots, or in &keel_far.free, or in none: the data of a long one is
 *	being copied
 * @frame: its header
 * @data: its data; RDMA read: that of the answer. Datagram: &keel_far_dgram.data
 * @longs: those that one is used of for its data, or NULL
 * @nr: the one that is used
 * @bytes: bytes that it has of &keel_far_list.ring, or 0
 * @at: their offset
 */
struct keel_far_slot {
	struct list_head node;
	struct keel_frame frame;
	u8 *data;
	struct keel_far_longs *longs;
	u16 nr;
	u16 bytes;
	u32 at;
};

/**
 * struct keel_far_list - packets that are kept until they are executed, in their order
 * @slots: the packets
 * @n: their number
 * @ring: memory that they have of @data
 * @data: KEEL_FAR_RING bytes; datagrams: NULL, because each slot has its own
 */
struct keel_far_list {
	struct list_head slots;
	u32 n;
	struct keel_far_ring ring;
	u8 *data;
};

/**
 * struct keel_far - what a QP has in addition if it is connected to another host
 * @qp: the QP, of which this is a part
 * @link: the link to that host, or NULL; changes under the locks of the send queue, of
 *	@from, and @lock
 * @lock: protects the members up to @heard_psn
 * @long_requests: for @requests
 * @long_answers: for @answers
 * @free: unused slots
 * @requests: packets of the other side that are to be executed
 * @answers: answers of the other side, for the requester
 * @expected: number of the next packet that is put into @requests
 * @done: number of the next packet that is to be executed
 * @executed: number of packets before @done that were executed, at most KEEL_FAR_WINDOW
 * @peer_gen: generation of the other side's QP, or 0
 * @heard: UC, datagrams: there was an answer that the requester has not seen
 * @heard_psn: likewise: the number in it; of several, the last one
 * @srq: XRC: the SRQ in whose list the QP waits, or NULL
 * @again: there may be more to execute
 * @from: responder: memory and progress of the first of @requests; its lock protects the
 *	members up to @tx_wait. It is taken as that of a responder, see keel_resp_lock.h:
 *	with XRC, another process than the owner has it.
 * @mem: describes the data of the packet that is executed
 * @replies: @answer is to be sent
 * @answer: answer to the first of @requests
 * @offset: bytes of the message before it
 * @opcode: opcode of the message, if @offset is not 0
 * @srqn: XRC: the SRQ that it names, likewise
 * @broken: UC: a packet of the message was refused, and the others are dropped
 * @atomics: bits: @words has the result of an atomic operation
 * @words: results of atomic operations among the packets that were executed, by number
 * @absent_until: when absent memory is given up, ns; 0: none is absent
 * @tx_wait: waits for the link, to send @answer
 * @pairs: short messages of the last ones that were answered, and then had a request of this side
 *	soon behind them: a hint, which both sides of the QP change
 * @answered_at: when the last one was answered, ns; 0: a request was sent behind it; likewise
 * @primed: requester, under the lock of the send queue from here on: @next and @una belong
 *	to this life of the QP
 * @begun: WQEs are being sent; datagrams: the first WQE waits for a buffer
 * @index: index of the first of them in its ring
 * @most: index of the last of them
 * @lengthy: the message of the last of them is not short: a hint, read without the lock
 * @at: index of the one whose packets are being sent: those behind it, up to @most, were
 *	sent before the go-back
 * @lens: bytes of their messages, by index
 * @reads: bits: likewise, max_rd_atomic limits their number (KEEL_OP_DEPTH)
 * @una: number of the first packet that is not answered
 * @next: number of the next packet
 * @tip: number behind the last packet that was ever sent
 * @sizes: bytes of the packets from @una to @tip, by number: they are the same when one is sent
 *	again
 * @total: keel_far_bytes() of all packets that were ever sent, without those of long ones; it wraps
 * @before: @total before each packet from @una to @next, by number
 * @granted: how many of them may be long
 * @acked: bytes of the message @index before packet @una
 * @sent: bytes of the message @at before packet @next
 * @whole: the last packet of that message was sent
 * @epoch: &keel_link.epoch when a packet was sent last
 * @probes: how often the other side was not ready, one time after the other: then one
 *	packet is sent at a time
 * @resends: how often packets were sent again, one time after the other; UC: 1 if the last
 *	ones were not answered
 * @hold_until: sends nothing before, ns; 0: no such limit
 * @resend_at: when packets that are not answered are sent again, ns; UC: are given up
 * @deadline: when the message fails without an answer, ns
 * @rnr_until: when it fails for want of a receive WQE, ns; 0: it does not wait for one
 * @free_until: datagrams wait for nothing before, ns
 * @staged: @stage has the data of packet @next
 * @stage: data of memory that may be absent
 * @load: its packets that are under way, for @link
 * @rx_wait: waits for the link, to send a packet
 * @nslots: number of @slots
 * @slots: the slots
 */
struct keel_far {
	struct keel_qp *qp;
	struct keel_link *link;
	spinlock_t lock;
	struct keel_far_longs long_requests __guarded_by(&lock);
	struct keel_far_longs long_answers __guarded_by(&lock);
	struct list_head free __guarded_by(&lock);
	struct keel_far_list requests __guarded_by(&lock);
	struct keel_far_list answers __guarded_by(&lock);
	u32 expected __guarded_by(&lock);
	u32 done __guarded_by(&lock);
	u32 executed __guarded_by(&lock);
	u64 peer_gen __guarded_by(&lock);
	bool heard __guarded_by(&lock);
	u32 heard_psn __guarded_by(&lock);
	struct keel_srq *srq __guarded_by(&lock);
	atomic_t again;
	struct keel_from from;
	struct keel_mem mem __guarded_by(&from.lock);
	bool replies __guarded_by(&from.lock);
	struct keel_frame answer __guarded_by(&from.lock);
	u64 offset __guarded_by(&from.lock);
	u8 opcode __guarded_by(&from.lock);
	u32 srqn __guarded_by(&from.lock);
	bool broken __guarded_by(&from.lock);
	u64 atomics __guarded_by(&from.lock);
	u64 words[KEEL_FAR_WINDOW] __guarded_by(&from.lock);
	u64 absent_until __guarded_by(&from.lock);
	struct keel_link_wait tx_wait;
	u8 pairs;
	u64 answered_at;
	bool primed;
	bool begun;
	u32 index;
	u32 most;
	bool lengthy;
	u32 at;
	u32 lens[KEEL_FAR_WINDOW];
	u64 reads;
	u32 una;
	u32 next;
	u32 tip;
	u32 sizes[KEEL_FAR_WINDOW];
	u32 total;
	u32 before[KEEL_FAR_WINDOW];
	u32 granted;
	u64 acked;
	u64 sent;
	bool whole;
	u64 epoch;
	u8 probes;
	u8 resends;
	u64 hold_until;
	u64 resend_at;
	u64 deadline;
	u64 rnr_until;
	u64 free_until;
	bool staged;
	u8 stage[KEEL_FRAME_DATA] __aligned(16);
	struct keel_load_part load;
	struct keel_link_wait rx_wait;
	u32 nslots;
	struct keel_far_slot slots[] __counted_by(nslots);
};

/**
 * enum keel_far_place - where a packet is executed
 * @KEEL_FAR_HERE: by the calling thread
 * @KEEL_FAR_ELSEWHERE: by the worker of the owner of its SRQ
 * @KEEL_FAR_NOWHERE: the owner of its SRQ is dead
 */
enum keel_far_place {
	KEEL_FAR_HERE,
	KEEL_FAR_ELSEWHERE,
	KEEL_FAR_NOWHERE,
};

/**
 * enum keel_far_step - the next action of the thread that executes packets
 * @KEEL_FAR_MORE: there may be another packet
 * @KEEL_FAR_IDLE: nothing can be done now
 * @KEEL_FAR_LATER: schedule the QP
 * @KEEL_FAR_AWAY: another worker executes the first packet
 * @KEEL_FAR_ABSENT: request memory, without the lock
 * @KEEL_FAR_TAKEN: another thread has the lock, and goes on
 */
enum keel_far_step {
	KEEL_FAR_MORE,
	KEEL_FAR_IDLE,
	KEEL_FAR_LATER,
	KEEL_FAR_AWAY,
	KEEL_FAR_ABSENT,
	KEEL_FAR_TAKEN,
};

/**
 * keel_psn_diff() - compare numbers of packets
 * @a: a number
 * @b: another one
 *
 * Return: how far @a is behind @b; negative if it is before.
 */
static inline s32 keel_psn_diff(u32 a, u32 b)
{
	return (s32)((a - b) << 8) >> 8;
}

/* far.c */
int keel_far_attach(struct keel_qp *qp, const struct keel_av *av);
#if IS_ENABLED(CONFIG_KUNIT)
int keel_far_give(struct keel_qp *qp, struct keel_link *link);
#endif
int keel_far_listen(struct keel_qp *qp);
u8 keel_far_transport(const struct keel_qp *qp);
void keel_far_enter(struct keel_far *far) __acquires(&far->from.lock);
void keel_far_leave(struct keel_far *far) __releases(&far->from.lock);
void keel_far_expect(struct keel_far *far, u32 psn);
void keel_far_detach(struct keel_far *far);
struct keel_far_slot *keel_far_first(struct keel_far *far, struct keel_far_list *list)
	__must_hold(&far->lock);
void keel_far_free_first(struct keel_far *far, struct keel_far_list *list)
	__must_hold(&far->lock);
void keel_far_free_rest(struct keel_far *far, struct keel_far_list *list)
	__must_hold(&far->lock);

/**
 * keel_far_was_executed() - was a packet executed in this life of the QP?
 * @far: of the QP
 * @psn: number of the packet
 *
 * Return: true if it was one of the last KEEL_FAR_WINDOW packets. An honest requester
 * sends no older one again.
 */
static inline bool keel_far_was_executed(const struct keel_far *far, u32 psn)
	__must_hold(&far->lock)
{
	s32 before = keel_psn_diff(far->done, psn);

	return before > 0 && before <= (s32)far->executed;
}

/**
 * keel_far_ends() - the link that a datagram came from
 * @slot: the datagram
 *
 * Return: its ends.
 */
static inline struct keel_ends *keel_far_ends(const struct keel_far_slot *slot)
{
	return &container_of((u8 (*)[KEEL_FRAME_DATA])slot->data, struct keel_far_dgram,
			     data)->ends;
}

/* far_long.c */
void keel_far_grow(struct keel_far *far);
void keel_far_free(struct keel_far *far);
bool keel_far_use_long(struct keel_far_slot *slot, struct keel_far_longs *longs);
void keel_far_unuse_long(struct keel_far_slot *slot);
u32 keel_far_grant(struct keel_far *far);
bool keel_far_is_full(const struct keel_far *far);
void keel_far_note_packet(struct keel_far *far, u32 n);
u32 keel_far_size(const struct keel_xfer *x) __must_hold(&x->from->lock);
bool keel_far_has_room(const struct keel_far *far, u32 size, s32 window);
void keel_far_want(struct keel_far_longs *longs);
u32 keel_far_una_size(const struct keel_xfer *x);

/* far_pace.c */
void keel_far_tally(struct keel_far *far);
bool keel_far_is_busy(const struct keel_far *far);
bool keel_far_may_wait(struct keel_far *far);
void keel_far_follows(struct keel_far *far);

/* far_tx.c */
void keel_far_tell(struct keel_link *link, const struct keel_frame *request, u8 result);
u64 keel_far_after(u64 now, u64 ns);
u64 keel_far_peer_ns(const struct keel_qp *qp);
u64 keel_far_resend_ns(const struct keel_qp *qp);
bool keel_far_is_untried(const struct keel_far *far);
void keel_far_renew(struct keel_far *far);
enum keel_xfer_result keel_far_end(struct keel_xfer *x, enum ib_wc_status status, u32 why);
void keel_far_back(struct keel_xfer *x, struct keel_far *far) __must_hold(&x->from->lock);
enum keel_copy_result keel_far_copy(struct keel_xfer *x, const struct keel_segs *dst,
				    u64 dst_off, const struct keel_segs *src, u64 src_off,
				    u64 len)
	__must_hold(&x->from->lock);
enum keel_xfer_result keel_far_uncopied(struct keel_xfer *x, enum keel_copy_result copied);
enum keel_copy_result keel_far_one(struct keel_xfer *x, s32 window, bool *more)
	__must_hold(&x->from->lock);

/* far_uc.c */
void keel_far_heard(struct keel_far *far, u64 now);
enum keel_xfer_result keel_far_stream(struct keel_xfer *x, u64 now)
	__must_hold(&x->from->lock);

/* far_dgram.c */
enum keel_xfer_result keel_far_dgram_send(struct keel_xfer *x, const struct keel_av *av,
					  u32 qkey)
	__must_hold(&x->from->lock);
enum keel_xfer_result keel_far_group_send(struct keel_xfer *x, const struct keel_av *av,
					  u32 qkey)
	__must_hold(&x->from->lock);
void keel_far_dgram_answer(struct keel_dev *kdev, const struct keel_ends *ends,
			   const struct keel_frame *frame);

/* far_send.c */
enum keel_xfer_result keel_far_send(struct keel_xfer *x) __must_hold(&x->from->lock);
bool keel_far_knows(const struct keel_far *far, u32 index);
bool keel_far_has_len(const struct keel_xfer *x, u32 index);
void keel_far_note(const struct keel_xfer *x, u32 index);
void keel_far_start_wqe(struct keel_far *far, u32 index);
void keel_far_wait(struct keel_qp *qp);
bool keel_far_has_begun(const struct keel_qp *qp);
void keel_far_drained(struct keel_qp *qp);

/* far_ahead.c */
bool keel_far_is_ahead(const struct keel_qp *qp);
bool keel_far_next_wqe(const struct keel_qp *qp, int posted, u32 *index);
bool keel_far_follow(struct keel_xfer *x, u32 index) __must_hold(&x->from->lock);

/* far_recv.c */
extern const struct keel_wire_ops keel_far_ops;

/* far_xrc.c */
void keel_far_resume(struct keel_far *far);
void keel_far_unaim(struct keel_far *far);
struct keel_far *keel_far_pop(struct keel_srq *srq);
enum keel_far_place keel_far_place(const struct keel_far *far, const struct keel_frame *frame,
				   const struct keel_srq *srq);

/* far_serve.c */
void keel_far_serve(struct keel_srq *srq);

/* far_packet.c */
bool keel_far_may_execute(const struct keel_qp *qp);
bool keel_far_is_data(u8 opcode);
bool keel_far_is_short(const struct keel_frame *frame);
void keel_far_wqe(const struct keel_frame *frame, struct keel_uapi_send_wqe *wqe);
enum keel_xfer_result keel_far_try(struct keel_xfer *x, struct keel_far *far,
				   struct keel_far_slot *slot, const struct keel_srq *srq)
	__must_hold(&x->from->lock);

/* far_run.c */
enum keel_far_step keel_far_step(struct keel_far *far, const struct keel_srq *srq,
				 struct keel_xfer *x)
	__must_hold(&far->from.lock);
void keel_far_finish(struct keel_far *far);

/* far_turn.c */
void keel_far_run(struct keel_far *far, const struct keel_srq *srq);
bool keel_far_run_once(struct keel_far *far, bool late);
#if IS_ENABLED(CONFIG_KUNIT)
extern u64 keel_far_turn_ns;
#endif

/* far_now.c */
void keel_far_arrived(struct keel_far *far, const struct keel_link *link,
		      const struct keel_frame *frame, bool late);
void keel_far_is_answered(struct keel_qp *qp, const struct keel_link *link,
			  const struct keel_frame *frame);
#if IS_ENABLED(CONFIG_KUNIT)
bool keel_far_has_owner(const struct keel_qp *qp);
extern u64 keel_far_now_ns;
#endif

#endif /* KEEL_FAR_H */
