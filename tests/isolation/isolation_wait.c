// SPDX-License-Identifier: GPL-2.0
/*
 * Send queues that wait for a receive WQE or for a connected peer: the awaited
 * event reschedules them, and until then they use no processor time.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

#include "iso.h"
#include "qp.h"
#include "t.h"

#define WAITERS		8
/* More than a post wakes before it returns. */
#define LINE		40
#define QUEUES		500
/* Processor time per second for all queues. */
#define COST_US		20000
#define ROUNDS		1000

static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));

static struct ibv_pd *pd;
static struct ibv_mr *mr;

static void setup(void)
{
	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	mr = MUST(ibv_reg_mr(pd, page, ISO_PAGE, ISO_RIGHTS));
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ULL + t.tv_nsec / 1000000;
}

/* Check that a completion comes within 1 s. */
static void check_soon(struct ibv_cq *cq, uint64_t wr_id,
		       enum ibv_wc_status status, const char *after)
{
	uint64_t end = now_ms() + ISO_MS;
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(cq, 1, &wc);
	while (!n && now_ms() < end);
	if (!n)
		FAIL("after %s: got no completion in %d ms", after, ISO_MS);
	CHECK_EQ(wc.wr_id, wr_id);
	CHECK_STR(ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
}

/* Wait until the kernel has stopped immediate retries. */
static void a_while(void)
{
	usleep(200000);
}

TEST(recv_wakes, "ISO-3", "a send that waits for a receive WQE of the peer's own queue completes within 1 s after ibv_post_recv()")
{
	struct link l;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	post_send(l.qp[0], 1, MEM(mr));
	a_while();
	CHECK_NO_WC(l.cq[0]);
	post_recv(l.qp[1], 2, MEM(mr));
	check_soon(l.cq[1], 2, IBV_WC_SUCCESS, "ibv_post_recv()");
	check_soon(l.cq[0], 1, IBV_WC_SUCCESS, "ibv_post_recv()");
}

TEST(srq_wakes, "ISO-3", "each receive WQE posted to an SRQ completes one of eight waiting sends within 1 s")
{
	struct ibv_qp *from[WAITERS], *to;
	struct ibv_cq *cq, *recv_cq;
	struct ibv_srq *srq;
	int i;

	setup();
	cq = cq_new(pd->context);
	recv_cq = cq_new(pd->context);
	srq = srq_new(pd);
	for (i = 0; i < WAITERS; i++) {
		from[i] = qp_new(pd, cq, IBV_QPT_RC, NULL);
		to = qp_new(pd, recv_cq, IBV_QPT_RC, srq);
		qp_join(from[i], to);
		post_send(from[i], 1, MEM(mr));
	}
	a_while();
	CHECK_NO_WC(cq);
	for (i = 0; i < WAITERS; i++) {
		post_srq_recv(srq, 2, MEM(mr));
		check_soon(recv_cq, 2, IBV_WC_SUCCESS, "ibv_post_srq_recv()");
		check_soon(cq, 1, IBV_WC_SUCCESS, "ibv_post_srq_recv()");
	}
	CHECK_NO_WC(cq);
}

/* Connect @n QPs with those of the test, and let each wait for a receive WQE. */
static void queue_up(struct peer *parent, int n)
{
	struct ibv_qp *qp[LINE];
	uint32_t qpn[LINE], to[LINE];
	struct ibv_cq *cq;
	int i;

	setup();
	cq = cq_new(pd->context);
	for (i = 0; i < n; i++) {
		qp[i] = qp_new(pd, cq, IBV_QPT_RC, NULL);
		qpn[i] = qp[i]->qp_num;
	}
	peer_put(parent, qpn, n * sizeof(*qpn));
	peer_get(parent, to, n * sizeof(*to));
	for (i = 0; i < n; i++) {
		qp_connect(qp[i], to[i]);
		post_send(qp[i], 1, MEM(mr));
	}
	a_while();
	CHECK_NO_WC(cq);
	peer_tell(parent);
	peer_wait(parent);
	for (i = 0; i < n; i++)
		check_soon(cq, 1, IBV_WC_SUCCESS, "ibv_post_srq_recv()");
}

static void queue_many(struct peer *parent)
{
	queue_up(parent, LINE);
}

static void queue_one(struct peer *parent)
{
	queue_up(parent, 1);
}

static void queue_join(struct peer *p, int n, struct ibv_cq *cq,
		       struct ibv_srq *srq)
{
	uint32_t qpn[LINE], from[LINE];
	struct ibv_qp *qp;
	int i;

	peer_get(p, from, n * sizeof(*from));
	for (i = 0; i < n; i++) {
		qp = qp_new(pd, cq, IBV_QPT_RC, srq);
		qp_connect(qp, from[i]);
		qpn[i] = qp->qp_num;
	}
	peer_put(p, qpn, n * sizeof(*qpn));
	peer_wait(p);
}

TEST_CASE(srq_stopped, "ISO-1,ISO-3", "a receive WQE of an SRQ that 40 sends of a stopped process wait for completes the send of another process within 1 s",
	  ISO_NEEDS_THREADS)
{
	struct peer many, one;
	struct ibv_srq *srq;
	struct ibv_cq *cq;

	peer_start(&many, queue_many);
	peer_start(&one, queue_one);
	setup();
	cq = cq_new(pd->context);
	srq = srq_new(pd);
	queue_join(&many, LINE, cq, srq);
	queue_join(&one, 1, cq, srq);
	SYS(kill(many.pid, SIGSTOP));
	SYS(waitpid(many.pid, NULL, WUNTRACED));
	post_srq_recv(srq, 2, MEM(mr));
	check_soon(cq, 2, IBV_WC_SUCCESS, "ibv_post_srq_recv()");
	peer_tell(&one);
	peer_end(&one);
	peer_kill(&many, SIGKILL);
}

/* Post a receive WQE for each of those that wait, in one call, and stop. */
static void post_and_stop(struct peer *parent)
{
	struct ibv_recv_wr wr[LINE], *bad;
	struct ibv_sge sge;
	struct ibv_srq *srq;
	int i;

	setup();
	srq = srq_new(pd);
	queue_join(parent, LINE, cq_new(pd->context), srq);
	sge = (struct ibv_sge){ (uintptr_t)page, ISO_PAGE, mr->lkey };
	for (i = 0; i < LINE; i++)
		wr[i] = (struct ibv_recv_wr){
			.next = i + 1 < LINE ? &wr[i + 1] : NULL,
			.sg_list = &sge, .num_sge = 1,
		};
	CHECK_OK(ibv_post_srq_recv(srq, wr, &bad));
	SYS(kill(getpid(), SIGSTOP));
}

/* Pass the numbers of LINE QPs on. */
static void introduce(struct peer *from, struct peer *to)
{
	uint32_t qpn[LINE];

	peer_get(from, qpn, sizeof(qpn));
	peer_put(to, qpn, sizeof(qpn));
}

TEST_CASE(srq_owner_stopped, "ISO-1,ISO-3", "40 sends that wait for an SRQ complete within 1 s after its owner has posted 40 receive WQEs and is stopped",
	  ISO_NEEDS_THREADS)
{
	struct peer many, owner;

	peer_start(&many, queue_many);
	peer_start(&owner, post_and_stop);
	introduce(&many, &owner);
	introduce(&owner, &many);
	peer_wait(&many);
	peer_tell(&owner);
	SYS(waitpid(owner.pid, NULL, WUNTRACED));
	peer_tell(&many);
	peer_end(&many);
	peer_kill(&owner, SIGKILL);
}

TEST(xrc_srq_wakes, "ISO-3", "an XRC send that waits for an SRQ of the domain completes within 1 s after ibv_post_srq_recv()")
{
	struct iso_end a, b;
	struct iso_addr to;

	iso_open(&a, KEEL0, NULL, ISO_XRC);
	iso_open(&b, KEEL0, a.ctx, ISO_XRC);
	a.mr = iso_mr(&a, page, 0);
	b.mr = iso_mr(&b, page, 0);
	to = iso_addr(&b);
	iso_connect(&a, &to);
	to = iso_addr(&a);
	iso_connect(&b, &to);
	CHECK_OK(iso_send(&a, 1, a.mr));
	a_while();
	CHECK_NO_WC(a.cq);
	iso_post_recv(&b, 2, b.mr);
	check_soon(b.cq, 2, IBV_WC_SUCCESS, "ibv_post_srq_recv()");
	check_soon(a.cq, 1, IBV_WC_SUCCESS, "ibv_post_srq_recv()");
}

TEST(rtr_wakes, "ISO-3", "a send to a peer that is not connected yet completes within 1 s after the peer moves to RTR")
{
	struct ibv_qp *from, *to;
	struct ibv_cq *cq;

	setup();
	cq = cq_new(pd->context);
	from = qp_new(pd, cq, IBV_QPT_RC, NULL);
	to = qp_new(pd, cq_new(pd->context), IBV_QPT_RC, NULL);
	qp_to_init(from);
	qp_to_rtr(from, to->qp_num);
	iso_to_rts_patient(from);
	qp_to_init(to);
	post_recv(to, 2, MEM(mr));
	post_send(from, 1, MEM(mr));
	a_while();
	CHECK_NO_WC(cq);
	qp_to_rtr(to, from->qp_num);
	check_soon(to->recv_cq, 2, IBV_WC_SUCCESS, "RTR");
	check_soon(cq, 1, IBV_WC_SUCCESS, "RTR");
}

static void check_lost_peer(enum ibv_qp_state state, const char *after)
{
	struct link l;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	post_send(l.qp[0], 1, MEM(mr));
	a_while();
	CHECK_NO_WC(l.cq[0]);
	if (state == IBV_QPS_UNKNOWN)
		CHECK_OK(ibv_destroy_qp(l.qp[1]));
	else
		qp_to(l.qp[1], state);
	check_soon(l.cq[0], 1, IBV_WC_RETRY_EXC_ERR, after);
}

TEST(destroy_wakes, "ISO-3", "a send that waits for receive WQEs without limit fails within 1 s after its peer is destroyed")
{
	check_lost_peer(IBV_QPS_UNKNOWN, "ibv_destroy_qp()");
}

TEST(error_wakes, "ISO-3", "a send that waits for receive WQEs without limit fails within 1 s after its peer moves to the error state")
{
	check_lost_peer(IBV_QPS_ERR, "a move to ERR");
}

TEST(reset_wakes, "ISO-3", "a send that waits for receive WQEs without limit fails within 1 s after its peer is reset")
{
	check_lost_peer(IBV_QPS_RESET, "a move to RESET");
}

/* Two threads, each of which posts its half of a round at a random moment. */
static struct duel {
	struct link l;
	struct ibv_srq *srq;
	pthread_barrier_t turn;
	int rounds;
} duel;

static void spin(uint64_t *seed)
{
	volatile int i;
	int n = t_random(seed) % 3000;

	for (i = 0; i < n; i++)
		;
}

static void *post_receives(void *arg)
{
	uint64_t seed = 77;
	int i;

	for (i = 0; i < duel.rounds; i++) {
		pthread_barrier_wait(&duel.turn);
		spin(&seed);
		if (duel.srq)
			post_srq_recv(duel.srq, 2, MEM(mr));
		else
			post_recv(duel.l.qp[1], 2, MEM(mr));
		pthread_barrier_wait(&duel.turn);
	}
	return NULL;
}

static void check_duel(void)
{
	uint64_t seed = 99;
	pthread_t thread;
	int i;

	duel.rounds = t_rounds(ROUNDS);
	CHECK_OK(pthread_barrier_init(&duel.turn, NULL, 2));
	CHECK_OK(pthread_create(&thread, NULL, post_receives, NULL));
	for (i = 0; i < duel.rounds; i++) {
		pthread_barrier_wait(&duel.turn);
		spin(&seed);
		post_send(duel.l.qp[0], 1, MEM(mr));
		/* Both halves are posted; the 1 s limit starts here. */
		pthread_barrier_wait(&duel.turn);
		check_soon(duel.l.cq[1], 2, IBV_WC_SUCCESS, "both were posted");
		check_soon(duel.l.cq[0], 1, IBV_WC_SUCCESS, "both were posted");
	}
	CHECK_OK(pthread_join(thread, NULL));
}

TEST(recv_race, "ISO-3", "if two threads post a send and its receive WQE at the same time, both complete within 1 s")
{
	setup();
	duel.l = link_new(pd, pd, IBV_QPT_RC);
	check_duel();
}

TEST(srq_race, "ISO-3", "if two threads post a send and its receive WQE of an SRQ at the same time, both complete within 1 s")
{
	setup();
	duel.srq = srq_new(pd);
	duel.l.cq[0] = cq_new(pd->context);
	duel.l.cq[1] = cq_new(pd->context);
	duel.l.qp[0] = qp_new(pd, duel.l.cq[0], IBV_QPT_RC, NULL);
	duel.l.qp[1] = qp_new(pd, duel.l.cq[1], IBV_QPT_RC, duel.srq);
	qp_join(duel.l.qp[0], duel.l.qp[1]);
	check_duel();
}

static struct {
	struct ibv_srq *srq;
	pthread_barrier_t turn;
	int rounds;
} post_once;

static void *post_in_turn(void *arg)
{
	int i;

	for (i = 0; i < post_once.rounds; i++) {
		pthread_barrier_wait(&post_once.turn);
		post_srq_recv(post_once.srq, i, MEM(mr));
		pthread_barrier_wait(&post_once.turn);
	}
	return NULL;
}

/* Destroy a waiting sender while the other thread posts a receive WQE. */
static void destroy_in_turn(struct ibv_cq *cq)
{
	struct ibv_qp *from, *to;

	post_once.srq = srq_new(pd);
	from = qp_new(pd, cq, IBV_QPT_RC, NULL);
	to = qp_new(pd, cq, IBV_QPT_RC, post_once.srq);
	qp_join(from, to);
	post_send(from, 1, MEM(mr));
	pthread_barrier_wait(&post_once.turn);
	CHECK_OK(ibv_destroy_qp(from));
	pthread_barrier_wait(&post_once.turn);
	CHECK_OK(ibv_destroy_qp(to));
	CHECK_OK(ibv_destroy_srq(post_once.srq));
}

TEST_SLOW(srq_destroy, "ISO-3,PD-3", "a sender that waits for an SRQ can be destroyed while a thread posts a receive WQE, and nothing is left behind", 60)
{
	pthread_t thread;
	struct ibv_cq *cq;
	int i;

	setup();
	cq = cq_new(pd->context);
	post_once.rounds = t_rounds(2000);
	CHECK_OK(pthread_barrier_init(&post_once.turn, NULL, 2));
	CHECK_OK(pthread_create(&thread, NULL, post_in_turn, NULL));
	for (i = 0; i < post_once.rounds; i++)
		destroy_in_turn(cq);
	CHECK_OK(pthread_join(thread, NULL));
	CHECK_NO_WC(cq);
}

/* Half of the queues wait for a receive WQE, half for a peer. */
static void crowd(struct peer *parent)
{
	struct ibv_qp *from, *to;
	struct ibv_cq *cq;
	int i;

	setup();
	cq = cq_new(pd->context);
	for (i = 0; i < QUEUES; i++) {
		from = qp_new(pd, cq, IBV_QPT_RC, NULL);
		to = qp_new(pd, cq, IBV_QPT_RC, NULL);
		qp_to_init(from);
		qp_to_rtr(from, to->qp_num);
		iso_to_rts_patient(from);
		if (i % 2)
			qp_connect(to, from->qp_num);
		post_send(from, 1, MEM(mr));
	}
	peer_tell(parent);
	peer_wait(parent);
}

static uint64_t used_us(pid_t pid)
{
	return iso_kernel_us() + (pid ? iso_process_us(pid) : 0);
}

/*
 * Return the processor time of kernel threads and a process in the best second
 * of @n, or in the first second that needs less than @enough. Kernel threads
 * have other work now and then; queues that poll would use time in every
 * second.
 */
static uint64_t second_us(pid_t pid, int n, uint64_t enough)
{
	uint64_t best = UINT64_MAX, us;

	while (n-- && best >= enough) {
		us = used_us(pid);
		usleep(1000000);
		us = used_us(pid) - us;
		best = us < best ? us : best;
	}
	return best;
}

TEST(waiting_is_free, "ISO-3", "500 send queues that wait for receive WQEs and peers together use less than 20 ms of processor time per second")
{
	uint64_t without = second_us(0, 4, 0), with;
	struct peer p;

	peer_start(&p, crowd);
	peer_wait(&p);
	with = second_us(p.pid, 4, without + COST_US);
	t_note("kernel threads without them: %llu us, with them: %llu us",
	       (unsigned long long)without, (unsigned long long)with);
	CHECK(with < without + COST_US);
	peer_kill(&p, SIGKILL);
	iso_check_empty(KEEL0);
}
