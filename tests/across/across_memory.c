// SPDX-License-Identifier: GPL-2.0
/*
 * Between two hosts: memory of each kind, at both ends; and what processes of one host share,
 * which the other host does not notice.
 */
#include <signal.h>
#include <sys/mman.h>

#include <infiniband/keeldv.h>
#include <infiniband/shpd.h>

#include "buf.h"
#include "hosts.h"
#include "peer.h"
#include "qp.h"
#include "t.h"

#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |	\
		 IBV_ACCESS_REMOTE_WRITE)
#define KEY	0x0123456789abcdefULL
/* A part that begins in one page, and ends in the last one. */
#define PART	77
#define PART_BYTES	(SIZE - PART - 55)
#define WORD	64

/* Memory of SIZE bytes at one end. */
struct place {
	struct ibv_mr *mr;
	/* Address for work requests, and for this process. */
	uint64_t addr;
	char *map;
	struct ibv_dm *dm;
	struct buf buf;
};

static struct end a, b;

void t_end(void)
{
	hosts_down();
}

static struct place place_dm(struct end *e)
{
	struct ibv_alloc_dm_attr attr = { .length = SIZE };
	struct place p = { .dm = MUST(ibv_alloc_dm(e->ctx, &attr)) };

	p.mr = MUST(ibv_reg_dm_mr(e->pd, p.dm, 0, SIZE,
				  RIGHTS | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED));
	p.map = MUST(keeldv_dm_map(p.dm));
	return p;
}

/* No page is there before the first transfer. */
static struct place place_absent(struct end *e)
{
	struct place p = {
		.map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0),
	};

	CHECK(p.map != MAP_FAILED);
	p.addr = (uintptr_t)p.map;
	p.mr = MUST(ibv_reg_mr(e->pd, p.map, SIZE,
			       RIGHTS | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ON_DEMAND));
	return p;
}

/* All bytes are at their places of the dma-buf, and not of the mapping: it is not looked at. */
static struct place place_dmabuf(struct end *e)
{
	struct place p = { .buf = buf_new() };

	p.mr = MUST(ibv_reg_dmabuf_mr(e->pd, 0, SIZE, 0, p.buf.fd, RIGHTS));
	return p;
}

static void place_free(struct place *p)
{
	CHECK_OK(ibv_dereg_mr(p->mr));
	if (p->dm)
		CHECK_OK(ibv_free_dm(p->dm));
	else if (p->map)
		SYS(munmap(p->map, SIZE));
	else
		buf_close(&p->buf);
}

/* Byte @at of a place. */
static char byte_of(const struct place *p, size_t at)
{
	return p->map ? p->map[at] : buf_page(&p->buf, at / PAGE)[at % PAGE];
}

static void check_place(const struct place *p, const char *want, size_t off, size_t len,
			char around)
{
	size_t i;

	for (i = 0; i < SIZE; i++)
		if (byte_of(p, i) != (i >= off && i < off + len ? want[i - off] : around))
			FAIL("byte %zu: got %d", i, byte_of(p, i));
}

static void pattern(struct end *e, unsigned int seed)
{
	size_t i;

	for (i = 0; i < SIZE; i++)
		e->mem[i] = (i * 7 + i / 251 + seed) & 0x7f;
}

static struct mem ordinary(const struct end *e, uint32_t len)
{
	return (struct mem){ e->mem, len, e->mr->lkey };
}

static struct mem at(const struct place *p, size_t off, uint32_t len)
{
	return (struct mem){ (void *)(uintptr_t)(p->addr + off), len, p->mr->lkey };
}

/* Host 0 writes, reads and sends to memory of host 1. */
static void target(struct place (*make)(struct end *e), char before)
{
	struct place p;

	p = make(&b);
	pattern(&a, 1);
	post_rdma(a.qp, IBV_WR_RDMA_WRITE, 1, ordinary(&a, PART_BYTES), p.addr + PART,
		  p.mr->rkey);
	CHECK_WC(a.cq, 1, IBV_WC_SUCCESS);
	check_place(&p, a.mem, PART, PART_BYTES, before);
	memset(b.mem, 0, SIZE);
	memcpy(b.mem, a.mem, PART_BYTES);
	memset(a.mem, 'x', SIZE);
	post_rdma(a.qp, IBV_WR_RDMA_READ, 2, ordinary(&a, PART_BYTES), p.addr + PART,
		  p.mr->rkey);
	CHECK_WC(a.cq, 2, IBV_WC_SUCCESS);
	CHECK_MEM(a.mem, b.mem, PART_BYTES);
	CHECK_ALL(a.mem + PART_BYTES, 'x', SIZE - PART_BYTES);
	pattern(&a, 2);
	post_recv(b.qp, 4, at(&p, 0, SIZE));
	post_send(a.qp, 3, ordinary(&a, SIZE));
	CHECK_WC(a.cq, 3, IBV_WC_SUCCESS);
	CHECK_EQ(CHECK_WC(b.cq, 4, IBV_WC_SUCCESS).byte_len, SIZE);
	check_place(&p, a.mem, 0, SIZE, 0);
	post_rdma(a.qp, IBV_WR_RDMA_WRITE, 5, ordinary(&a, 2), p.addr + SIZE - 1, p.mr->rkey);
	CHECK_WC(a.cq, 5, IBV_WC_REM_ACCESS_ERR);
	check_place(&p, a.mem, 0, SIZE, 0);
	place_free(&p);
}

/* Host 0 writes from such memory, sends from it, and reads into it. */
static void source(struct place (*make)(struct end *e))
{
	struct place p = make(&a);

	pattern(&b, 3);
	post_rdma(a.qp, IBV_WR_RDMA_READ, 1, at(&p, 0, SIZE), (uintptr_t)b.mem, b.mr->rkey);
	CHECK_WC(a.cq, 1, IBV_WC_SUCCESS);
	check_place(&p, b.mem, 0, SIZE, 0);
	memcpy(a.mem, b.mem, SIZE);
	memset(b.mem, 'x', SIZE);
	post_rdma(a.qp, IBV_WR_RDMA_WRITE, 2, at(&p, PART, PART_BYTES), (uintptr_t)b.mem,
		  b.mr->rkey);
	CHECK_WC(a.cq, 2, IBV_WC_SUCCESS);
	CHECK_MEM(b.mem, a.mem + PART, PART_BYTES);
	CHECK_ALL(b.mem + PART_BYTES, 'x', SIZE - PART_BYTES);
	memset(b.mem, 'x', SIZE);
	post_recv(b.qp, 4, ordinary(&b, SIZE));
	post_send(a.qp, 3, at(&p, PART, PART_BYTES));
	CHECK_WC(a.cq, 3, IBV_WC_SUCCESS);
	CHECK_EQ(CHECK_WC(b.cq, 4, IBV_WC_SUCCESS).byte_len, PART_BYTES);
	CHECK_MEM(b.mem, a.mem + PART, PART_BYTES);
	CHECK_ALL(b.mem + PART_BYTES, 'x', SIZE - PART_BYTES);
	place_free(&p);
}

/* Two additions to a word of host 1, the first of which may find no page. */
static void atomics(struct place (*make)(struct end *e))
{
	struct place p = make(&b);
	uint64_t word;
	int i;

	for (i = 0; i < 2; i++) {
		memset(a.mem, 'x', 16);
		post_add(a.qp, i, ordinary(&a, 8), p.addr + WORD, p.mr->rkey, 5);
		CHECK_WC(a.cq, i, IBV_WC_SUCCESS);
		memcpy(&word, a.mem, sizeof(word));
		CHECK_EQ(word, 5 * i);
		CHECK_ALL(a.mem + 8, 'x', 8);
	}
	memcpy(&word, p.map + WORD, sizeof(word));
	CHECK_EQ(word, 10);
	place_free(&p);
}

static void begin(void)
{
	hosts_up();
	a = end_new(0);
	b = end_new(1);
	ends_join(&a, &b, &joint_usual);
}

static void end(void)
{
	end_free(&a);
	end_free(&b);
}

/* Each ends with a QP in ERR. */
static void both(struct place (*make)(struct end *e), char before)
{
	begin();
	source(make);
	target(make, before);
	end();
}

TEST(dm, "HOST-1", "device memory is the source and the target of transfers to another host")
{
	both(place_dm, 0);
}

TEST(on_demand, "HOST-1", "on-demand memory that is absent is the source and the target of transfers to another host")
{
	both(place_absent, 0);
}

TEST_DMABUF(dmabuf, "HOST-1", "memory of a dma-buf is the source and the target of transfers to another host")
{
	both(place_dmabuf, 'b');
}

TEST(words, "HOST-1", "atomics of another host change device memory, and on-demand memory that is absent")
{
	begin();
	atomics(place_dm);
	atomics(place_absent);
	end();
}

/* A process of host 1 tells what it shares. */
struct told {
	struct ibv_shpd shpd;
	uint64_t addr;
	uint32_t lkey, rkey;
};

/* It shares its domain, and has memory there. */
static void sharer(struct peer *parent)
{
	struct end e = end_new(1);
	struct told told = { .addr = (uintptr_t)e.mem, .lkey = e.mr->lkey, .rkey = e.mr->rkey };

	memset(e.mem, 's', END_BYTES);
	MUST(ibv_alloc_shpd(e.pd, KEY, &told.shpd));
	peer_put_var(parent, told);
	peer_wait(parent);
	CHECK_ALL(e.mem, 'a', SIZE);
	CHECK_ALL(e.mem + SIZE, 's', END_BYTES - SIZE);
	peer_tell(parent);
	pause();
}

TEST(shared_pd, "HOST-1", "by a QP of one process of a shared domain, another host reaches the memory of another process, until that one dies")
{
	struct ibv_pd *pd;
	struct told told;
	struct peer peer;
	struct ibv_qp *qp;

	hosts_up();
	peer_start(&peer, sharer);
	peer_get_var(&peer, told);
	a = end_new(0);
	b = end_new(1);
	/* Its own domain does not have the key. */
	ends_join(&a, &b, &joint_usual);
	memset(a.mem, 'a', END_BYTES);
	post_rdma(a.qp, IBV_WR_RDMA_WRITE, 1, ordinary(&a, SIZE), told.addr, told.rkey);
	CHECK_WC(a.cq, 1, IBV_WC_REM_ACCESS_ERR);
	CHECK_OK(ibv_destroy_qp(a.qp));
	a.qp = qp_new(a.pd, a.cq, IBV_QPT_RC, NULL);
	pd = MUST(ibv_share_pd(b.ctx, &told.shpd, KEY));
	qp = b.qp;
	b.qp = qp_new(pd, b.cq, IBV_QPT_RC, NULL);
	ends_join(&a, &b, &joint_usual);
	post_rdma(a.qp, IBV_WR_RDMA_WRITE, 2, ordinary(&a, SIZE), told.addr, told.rkey);
	CHECK_WC(a.cq, 2, IBV_WC_SUCCESS);
	peer_tell(&peer);
	peer_wait(&peer);
	/* Nobody joins it from another host. */
	CHECK_NULL(ibv_share_pd(a.ctx, &told.shpd, KEY), EACCES);
	/* The process of the QP sends from memory of the other one. */
	post_recv(a.qp, 4, (struct mem){ a.mem, END_BYTES, a.mr->lkey });
	post_send(b.qp, 3, (struct mem){ (void *)told.addr, 2 * SIZE, told.lkey });
	CHECK_WC(b.cq, 3, IBV_WC_SUCCESS);
	CHECK_EQ(CHECK_WC(a.cq, 4, IBV_WC_SUCCESS).byte_len, 2 * SIZE);
	CHECK_ALL(a.mem, 'a', SIZE);
	CHECK_ALL(a.mem + SIZE, 's', SIZE);
	peer_kill(&peer, SIGKILL);
	post_rdma(a.qp, IBV_WR_RDMA_WRITE, 5, ordinary(&a, 8), told.addr, told.rkey);
	CHECK_WC(a.cq, 5, IBV_WC_REM_ACCESS_ERR);
	CHECK_OK(ibv_destroy_qp(b.qp));
	CHECK_OK(ibv_dealloc_pd(pd));
	b.qp = qp;
	end();
}
