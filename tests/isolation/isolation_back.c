// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that cannot be faulted in now, but a moment later: reliable
 * connections wait for such memory, and neither lose nor repeat a message. A
 * process that maps and unmaps memory all the time is an example of such an
 * owner.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "iso.h"
#include "qp.h"
#include "stall.h"
#include "t.h"

#define AWAY_MS		300
#define MESSAGES	500

enum { OWNER, OTHER };

static enum iso_type type;
static enum ibv_wr_opcode op;
static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));
static char more[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));

/* The responder: messages or RDMA of the requester access its memory. */
static void receiver(struct peer *parent)
{
	struct iso_end e;
	char *memory = stall_memory(ISO_PAGE);

	iso_open(&e, KEEL0, NULL, type);
	e.mr = iso_mr(&e, memory, IBV_ACCESS_ON_DEMAND);
	iso_meet(&e, parent);
	if (op == IBV_WR_SEND)
		iso_post_recv(&e, 1, e.mr);
	stall_hold();
	peer_tell(parent);
	if (op == IBV_WR_SEND)
		CHECK_WC(e.cq, 1, IBV_WC_SUCCESS);
	peer_wait(parent);
	switch (op) {
	case IBV_WR_RDMA_READ:
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		/*
		 * The atomic was executed once, on the zeros of a fresh page.
		 */
		CHECK_EQ(*(uint64_t *)memory, 1);
		break;
	default:
		CHECK_ALL(memory, 'x', 64);
	}
	CHECK_ALL(memory + 64, 0, ISO_PAGE - 64);
	CHECK_NO_WC(e.cq);
	peer_tell(parent);
}

static void sender(struct peer *parent)
{
	struct iso_end e;
	struct ibv_mr *mr;

	iso_open(&e, KEEL0, NULL, type);
	e.patient = true;
	mr = iso_mr(&e, page, 0);
	memset(page, 'x', ISO_PAGE);
	iso_meet(&e, parent);
	peer_wait(parent);
	if (op == IBV_WR_SEND)
		CHECK_OK(iso_send(&e, 2, mr));
	else
		CHECK_OK(iso_rdma(&e, op, 2, mr));
	CHECK_WC(e.cq, 2, IBV_WC_SUCCESS);
	if (op == IBV_WR_RDMA_READ)
		CHECK_ALL(page, 0, 64);
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD)
		CHECK_ALL(page, 0, 8);
	peer_tell(parent);
	peer_wait(parent);
}

static void check_back(enum iso_type t, enum ibv_wr_opcode o)
{
	struct stall s;
	struct peer p;

	type = t;
	op = o;
	stall_start(&s, receiver);
	peer_start(&p, sender);
	iso_introduce(&s.peer, &p);
	peer_wait(&s.peer);
	peer_tell(&p);
	CHECK(!iso_told(&p, AWAY_MS));
	stall_release(&s);
	CHECK_WITHIN(&p, "the completion, when the memory is there again");
	CHECK_STEP(&s.peer, "the receiver's completion");
	CHECK_KILL(&p, "the sender");
	stall_end(&s);
	iso_check_empty(KEEL0);
}

#define BACK	" completes when the memory is back 300 ms later, and not before"
#define BACK_ONCE	BACK ", and takes effect once"

TEST(send_back, "ISO-1", "an RC send to a receive WQE whose memory cannot be faulted in" BACK_ONCE)
{
	check_back(ISO_RC, IBV_WR_SEND);
}

TEST(xrc_send_back, "ISO-1", "an XRC send to a receive WQE whose memory cannot be faulted in" BACK_ONCE)
{
	check_back(ISO_XRC, IBV_WR_SEND);
}

TEST(write_back, "ISO-1", "an RDMA write to memory that cannot be faulted in" BACK)
{
	check_back(ISO_RC, IBV_WR_RDMA_WRITE);
}

TEST(read_back, "ISO-1", "an RDMA read of memory that cannot be faulted in" BACK)
{
	check_back(ISO_RC, IBV_WR_RDMA_READ);
}

TEST(atomic_back, "ISO-1", "an atomic on memory that cannot be faulted in" BACK_ONCE)
{
	check_back(ISO_RC, IBV_WR_ATOMIC_FETCH_AND_ADD);
}

/* The requester sends from its own memory that cannot be faulted in. */
static void away(struct peer *parent)
{
	struct iso_end e;
	char *memory = stall_memory(ISO_PAGE);
	struct ibv_mr *mr;

	iso_open(&e, KEEL0, NULL, type);
	mr = iso_mr(&e, memory, IBV_ACCESS_ON_DEMAND);
	iso_meet(&e, parent);
	peer_wait(parent);
	stall_hold();
	peer_tell(parent);
	CHECK_OK(iso_send(&e, 1, mr));
	CHECK_WC(e.cq, 1, IBV_WC_SUCCESS);
	peer_tell(parent);
	peer_wait(parent);
}

static void taker(struct peer *parent)
{
	struct iso_end e;

	iso_open(&e, KEEL0, NULL, type);
	e.mr = iso_mr(&e, page, 0);
	memset(page, 'y', ISO_PAGE);
	iso_meet(&e, parent);
	iso_post_recv(&e, 2, e.mr);
	peer_tell(parent);
	CHECK_WC(e.cq, 2, IBV_WC_SUCCESS);
	CHECK_ALL(page, 0, 64);
	CHECK_ALL(page + 64, 'y', ISO_PAGE - 64);
	peer_tell(parent);
	peer_wait(parent);
}

TEST(source_back, "ISO-1", "an RC send from memory that cannot be faulted in" BACK_ONCE)
{
	struct stall s;
	struct peer p;

	type = ISO_RC;
	stall_start(&s, away);
	peer_start(&p, taker);
	iso_introduce(&s.peer, &p);
	peer_wait(&p);
	peer_tell(&s.peer);
	peer_wait(&s.peer);
	CHECK(!iso_told(&s.peer, AWAY_MS));
	CHECK(!iso_told(&p, 0));
	stall_release(&s);
	CHECK_WITHIN(&s.peer, "the sender's completion");
	CHECK_WITHIN(&p, "the receiver's completion");
	CHECK_KILL(&p, "the receiver");
	stall_end(&s);
	iso_check_empty(KEEL0);
}

static atomic_bool over;

/* A writer of the mmap_lock keeps all readers out. */
static void *map_all_the_time(void *arg)
{
	void *p;

	while (!atomic_load(&over)) {
		p = mmap(NULL, 64 * ISO_PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		CHECK(p != MAP_FAILED);
		munmap(p, 64 * ISO_PAGE);
	}
	return NULL;
}

TEST(busy_owner, "ISO-1", "messages and RDMA succeed on on-demand memory of a process that maps and unmaps memory all the time")
{
	pthread_t thread;
	struct link l;
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_mr *src = MUST(ibv_reg_mr(pd, page, ISO_PAGE, ISO_RIGHTS |
					     IBV_ACCESS_ON_DEMAND));
	struct ibv_mr *dst = MUST(ibv_reg_mr(pd, more, ISO_PAGE, ISO_RIGHTS |
					     IBV_ACCESS_ON_DEMAND));
	int i;

	l = link_new(pd, pd, IBV_QPT_RC);
	CHECK_OK(pthread_create(&thread, NULL, map_all_the_time, NULL));
	for (i = 0; i < t_rounds(MESSAGES); i++) {
		madvise(more, ISO_PAGE, MADV_DONTNEED);
		memset(page, i | 1, ISO_PAGE);
		post_recv(l.qp[1], 1, MEM(dst));
		post_send(l.qp[0], 2, MEM(src));
		CHECK_WC(l.cq[1], 1, IBV_WC_SUCCESS);
		CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
		CHECK_ALL(more, (unsigned char)(i | 1), ISO_PAGE);
		post_rdma(l.qp[0], IBV_WR_RDMA_READ, 3, MEM(src),
			  (uintptr_t)more, dst->rkey);
		CHECK_WC(l.cq[0], 3, IBV_WC_SUCCESS);
	}
	atomic_store(&over, true);
	CHECK_OK(pthread_join(thread, NULL));
	link_free(&l);
}
