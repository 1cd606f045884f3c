// SPDX-License-Identifier: GPL-2.0
/*
 * Events of a dead process. Another one shares its memory and its files, and uses its
 * queues by their rings only, so it never takes them over. It has very many waiters.
 */
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "iso.h"
#include "qp.h"
#include "t.h"
#include "tree.h"

#define CQS		16
#define RECVS		16
/* Each event wakes so many waiters: 50,000. */
#define WATCHED		(250 * ISO_EPOLLS)
#define STACK		(256 << 10)
#define RUN_US		2000000ULL

static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));

/* Of the dead process. */
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq[CQS];
static struct ibv_qp *qp[CQS];
static struct ibv_mr *mr;

static struct shared {
	volatile bool stop;
	volatile uint32_t qpn[CQS];
	volatile long sent, received;
} *shared;

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ULL + t.tv_nsec / 1000;
}

static void receive(int i)
{
	struct ibv_sge sge = { (uintptr_t)page, ISO_GRH + 64, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK_OK(ibv_post_recv(qp[i], &wr, &bad));
}

static int heir(void *arg)
{
	struct ibv_wc wc;
	int i;

	while (!shared->stop) {
		for (i = 0; i < CQS; i++) {
			while (ibv_poll_cq(cq[i], 1, &wc) > 0) {
				receive(i);
				shared->received++;
			}
			ibv_req_notify_cq(cq[i], 0);
		}
		usleep(500);
	}
	_exit(0);
}

static void owner(struct peer *parent)
{
	char *stack = (char *)SYS(mmap(NULL, STACK, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	int i, k;

	mr = MUST(ibv_reg_mr(pd, page, ISO_PAGE, IBV_ACCESS_LOCAL_WRITE));
	channel = MUST(ibv_create_comp_channel(ctx));
	for (i = 0; i < CQS; i++) {
		cq[i] = MUST(ibv_create_cq(ctx, 64, NULL, channel, 0));
		qp[i] = qp_new(pd, cq[i], IBV_QPT_UD, NULL);
		qp_connect(qp[i], 0);
		shared->qpn[i] = qp[i]->qp_num;
		for (k = 0; k < RECVS; k++)
			receive(i);
	}
	iso_watch(channel->fd, WATCHED);
	SYS(clone(heir, stack + STACK, CLONE_VM | CLONE_FILES | SIGCHLD, NULL));
	peer_tell(parent);
	pause();
}

static void sender(struct peer *parent)
{
	struct ibv_send_wr *wr, *bad;
	struct iso_end e;
	struct ibv_wc wc;
	int i;

	iso_open(&e, KEEL0, NULL, ISO_UD);
	e.mr = iso_mr(&e, page, 0);
	qp_connect(e.qp, 0);
	peer_wait(parent);
	for (i = 0; !shared->stop; i = (i + 1) % CQS) {
		wr = send_wr(IBV_WR_SEND, 2, MEM(e.mr));
		wr->sg_list->length = 64;
		wr->wr.ud.ah = e.ah;
		wr->wr.ud.remote_qpn = shared->qpn[i];
		wr->wr.ud.remote_qkey = QP_QKEY;
		CHECK_OK(ibv_post_send(e.qp, wr, &bad));
		while (!ibv_poll_cq(e.cq, 1, &wc))
			sched_yield();
		shared->sent++;
		usleep(50);
	}
}

TEST_CASE(cheap, "ISO-2", "events of a dead process with 50,000 waiters take a tenth of a processor, all its CQs together",
	  .limit = 60, ISO_NEEDS_THREADS)
{
	struct peer from, to;
	uint64_t kernel, us;
	int i;

	shared = peer_shared(sizeof(*shared));
	peer_start(&to, owner);
	peer_start(&from, sender);
	peer_wait(&to);
	peer_kill(&to, SIGKILL);
	kernel = iso_kernel_us();
	us = now_us();
	peer_tell(&from);
	while (now_us() - us < RUN_US)
		usleep(10000);
	us = now_us() - us;
	kernel = iso_kernel_us() - kernel;
	shared->stop = true;
	peer_end(&from);
	t_note("%ld sent, %ld received, kernel threads took %llu of %llu ms",
	       shared->sent, shared->received,
	       (unsigned long long)kernel / 1000, (unsigned long long)us / 1000);
	CHECK(shared->received > 100);
	/* The kernel has other work, and counts in steps. */
	CHECK(kernel < us / 3);
	/* The end of the heir takes time: the kernel removes each waiter alone. */
	for (i = 0; i < 2000 && tree_count(KEEL0, NULL); i++)
		usleep(10000);
	iso_check_empty(KEEL0);
}
