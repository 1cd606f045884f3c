// SPDX-License-Identifier: GPL-2.0
/*
 * Messages on dma-bufs while several threads ring the doorbell of their QP. A
 * thread that finds the memory absent is often interrupted before it requests
 * the memory, and another one ends the message.
 */
#include <pthread.h>

#include "buf.h"
#include "dev.h"
#include "qp.h"
#include "raw.h"

#define ROUNDS	100
#define RINGERS	3
#define LEN	64

static char user[PAGE] __attribute__((aligned(PAGE)));
static struct ibv_pd *pd;
static struct ibv_mr *mine;
static struct ibv_ah *ah;
static struct link l;

static struct ibv_qp *rung;
static bool enough;

static void *ring(void *arg)
{
	struct raw_cmd cmd;

	while (!__atomic_load_n(&enough, __ATOMIC_RELAXED)) {
		raw_init(&cmd, UVERBS_OBJECT_QP, KEEL_METHOD_QP_DOORBELL);
		raw_in(&cmd, KEEL_ATTR_QP_DOORBELL_QPN, &rung->qp_num,
		       sizeof(rung->qp_num));
		CHECK_OK(raw_run(rung->context->cmd_fd, &cmd));
	}
	return NULL;
}

static void setup(enum ibv_qp_type type)
{
	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	mine = MUST(ibv_reg_mr(pd, user, PAGE, IBV_ACCESS_LOCAL_WRITE));
	ah = ah_self(pd);
	l = link_new(pd, pd, type);
}

/* Send @from to @to. */
static void send_to(struct mem from, struct mem to)
{
	struct ibv_send_wr *wr = send_wr(IBV_WR_SEND, 1, from);

	post_recv(l.qp[1], 2, to);
	if (l.qp[0]->qp_type == IBV_QPT_UD)
		wr_to(wr, ah, l.qp[1]);
	post(l.qp[0], wr);
	CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
	CHECK_WC(l.cq[1], 2, IBV_WC_SUCCESS);
}

/* The send queue of l.qp[0] gathers from a dma-buf, or l.qp[1] scatters to it. */
static void once(bool scatter)
{
	struct buf b = buf_new();
	struct ibv_mr *mr = MUST(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, b.fd,
						   IBV_ACCESS_LOCAL_WRITE));
	struct mem here = { user, PAGE, mine->lkey };
	struct mem there = { NULL, PAGE, mr->lkey };

	/* A datagram starts 40 bytes into the receive buffer. */
	memset(user, 'u', PAGE);
	here.len = scatter ? LEN : PAGE;
	there.len = scatter ? PAGE : LEN;
	send_to(scatter ? here : there, scatter ? there : here);
	CHECK_ALL(scatter ? buf_page(&b, 0) + 40 : user, scatter ? 'u' : 'b',
		  LEN);
	buf_close(&b);
	CHECK_OK(ibv_dereg_mr(mr));
}

static void rounds(bool scatter)
{
	long before = buf_count();
	pthread_t thread[RINGERS];
	int i;

	rung = l.qp[scatter];
	for (i = 0; i < RINGERS; i++)
		CHECK_OK(pthread_create(&thread[i], NULL, ring, NULL));
	for (i = 0; i < ROUNDS; i++) {
		once(scatter);
		buf_check_count(before);
	}
	__atomic_store_n(&enough, true, __ATOMIC_RELAXED);
	for (i = 0; i < RINGERS; i++)
		CHECK_OK(pthread_join(thread[i], NULL));
}

TEST_DMABUF(rc, "PDM-3", "while several threads ring the doorbell of an RC QP, it holds no dma-buf after its message")
{
	setup(IBV_QPT_RC);
	rounds(false);
}

TEST_DMABUF(ud, "PDM-3", "while several threads ring the doorbell of a UD QP, it holds no dma-buf after a datagram")
{
	setup(IBV_QPT_UD);
	rounds(true);
}
