/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The connection of a link, for the files of wire/ and their tests.
 */
#ifndef KEEL_CONN_H
#define KEEL_CONN_H

#include <linux/bitops.h>
#include <linux/hrtimer.h>

#include "keel_wire.h"

/*
 * Entries of the queues of a connection. One to send for each chunk, and one for their MR; and one
 * of each queue for ib_drain_qp().
 */
#define KEEL_CONN_SENDS		(KEEL_LINK_SENDS + KEEL_CHUNKS + 1 + 1)
#define KEEL_CONN_RECVS		(KEEL_LINK_RECVS + 1)

/* Messages that are really under way when short frames wait together, at least: batch.c. */
#define KEEL_BATCH_AFTER	4
/* Most bytes of data in such a frame. */
#define KEEL_BATCH_DATA		512
/* How long a frame waits for others, ns: less than a message takes on a slow network. */
#define KEEL_BATCH_NS		(200 * NSEC_PER_USEC)
/*
 * One completion for so many messages, unless &keel_lower.signals: each wakes the thread.
 * While frames wait together, one of those that are under way has a completion, which sends them.
 */
#define KEEL_CONN_SIGNAL	KEEL_BATCH_AFTER

/*
 * Chunks are made of such parts: few enough for one work request of siw, which takes six, and short
 * enough that the kernel can make them by moving what it has.
 */
#if PAGE_SHIFT > 16
#define KEEL_PART		PAGE_SIZE
#else
#define KEEL_PART		SZ_64K
#endif
#define KEEL_CHUNK_PARTS	(KEEL_CHUNK_DATA / KEEL_PART)
#define KEEL_AREA_PARTS		(KEEL_CHUNKS * KEEL_CHUNK_PARTS)

/**
 * struct keel_area - the memory of all chunks of one direction
 * @data: the first chunk, which the others follow
 * @parts: the same memory, in parts
 * @dma: their addresses for the lower device, or 0
 */
struct keel_area {
	u8 *data;
	void *parts[KEEL_AREA_PARTS];
	u64 dma[KEEL_AREA_PARTS];
};

/**
 * struct keel_chunks - the chunks of a connection
 * @work: frees them
 * @cqe: for RDMA writes
 * @reg_cqe: for the registration
 * @mr: the MR of @recv
 * @send: data for the chunks of the other side: each chunk has its counterpart there
 * @recv: chunks of this side: the other side may write to them at any time
 */
struct keel_chunks {
	struct work_struct work;
	struct ib_cqe cqe;
	struct ib_cqe reg_cqe;
	struct ib_mr *mr;
	struct keel_area send;
	struct keel_area recv;
};

/* The time of which the thread of a connection may be urgent for a part, ns: handler.c. */
#define KEEL_URGENT_PERIOD	(10 * NSEC_PER_MSEC)

/**
 * struct keel_urgent - how urgent the thread of a connection is
 * @is: it is so now
 * @counts: it is one of those that may be so
 * @over: it has used its share
 * @at: until when its time was reckoned, ns
 * @since: when the period began, ns
 * @used: for how long it was so since then, and what earlier periods have left of it, ns
 */
struct keel_urgent {
	bool is;
	bool counts;
	bool over;
	u64 at;
	u64 since;
	u64 used;
};

/* States of a connection. */
enum keel_conn_state {
	KEEL_CONN_NEW,		/* the other side has not answered yet */
	KEEL_CONN_UP,		/* it carries frames */
	KEEL_CONN_OVER,		/* it ends */
};

/* Events of a connection: bits of &keel_conn.events. */
enum keel_conn_event {
	KEEL_CONN_REPLIED,	/* the other side has accepted it */
	KEEL_CONN_CONFIRMED,	/* the other side has sent a frame over it */
	KEEL_CONN_ENDED,	/* it is broken, or the other side has ended it */
	KEEL_CONN_EVICTED,	/* another guest has its place, unless it is confirmed */
};

/**
 * struct keel_conn - the connection of a link
 * @ref: one of the link, one for each buffer that keel_link_tx() has lent
 * @node: in &keel_link.offers or &keel_link.guests
 * @guest: in the list of all guests that are not confirmed
 * @link: the link, with a reference
 * @lower: the device that carries it, with a reference
 * @pd: its PD: keys of its chunks are of no use for other connections
 * @id: of ib_cm, or NULL
 * @iw: of iw_cm, or NULL
 * @caller: iw_cm: the thread that connects, with a reference, or NULL
 * @called: completed when @caller needs the connection no more
 * @active: this side has asked for it
 * @request: it counts as a request of another host
 * @confirmed: the work has seen KEEL_CONN_CONFIRMED
 * @psn: the first one that this side expects
 * @cookie: &keel_frame.cookie of the frames that this side accepts
 * @since: when it was made or accepted, jiffies; only for @work of the link
 * @repeats: how often KEEL_FRAME_ASK was repeated; only for @work of the link
 * @untold: buffers to receive that the other side has got no credits for at first
 * @hello: of the other side; valid for @work of the link after an event
 * @events: enum keel_conn_event, for @work of the link
 * @cq: completions, which @thread handles one after the other
 * @thread: the thread: handler.c
 * @urgent: of @thread, only for it
 * @qp: the QP
 * @posted: number of @recvs that were posted
 * @headers: memory of all headers
 * @lock: protects the members up to @batch_slow, but for three
 * @state: its state
 * @free: struct keel_buf: buffers to send
 * @nfree: their number
 * @dgrams: number of buffers in use with &keel_buf.shared
 * @dgram_users: who has them, but for the kernel; only compared: an address may be that of another
 *	user by now, who has one less then
 * @kernels: likewise with &keel_buf.kernel
 * @credits: number of messages that the other side can receive
 * @owed: number of messages that this side has received, and not given credits for
 * @owes_alive: KEEL_FRAME_ASK was received, and not answered
 * @chunks: its chunks, or NULL: not yet, or the lower device or memory does not allow it
 * @tried_chunks: if there are none, there will be none
 * @owes_chunks: KEEL_FRAME_CHUNKS is to be sent
 * @told_chunks: KEEL_FRAME_CHUNKS was received, with @chunks_addr and @chunks_rkey
 * @chunks_addr: &keel_frame.chunks.addr of the other side
 * @chunks_rkey: likewise, the rkey
 * @chunks_free: bits: chunks of the other side that nobody has
 * @chunks_out: bits: those that were sent, and that the other side has not freed
 * @chunks_writing: bits: those that the lower device still reads on this side
 * @chunks_freed: bits: chunks of this side that were read, and that the other side does not
 *	know of
 * @chunks_moved: when one was taken last, jiffies
 * @posts: buffers that were posted, and are not known to be completed; the oldest first
 * @under_way: their number
 * @unsignaled: number of the last ones that have no completion
 * @batch: short frames that will be sent in one message, or NULL: batch.c
 * @batch_len: bytes of them, with their headers
 * @load: grows with each frame that has KEEL_FRAME_F_BUSY, and else falls; only for @thread
 * @load_at: when the last one came, jiffies; likewise
 * @busy: many messages are under way; only @thread writes it, under &keel_link.lock, under which
 *	others read it
 * @batch_slow: it has only answers that wait for a request
 * @batch_ns: how long it waits at most, ns; of KUnit for ever
 * @patient_ns: the same with @batch_slow
 * @batch_timer: has @flush queued then
 * @flush: sends the batch
 * @sends: buffers to send
 * @recvs: buffers to receive
 */
struct keel_conn {
	struct kref ref;
	struct list_head node;
	struct list_head guest;
	struct keel_link *link;
	struct keel_lower *lower;
	struct ib_pd *pd;
	struct ib_cm_id *id;
	struct iw_cm_id *iw;
	struct task_struct *caller;
	struct completion called;
	bool active;
	bool request;
	bool confirmed;
	u32 psn;
	__le64 cookie;
	unsigned long since;
	u32 repeats;
	u32 untold;
	struct keel_hello hello;
	unsigned long events;
	struct ib_cq *cq;
	struct task_struct *thread;
	struct keel_urgent urgent;
	struct ib_qp *qp;
	int posted;
	struct keel_frame *headers;
	spinlock_t lock;
	enum keel_conn_state state __guarded_by(&lock);
	struct list_head free __guarded_by(&lock);
	u32 nfree __guarded_by(&lock);
	u32 dgrams __guarded_by(&lock);
	const struct keel_user *dgram_users[KEEL_LINK_DGRAMS] __guarded_by(&lock);
	u32 kernels __guarded_by(&lock);
	u32 credits __guarded_by(&lock);
	u32 owed __guarded_by(&lock);
	bool owes_alive __guarded_by(&lock);
	struct keel_chunks *chunks __guarded_by(&lock);
	bool tried_chunks __guarded_by(&lock);
	bool owes_chunks __guarded_by(&lock);
	bool told_chunks __guarded_by(&lock);
	u64 chunks_addr __guarded_by(&lock);
	u32 chunks_rkey __guarded_by(&lock);
	unsigned long chunks_free __guarded_by(&lock);
	unsigned long chunks_out __guarded_by(&lock);
	unsigned long chunks_writing __guarded_by(&lock);
	unsigned long chunks_freed __guarded_by(&lock);
	unsigned long chunks_moved __guarded_by(&lock);
	struct list_head posts __guarded_by(&lock);
	u32 under_way __guarded_by(&lock);
	u32 unsignaled __guarded_by(&lock);
	struct keel_buf *batch __guarded_by(&lock);
	u32 batch_len __guarded_by(&lock);
	u32 load;
	unsigned long load_at;
	bool busy;
	bool batch_slow __guarded_by(&lock);
	u64 batch_ns;
	u64 patient_ns;
	struct hrtimer batch_timer;
	struct work_struct flush;
	struct keel_buf sends[KEEL_LINK_SENDS];
	struct keel_buf recvs[KEEL_LINK_RECVS];
};

/* state.c */
void keel_conn_event(struct keel_conn *conn, enum keel_conn_event event);

/* buf.c */
bool keel_buf_headers(struct keel_conn *conn);
int keel_buf_map(struct keel_conn *conn, struct keel_buf *buf, int i,
		 enum dma_data_direction dir);
void keel_buf_unmap(struct keel_conn *conn, struct keel_buf *buf, enum dma_data_direction dir);
int keel_buf_post_recv(struct keel_buf *buf);
int keel_buf_post_send(struct keel_buf *buf, u32 len, bool signal)
	__must_hold(&buf->conn->lock);

/* load.c */
void keel_load_frame(struct keel_conn *conn, const struct keel_frame *frame);
void keel_load_rest(struct keel_conn *conn);
#if IS_ENABLED(CONFIG_KUNIT)
u64 keel_load_slot(void);
#endif

/* asleep.c */
int keel_asleep_start(void);
void keel_asleep_stop(void);

/* handler.c */
int keel_handler_start(struct keel_conn *conn);
void keel_handler_stop(struct keel_conn *conn);
#if IS_ENABLED(CONFIG_KUNIT)
u64 keel_urgent_most(u32 threads, u32 cpus, u32 percent);
bool keel_urgent_note(struct keel_urgent *urgent, u64 start, u64 end, u64 most);
#endif

/* batch.c */
bool keel_batch_takes(const struct keel_buf *buf, const struct keel_frame *frame, u32 len)
	__must_hold(&buf->conn->lock);
bool keel_batch_waits(const struct keel_buf *buf) __must_hold(&buf->conn->lock);
bool keel_batch_has_room(const struct keel_conn *conn, u32 len) __must_hold(&conn->lock);
void keel_batch_add(struct keel_buf *buf, const struct keel_frame *frame, u32 len)
	__must_hold(&buf->conn->lock);
void keel_batch_init(struct keel_conn *conn);
const void *keel_batch_next(const void *data, u32 len, u32 *off, struct keel_frame *frame);

/* conn.c */
bool keel_conn_up(struct keel_conn *conn);
void keel_conn_end(struct keel_conn *conn);
bool keel_conn_is_up(struct keel_conn *conn);
u32 keel_conn_room_locked(struct keel_conn *conn) __must_hold(&conn->lock);
u32 keel_conn_room(struct keel_conn *conn);
bool keel_conn_has_kernel_room(struct keel_conn *conn) __must_hold(&conn->lock);
bool keel_conn_tell(struct keel_conn *conn, enum keel_frame_type type);
struct keel_buf *keel_conn_take(struct keel_conn *conn, u32 len) __must_hold(&conn->lock);
void keel_conn_give_back(struct keel_buf *buf) __must_hold(&buf->conn->lock);
bool keel_conn_send(struct keel_buf *buf, const struct keel_frame *frame, u32 len)
	__must_hold(&buf->conn->lock);
void keel_conn_flush_work(struct work_struct *work);
void keel_conn_settle(struct keel_conn *conn) __must_hold(&conn->lock);
void keel_conn_sent(struct ib_cq *cq, struct ib_wc *wc);
void keel_conn_received(struct ib_cq *cq, struct ib_wc *wc);

/* conn_make.c */
struct keel_conn *keel_conn_new(struct keel_link *link, struct keel_lower *lower);
int keel_conn_begin(struct keel_conn *conn);
int keel_conn_post(struct keel_conn *conn, int n);
int keel_conn_fill(struct keel_conn *conn);
void keel_conn_add_chunks(struct keel_conn *conn);
void keel_conn_destroy(struct keel_conn *conn);
void keel_conn_put(struct keel_conn *conn);

/* area.c */
struct keel_chunks *keel_chunks_new(struct keel_conn *conn);
void keel_chunks_unmap(struct keel_lower *lower, struct keel_chunks *chunks);
void keel_chunks_free(struct keel_chunks *chunks);
int keel_chunks_post(struct keel_chunks *chunks, struct ib_qp *qp);
void *keel_chunk_data(const struct keel_area *area, u32 chunk);
void keel_chunk_to_device(struct keel_lower *lower, const struct keel_area *area, u32 chunk,
			  u32 len);
void keel_chunk_to_cpu(struct keel_lower *lower, const struct keel_area *area, u32 chunk,
		       u32 len);

/* chunk.c */
bool keel_conn_may_add_chunks(struct keel_conn *conn);
bool keel_conn_is_told(struct keel_conn *conn);
bool keel_conn_chunks_stuck(struct keel_conn *conn, unsigned long time);
bool keel_conn_learn(struct keel_conn *conn, const struct keel_frame *frame);
void keel_chunk_take(struct keel_buf *buf) __must_hold(&buf->conn->lock);
void keel_chunk_give_back(struct keel_buf *buf) __must_hold(&buf->conn->lock);
void keel_chunk_sent(struct keel_buf *buf) __must_hold(&buf->conn->lock);
bool keel_chunks_return(struct keel_conn *conn, unsigned long freed)
	__must_hold(&conn->lock);
void keel_chunk_wr(struct keel_buf *buf, u32 len, struct ib_rdma_wr *wr, struct ib_sge *sge)
	__must_hold(&buf->conn->lock);
const void *keel_chunk_get(struct keel_conn *conn, const struct keel_frame *frame);

/**
 * keel_conn_has_chunks() - can data be sent in chunks?
 * @conn: the connection
 *
 * Context: any but interrupts.
 * Return: true if so, although all may be in use now.
 */
static inline bool keel_conn_has_chunks(const struct keel_conn *conn)
	__must_hold(&conn->lock)
{
	return conn->state == KEEL_CONN_UP && conn->chunks && conn->told_chunks;
}

/**
 * keel_chunks_now() - the chunks that can be written now
 * @conn: the connection
 *
 * Context: any but interrupts.
 * Return: bits.
 */
static inline unsigned long keel_chunks_now(const struct keel_conn *conn)
	__must_hold(&conn->lock)
{
	return conn->chunks_free & ~conn->chunks_writing;
}

/**
 * keel_chunks_ready() - how many chunks are there for data?
 * @conn: the connection
 *
 * Context: any but interrupts.
 * Return: their number.
 */
static inline u32 keel_chunks_ready(const struct keel_conn *conn)
	__must_hold(&conn->lock)
{
	return keel_conn_has_chunks(conn) ? hweight_long(keel_chunks_now(conn)) : 0;
}

#endif /* KEEL_CONN_H */
