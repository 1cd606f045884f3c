// SPDX-License-Identifier: GPL-2.0
/*
 * A transfer belongs to the process that posted it, even if the kernel executes
 * the WQE later because the receive WQE comes later. The cgroup of this process
 * is charged for the processor time and limits the transfer. The death of this
 * process ends the transfer.
 */
#include <sys/mman.h>
#include <time.h>

#include "cgroup.h"
#include "iso.h"
#include "qp.h"
#include "t.h"

/* A message repeats one body: a mapped page is expensive in UML. */
#define BODY		(4UL << 20)
#define SGES		16
/* UML counts processor time in steps of 10 ms. */
#define MESSAGES	(t_uml() ? 32 : 8)
static unsigned char *from, *to;
static int n_messages, n_sges;

void t_after(void)
{
	cgroup_remove();
}

/*
 * Move this process to a cgroup of its own, with a limit unless @limit is NULL.
 */
static void enter_cgroup(const char *limit)
{
	cgroup_make(limit ? "cpu" : NULL);
	if (limit)
		cgroup_set("cpu.max", limit);
	cgroup_add(0);
}

/* Return the processor time of the sender's cgroup. */
static uint64_t usage_us(void)
{
	char *text = cgroup_get("cpu.stat");
	unsigned long long us;

	CHECK_EQ(sscanf(text, "usage_usec %llu", &us), 1);
	free(text);
	return us;
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ULL + t.tv_nsec / 1000;
}

static void share_bodies(void)
{
	from = peer_shared(BODY);
	to = peer_shared(BODY);
	memset(from, 'm', BODY);
	memset(to, 0, BODY);
}

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_sge sge[SGES];
};

static void end_open(struct end *e, void *body, struct peer *parent)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, body, BODY,
					    IBV_ACCESS_LOCAL_WRITE));
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = QP_WRS, .max_recv_wr = QP_WRS,
			 .max_send_sge = SGES, .max_recv_sge = SGES },
	};
	uint32_t qpn;
	int i;

	e->cq = cq_new(pd->context);
	init.send_cq = init.recv_cq = e->cq;
	e->qp = MUST(ibv_create_qp(pd, &init));
	for (i = 0; i < SGES; i++)
		e->sge[i] = (struct ibv_sge){ (uintptr_t)body, BODY, mr->lkey };
	peer_put_var(parent, e->qp->qp_num);
	peer_get_var(parent, qpn);
	qp_connect(e->qp, qpn);
	peer_tell(parent);
}

/*
 * Measure how long the doorbell takes for a message whose receive WQE is
 * already posted.
 */
static void direct(struct peer *parent)
{
	uint64_t us = 0, start;
	struct ibv_mr *mr[2];
	struct ibv_pd *pd;
	struct link l;
	int i;

	/* Else the worker copies. */
	t_one_processor();
	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	l = link_new(pd, pd, IBV_QPT_RC);
	mr[0] = MUST(ibv_reg_mr(pd, from, BODY, IBV_ACCESS_LOCAL_WRITE));
	mr[1] = MUST(ibv_reg_mr(pd, to, BODY, IBV_ACCESS_LOCAL_WRITE));

	for (i = 0; i < SGES; i++) {
		post_recv(l.qp[1], i, (struct mem){ to, BODY, mr[1]->lkey });
		start = now_us();
		post_send(l.qp[0], i, (struct mem){ from, BODY, mr[0]->lkey });
		us += now_us() - start;
		CHECK_WC(l.cq[0], i, IBV_WC_SUCCESS);
		CHECK_WC(l.cq[1], i, IBV_WC_SUCCESS);
	}
	peer_put_var(parent, us);
}

static const char *limit;

/* Post all sends, then only wait. */
static void sender(struct peer *parent)
{
	struct end e;
	int i;

	enter_cgroup(limit);
	end_open(&e, from, parent);
	/*
	 * Wait until the peer is connected, since retries for an unconnected
	 * peer run out soon.
	 */
	peer_wait(parent);
	for (i = 0; i < n_messages; i++)
		post(e.qp, &(struct ibv_send_wr){
			.opcode = IBV_WR_SEND, .sg_list = e.sge,
			.num_sge = n_sges, .send_flags = IBV_SEND_SIGNALED,
		});
	peer_tell(parent);
	peer_wait(parent);
	for (i = 0; i < n_messages; i++)
		CHECK_WC(e.cq, 0, IBV_WC_SUCCESS);
	peer_tell(parent);
	peer_wait(parent);
}

/* Poll, then sleep: the receiver's own processor time must stay small. */
static int received(struct end *e)
{
	struct ibv_wc wc[QP_WRS];
	int i, n = ibv_poll_cq(e->cq, QP_WRS, wc);

	CHECK(n >= 0);
	for (i = 0; i < n; i++) {
		CHECK_EQ(wc[i].status, IBV_WC_SUCCESS);
		CHECK_EQ(wc[i].byte_len, n_sges * BODY);
	}
	usleep(10000);
	return n;
}

static void post_all(struct end *e)
{
	struct ibv_recv_wr wr = { .sg_list = e->sge, .num_sge = n_sges }, *bad;
	int i;

	for (i = 0; i < n_messages; i++)
		CHECK_OK(ibv_post_recv(e->qp, &wr, &bad));
}

static void receiver(struct peer *parent)
{
	struct end e;
	int n = 0;

	end_open(&e, to, parent);
	peer_tell(parent);
	peer_wait(parent);
	post_all(&e);
	while (n < n_messages)
		n += received(&e);
	peer_tell(parent);
	peer_wait(parent);
}

/* Return when all sends are posted and no message has been received. */
static void start(struct peer *snd, struct peer *rcv,
		  void (*receive)(struct peer *parent), int messages, int sges,
		  const char *cpu_max)
{
	uint32_t qpn[2];

	n_messages = messages;
	n_sges = sges;
	limit = cpu_max;
	peer_start(snd, sender);
	peer_start(rcv, receive);
	peer_get_var(snd, qpn[0]);
	peer_get_var(rcv, qpn[1]);
	peer_put_var(snd, qpn[1]);
	peer_put_var(rcv, qpn[0]);
	peer_wait(snd);
	peer_wait(rcv);
	peer_tell(snd);
	peer_wait(snd);
	peer_wait(rcv);
}

/* Return the time of all messages when doorbells execute them. */
static uint64_t direct_us(void)
{
	struct peer one;
	uint64_t us;

	peer_start(&one, direct);
	peer_get_var(&one, us);
	peer_end(&one);
	return us * MESSAGES;
}

/*
 * Run a transfer: return the time that the sender's cgroup is charged, and in
 * @others that of all kernel threads and the receiver.
 */
static uint64_t transfer_us(uint64_t *others)
{
	struct peer snd, rcv;
	uint64_t charged;

	memset(to, 0, BODY);
	start(&snd, &rcv, receiver, MESSAGES, SGES, NULL);
	charged = usage_us();
	*others = iso_kernel_us() + iso_process_us(rcv.pid);
	peer_tell(&rcv);
	peer_wait(&rcv);
	charged = usage_us() - charged;
	*others = iso_kernel_us() + iso_process_us(rcv.pid) - *others;
	CHECK_ALL(to, 'm', BODY);
	peer_tell(&snd);
	peer_wait(&snd);
	peer_tell(&snd);
	peer_end(&snd);
	peer_tell(&rcv);
	peer_end(&rcv);
	return charged;
}

/* Other work of kernel threads may fall into a transfer, but not into each. */
TEST_CASE(charged, "ISO-2", "at least 80 % of the processor time of a transfer after the doorbell is charged to the sender's cgroup",
	  ISO_NEEDS_THREADS)
{
	uint64_t copy = UINT64_MAX, once, charged, others;
	int left = 5;

	share_bodies();
	do {
		/* Other work can only make the doorbells slower. */
		once = direct_us();
		if (once < copy)
			copy = once;
		charged = transfer_us(&others);
		t_note("charged: %llu us; kernel threads and the receiver: %llu us; in doorbells: %llu us",
		       (unsigned long long)charged, (unsigned long long)others,
		       (unsigned long long)copy);
	} while ((charged < (charged + others) / 100 * 80 || charged < copy / 3) && --left);
	CHECK(charged >= (charged + others) / 100 * 80);
	CHECK(charged >= copy / 3);
}

/*
 * Report the first byte, and check one second after the sender's death that no
 * byte changes.
 */
static void survivor(struct peer *parent)
{
	struct end e;
	int n = 0;

	end_open(&e, to, parent);
	peer_tell(parent);
	peer_wait(parent);
	post_all(&e);
	while (!__atomic_load_n(to, __ATOMIC_ACQUIRE))
		usleep(100);
	peer_tell(parent);
	peer_wait(parent);
	memset(to, 0, BODY);
	n = received(&e);
	usleep(200000);
	CHECK_ALL(to, 0, BODY);
	CHECK_EQ(received(&e), 0);
	/* The sender died while its messages were in-flight. */
	CHECK(n < n_messages);
	peer_tell(parent);
	peer_wait(parent);
}

TEST(killed, "ISO-2", "one second after the death of a sender, the kernel writes no byte of its messages and completes none of them")
{
	struct peer snd, rcv;

	share_bodies();
	start(&snd, &rcv, survivor, QP_WRS, SGES, NULL);
	peer_tell(&rcv);
	peer_wait(&rcv);
	CHECK_KILL(&snd, "the sender");
	usleep(1000000);
	peer_tell(&rcv);
	peer_wait(&rcv);
	peer_tell(&rcv);
	peer_end(&rcv);
}

/* Count the messages that arrive in two seconds. */
static void counter(struct peer *parent)
{
	uint64_t end;
	struct end e;
	int n = 0;

	end_open(&e, to, parent);
	peer_tell(parent);
	peer_wait(parent);
	post_all(&e);
	end = now_us() + 2000000;
	while (now_us() < end)
		n += received(&e);
	peer_put_var(parent, n);
	peer_wait(parent);
}

static int arrived(const char *cpu_max)
{
	struct peer snd, rcv;
	int n;

	start(&snd, &rcv, counter, QP_WRS, SGES, cpu_max);
	peer_tell(&rcv);
	peer_get_var(&rcv, n);
	CHECK_KILL(&snd, "the sender");
	CHECK_KILL(&rcv, "the receiver");
	iso_check_empty(KEEL0);
	cgroup_remove();
	return n;
}

TEST_CASE(limited, "ISO-2", "a sender whose cgroup is limited to a tenth of a processor sends at most half of what it sends without a limit",
	  .not_uml = "it has no bandwidth limits", ISO_NEEDS_THREADS)
{
	int all, some;

	share_bodies();
	all = arrived(NULL);
	some = arrived("10000 100000");
	t_note("in 2 s: %d messages, with the limit: %d", all, some);
	CHECK(some * 2 <= all);
}
