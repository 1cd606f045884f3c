// SPDX-License-Identifier: GPL-2.0
/*
 * Headers of rings: the header of a new ring must be all zero, and the kernel
 * fills the header of a replacement ring. The library zeroes headers, so the
 * test changes words when the library calls the kernel.
 */
#include <stdarg.h>
#include <sys/syscall.h>

#include <rdma/rdma_user_ioctl_cmds.h>

#include "qp.h"
#include "rings.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096
#define WORDS	(sizeof(struct keel_uapi_ring) / 4)

static char page[PAGE] __attribute__((aligned(PAGE)));

/* The ring whose header has a non-zero word when the kernel reads it, or -1. */
static int bad_ring = -1;
static unsigned int bad_word;

static void spoil(uint32_t value)
{
	if (bad_ring >= 0 && bad_ring < n_rings)
		((uint32_t *)rings[bad_ring])[bad_word] = value;
}

/* Override the system calls that the library makes. */
int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;
	int ret;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	spoil(1);
	ret = syscall(SYS_ioctl, fd, request, arg);
	spoil(0);
	return ret;
}

ssize_t write(int fd, const void *buf, size_t len)
{
	ssize_t ret;

	spoil(1);
	ret = syscall(SYS_write, fd, buf, len);
	spoil(0);
	return ret;
}

struct queues {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
};

/*
 * Each of these creates a queue with one or two rings, and returns 0 or an
 * errno.
 */
static int make_cq(struct queues *q)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
		.parent_domain = q->pd,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(q->pd->context, &attr);

	return cq ? ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) : errno;
}

static int make_srq(struct queues *q)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = 4, .max_sge = 1 },
	};
	struct ibv_srq *srq = ibv_create_srq(q->pd, &attr);

	return srq ? ibv_destroy_srq(srq) : errno;
}

static int make_qp(struct queues *q)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = q->cq, .recv_cq = q->cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(q->pd, &attr);

	return qp ? ibv_destroy_qp(qp) : errno;
}

static int resize_cq(struct queues *q)
{
	return ibv_resize_cq(q->cq, 2 * QP_WRS);
}

static int resize_srq(struct queues *q)
{
	struct ibv_srq_attr attr = { .max_wr = 2 * QP_WRS };

	return ibv_modify_srq(q->srq, &attr, IBV_SRQ_MAX_WR);
}

static const struct {
	const char *name;
	int (*make)(struct queues *q);
	int ring;	/* index among the maker's rings */
} makers[] = {
	{ "a CQ", make_cq, 0 }, { "an SRQ", make_srq, 0 },
	{ "a send queue", make_qp, 0 }, { "a receive queue", make_qp, 1 },
	{ "a resized CQ", resize_cq, 0 }, { "a resized SRQ", resize_srq, 0 },
};

TEST(header, "DEV-4", "creating or resizing a queue with a non-zero word in a ring header fails with EINVAL and leaves nothing behind")
{
	struct queues q = { .pd = rings_pd(dev_open(KEEL0)) };
	unsigned int i;
	char *before;
	int ret;

	q.cq = rings_cq(q.pd);
	q.srq = srq_new(q.pd);
	before = tree_text(KEEL0);
	for (i = 0; i < sizeof(makers) / sizeof(*makers); i++) {
		for (bad_word = 0; bad_word < WORDS; bad_word++) {
			n_rings = 0;
			bad_ring = makers[i].ring;
			ret = makers[i].make(&q);
			bad_ring = -1;
			if (ret != EINVAL)
				FAIL("%s with word %u: got %s, want EINVAL",
				     makers[i].name, bad_word, t_errname(ret));
		}
		CHECK_SAME_TREE(before);
	}
	CHECK_EQ(q.cq->cqe, QP_WRS);
	/* With zero headers each call succeeds. */
	for (i = 0; i < sizeof(makers) / sizeof(*makers); i++) {
		n_rings = 0;
		CHECK_OK(makers[i].make(&q));
	}
	CHECK_EQ(q.cq->cqe, 2 * QP_WRS);
}

static void check_reserved(const struct keel_uapi_ring *ring)
{
	CHECK_ALL(ring->reserved0, 0, sizeof(ring->reserved0));
	CHECK_ALL(ring->reserved1, 0, sizeof(ring->reserved1));
	CHECK_EQ(ring->flags, 0);
}

TEST(replaced, "DEV-4", "the kernel copies both indexes and the arm state of a CQ into a replacement ring")
{
	struct queues q = { .pd = rings_pd(dev_open(KEEL0)) };
	struct ibv_qp *a, *b;
	struct mem mem;
	int i;

	mem = MEM(MUST(ibv_reg_mr(q.pd, page, PAGE, IBV_ACCESS_LOCAL_WRITE)));
	q.cq = rings_cq(q.pd);
	q.srq = srq_new(q.pd);
	a = qp_new(q.pd, cq_new(q.pd->context), IBV_QPT_RC, NULL);
	b = qp_new(q.pd, q.cq, IBV_QPT_RC, q.srq);
	qp_join(a, b);
	for (i = 0; i < 5; i++)
		post_srq_recv(q.srq, i, mem);
	for (i = 0; i < 3; i++)
		post_send(a, i, mem);
	CHECK_WC(q.cq, 0, IBV_WC_SUCCESS);
	CHECK_OK(ibv_req_notify_cq(q.cq, 1));
	n_rings = 0;
	CHECK_OK(resize_cq(&q));
	CHECK_OK(resize_srq(&q));
	CHECK_EQ(n_rings, 2);
	CHECK_EQ(rings[0]->user, 1);
	CHECK_EQ(rings[0]->kernel, 3);
	CHECK_EQ(rings[0]->arm, KEEL_ARM_SOLICITED);
	check_reserved(rings[0]);
	CHECK_EQ(rings[1]->user, 5);
	CHECK_EQ(rings[1]->kernel, 3);
	CHECK_EQ(rings[1]->arm, KEEL_ARM_NONE);
	check_reserved(rings[1]);
	CHECK_WC(q.cq, 1, IBV_WC_SUCCESS);
	CHECK_WC(q.cq, 2, IBV_WC_SUCCESS);
	post_send(a, 3, mem);
	CHECK_WC(q.cq, 3, IBV_WC_SUCCESS);
	CHECK_NO_WC(q.cq);
}
