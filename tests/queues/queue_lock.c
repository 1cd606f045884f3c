// SPDX-License-Identifier: GPL-2.0
/*
 * Locks of the post and poll functions: none if a thread domain promises that
 * one thread at a time calls them, otherwise enough that threads lose nothing.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#include <infiniband/keeldv.h>

#include "dev.h"
#include "domain.h"
#include "qp.h"
#include "t.h"

#define PAGE	4096
#define THREADS	3
/* Work requests of one post. */
#define CHAIN	16
#define TRAPS	(4 * THREADS)

static char from[PAGE] __attribute__((aligned(PAGE)));
static char to[PAGE] __attribute__((aligned(PAGE)));

/* The library takes its locks here. */
static __thread int locks;

int pthread_spin_lock(pthread_spinlock_t *lock)
{
	static int (*real)(pthread_spinlock_t *lock);

	locks++;
	if (!real)
		real = dlsym(RTLD_NEXT, "pthread_spin_lock");
	return real(lock);
}

int pthread_mutex_lock(pthread_mutex_t *lock)
{
	static int (*real)(pthread_mutex_t *lock);

	locks++;
	if (!real)
		real = dlsym(RTLD_NEXT, "pthread_mutex_lock");
	return real(lock);
}

/* A QP that sends to itself, with an SRQ beside it. */
struct setup {
	struct ibv_cq_ex *ex;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct mem out, in;
	uint32_t rkey;
};

static struct setup setup(struct ibv_pd *pd, bool with_srq)
{
	struct keeldv_pd_attr pd_attr;
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 4 * QP_WRS,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = pd,
	};
	struct ibv_qp_init_attr_ex attr = {
		.cap = { .max_send_wr = QP_WRS, .max_recv_wr = QP_WRS,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct setup s = { .srq = with_srq ? srq_new(pd) : NULL };
	struct ibv_mr *mr;

	CHECK_OK(keeldv_query_pd(pd, &pd_attr));
	CHECK_EQ(pd_attr.kind, KEELDV_PD_PARENT);
	s.ex = MUST(ibv_create_cq_ex(pd->context, &cq_attr));
	s.cq = ibv_cq_ex_to_cq(s.ex);
	attr.send_cq = s.cq;
	attr.recv_cq = s.cq;
	attr.srq = s.srq;
	s.qp = MUST(ibv_create_qp_ex(pd->context, &attr));
	qp_connect(s.qp, s.qp->qp_num);
	s.out = MEM(MUST(ibv_reg_mr(pd, from, PAGE, 0)));
	mr = MUST(ibv_reg_mr(pd, to, PAGE, IBV_ACCESS_LOCAL_WRITE |
			     IBV_ACCESS_REMOTE_WRITE));
	s.in = MEM(mr);
	s.rkey = mr->rkey;
	return s;
}

/* Locks taken by one call of everything that posts or polls. */
#define LOCKS(call)							\
	({								\
		locks = 0;						\
		call;							\
		locks;							\
	})

static void wr_send(struct setup *s)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(s->qp);

	ibv_wr_start(ex);
	ex->wr_id = 5;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, s->out.lkey, (uintptr_t)s->out.addr, 8);
	CHECK_OK(ibv_wr_complete(ex));
}

static void ex_poll(struct setup *s, uint64_t first)
{
	struct ibv_poll_cq_attr attr = {};

	CHECK_OK(ibv_start_poll(s->ex, &attr));
	CHECK_EQ(s->ex->wr_id, first);
	CHECK_EQ(s->ex->status, IBV_WC_SUCCESS);
	CHECK_OK(ibv_next_poll(s->ex));
	CHECK_EQ(s->ex->wr_id, 5);
	CHECK_EQ(ibv_next_poll(s->ex), ENOENT);
	ibv_end_poll(s->ex);
}

/* Each path takes @each locks. No poll is repeated because it came early. */
static void check_paths(struct ibv_pd *pd, int each)
{
	struct setup s = setup(pd, false);
	long before = dev_counter("tx_msgs");

	CHECK_EQ(LOCKS(post_recv(s.qp, 1, s.in)), each);
	CHECK_EQ(LOCKS(post_send(s.qp, 2, s.out)), each);
	dev_counter_wait("tx_msgs", before++, 1);
	CHECK_EQ(LOCKS(CHECK_WC(s.cq, 1, IBV_WC_SUCCESS)), each);
	CHECK_EQ(LOCKS(CHECK_WC(s.cq, 2, IBV_WC_SUCCESS)), each);
	CHECK_EQ(LOCKS(CHECK_NO_WC(s.cq)), each);
	CHECK_EQ(LOCKS(CHECK_OK(ibv_req_notify_cq(s.cq, 0))), each);
	post_recv(s.qp, 4, s.in);
	CHECK_EQ(LOCKS(wr_send(&s)), each);
	dev_counter_wait("tx_msgs", before++, 1);
	CHECK_EQ(LOCKS(ex_poll(&s, 4)), each);
	s = setup(pd, true);
	CHECK_EQ(LOCKS(post_srq_recv(s.srq, 4, s.in)), each);
	CHECK_EQ(LOCKS(wr_send(&s)), each);
	dev_counter_wait("tx_msgs", before, 1);
	CHECK_EQ(LOCKS(ex_poll(&s, 4)), each);
}

TEST(single, "PDM-4", "with a thread domain no post or poll takes a lock, whichever verb created the queue; without it each takes one")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));

	check_paths(parent_new(pd, td_new(pd->context)), 0);
	check_paths(parent_new(pd, NULL), 1);
	/* The promise belongs to the parent domain, not to the PD below it. */
	check_paths(parent_new(pd, td_new(pd->context)), 0);
}

/*
 * Memory that the library touches in the middle of a post or a poll. A thread
 * that touches it sleeps, so the other threads run in between, even on one
 * processor, unless a lock keeps them out.
 */
static char *traps[TRAPS];
static int n_traps;

static void trapped(int sig, siginfo_t *info, void *context)
{
	static const struct timespec nap = { .tv_nsec = 200000 };
	char *at = info->si_addr;
	int i;

	for (i = 0; i < TRAPS; i++)
		if (traps[i] && at >= traps[i] && at < traps[i] + PAGE) {
			mprotect(traps[i], PAGE, PROT_READ | PROT_WRITE);
			nanosleep(&nap, NULL);
			return;
		}
	signal(sig, SIG_DFL);
}

/* @before bytes in front of a trap page, which trap_set() protects. */
static void *trap_new(size_t before)
{
	char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int i = __atomic_fetch_add(&n_traps, 1, __ATOMIC_RELAXED);

	CHECK(p != MAP_FAILED && i < TRAPS);
	traps[i] = p + PAGE;
	return p + PAGE - before;
}

static void trap_set(void *after)
{
	SYS(mprotect(after, PAGE, PROT_NONE));
}

/* Shared by the threads of one test. */
static struct setup shared;
static int rounds;
static int posted, done;
static unsigned char *seen;

static void see(uint64_t wr_id)
{
	CHECK(wr_id < (uint64_t)THREADS * rounds);
	CHECK_EQ(__atomic_fetch_add(&seen[wr_id], 1, __ATOMIC_RELAXED), 0);
	__atomic_fetch_add(&done, 1, __ATOMIC_RELAXED);
}

static bool all_done(void)
{
	return __atomic_load_n(&done, __ATOMIC_RELAXED) >= THREADS * rounds;
}

/* The CQ has room for all of them: the last quarter is for chains. */
static void flow(void)
{
	__atomic_fetch_add(&posted, CHAIN, __ATOMIC_RELAXED);
	while (__atomic_load_n(&posted, __ATOMIC_RELAXED) -
	       __atomic_load_n(&done, __ATOMIC_RELAXED) > 3 * QP_WRS)
		sched_yield();
}

/* Post all of a chain, however often the queue is full. */
static void send_chain(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int ret;

	while ((ret = ibv_post_send(shared.qp, wr, &bad))) {
		CHECK_RET(ret, ENOMEM);
		wr = bad;
		sched_yield();
	}
}

static void recv_chain(struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad;
	int ret;

	while ((ret = shared.srq ? ibv_post_srq_recv(shared.srq, wr, &bad) :
				   ibv_post_recv(shared.qp, wr, &bad))) {
		CHECK_RET(ret, ENOMEM);
		wr = bad;
		sched_yield();
	}
}

static void *poster(void *arg)
{
	struct ibv_sge sge = { (uintptr_t)from, 8, shared.out.lkey };
	struct ibv_sge *trap = trap_new(0);
	struct ibv_send_wr wr[CHAIN];
	int i, j;

	*trap = sge;

	for (i = 0; i < rounds; i += CHAIN) {
		flow();
		for (j = 0; j < CHAIN; j++)
			wr[j] = (struct ibv_send_wr){
				.wr_id = (intptr_t)arg * rounds + i + j,
				.next = j + 1 < CHAIN ? &wr[j + 1] : NULL,
				.opcode = IBV_WR_RDMA_WRITE,
				.send_flags = IBV_SEND_SIGNALED,
				.sg_list = &sge, .num_sge = 1,
				.wr.rdma.remote_addr = (uintptr_t)to,
				.wr.rdma.rkey = shared.rkey,
			};
		wr[CHAIN / 2].sg_list = trap;
		trap_set(trap);
		send_chain(wr);
	}
	return NULL;
}

static void *poller(void *arg)
{
	struct ibv_wc *wc = trap_new(sizeof(*wc));
	int i, n;

	while (!all_done()) {
		trap_set(wc + 1);
		n = ibv_poll_cq(shared.cq, CHAIN, wc);
		CHECK(n >= 0);
		for (i = 0; i < n; i++) {
			CHECK_EQ(wc[i].status, IBV_WC_SUCCESS);
			see(wc[i].wr_id);
		}
		if (!n)
			sched_yield();
	}
	return NULL;
}

static void start(void *(*a)(void *arg), void *(*b)(void *arg))
{
	const struct sigaction trap = {
		.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER,
	};
	pthread_t thread[2 * THREADS];
	int i;

	SYS(sigaction(SIGSEGV, &trap, NULL));
	memset(traps, 0, sizeof(traps));
	n_traps = 0;
	rounds = t_rounds(24) * CHAIN;
	seen = MUST(calloc(THREADS, rounds));
	for (i = 0; i < THREADS; i++) {
		CHECK_OK(pthread_create(&thread[2 * i], NULL, a,
					(void *)(intptr_t)i));
		CHECK_OK(pthread_create(&thread[2 * i + 1], NULL, b,
					(void *)(intptr_t)i));
	}
	for (i = 0; i < 2 * THREADS; i++)
		CHECK_OK(pthread_join(thread[i], NULL));
	CHECK_EQ(done, THREADS * rounds);
	CHECK_ALL(seen, 1, THREADS * rounds);
	CHECK_NO_WC(shared.cq);
	CHECK_NO_EVENT(shared.cq->context);
}

TEST_SLOW(crowd, "PDM-4", "without a thread domain three threads post to one QP and three poll one CQ; no CQE is lost or comes twice", 60)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));

	shared = setup(parent_new(pd, NULL), false);
	start(poster, poller);
}

static void *receiver(void *arg)
{
	struct ibv_sge sge = {
		(uintptr_t)shared.in.addr, 8, shared.in.lkey,
	};
	struct ibv_sge *trap = trap_new(0);
	struct ibv_recv_wr wr[CHAIN];
	int i, j;

	*trap = sge;
	for (i = 0; i < rounds; i += CHAIN) {
		flow();
		for (j = 0; j < CHAIN; j++)
			wr[j] = (struct ibv_recv_wr){
				.wr_id = (intptr_t)arg * rounds + i + j,
				.next = j + 1 < CHAIN ? &wr[j + 1] : NULL,
				.sg_list = &sge, .num_sge = 1,
			};
		wr[CHAIN / 2].sg_list = trap;
		trap_set(trap);
		recv_chain(wr);
	}
	return NULL;
}

static void see_received(struct ibv_wc *wc)
{
	int i, n;

	trap_set(wc + 1);
	while ((n = ibv_poll_cq(shared.cq, CHAIN, wc)) > 0)
		for (i = 0; i < n; i++) {
			CHECK_EQ(wc[i].status, IBV_WC_SUCCESS);
			CHECK_EQ(wc[i].opcode, IBV_WC_RECV);
			see(wc[i].wr_id);
		}
	CHECK_EQ(n, 0);
}

/* Send as many messages as are received; each thread has some in flight. */
static void *sender(void *arg)
{
	struct ibv_sge sge = { (uintptr_t)from, 8, shared.out.lkey };
	struct ibv_wc *wc = trap_new(sizeof(*wc));
	struct ibv_send_wr wr[CHAIN];
	int i, j;

	for (i = 0; i < rounds; i += CHAIN) {
		for (j = 0; j < CHAIN; j++)
			wr[j] = (struct ibv_send_wr){
				.next = j + 1 < CHAIN ? &wr[j + 1] : NULL,
				.opcode = IBV_WR_SEND,
				.sg_list = &sge, .num_sge = 1,
			};
		send_chain(wr);
		see_received(wc);
	}
	while (!all_done()) {
		see_received(wc);
		sched_yield();
	}
	return NULL;
}

TEST_SLOW(crowd_recv, "PDM-4", "without a thread domain three threads post receive WQEs, to a QP or an SRQ, while three send; no message is lost or comes twice", 60)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	int i;

	for (i = 0; i < 2; i++) {
		done = 0;
		posted = 0;
		shared = setup(parent_new(pd, NULL), i);
		start(receiver, sender);
	}
}

/* Arm a CQ with a channel while it is polled. @single: no locks. */
static void arm_in_poll(bool single)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_cq_init_attr_ex init = {
		.cqe = QP_WRS, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = single ? IBV_CREATE_CQ_ATTR_SINGLE_THREADED : 0,
		.channel = MUST(ibv_create_comp_channel(pd->context)),
	};
	struct ibv_poll_cq_attr attr = {};
	struct ibv_cq_ex *cq;
	struct ibv_cq *event;
	struct ibv_qp *qp;
	struct mem mem;
	void *context;
	long before;

	cq = MUST(ibv_create_cq_ex(pd->context, &init));
	mem = MEM(MUST(ibv_reg_mr(pd, to, PAGE, IBV_ACCESS_LOCAL_WRITE)));
	qp = qp_new(pd, ibv_cq_ex_to_cq(cq), IBV_QPT_RC, NULL);
	qp_connect(qp, qp->qp_num);
	before = dev_counter("tx_msgs");
	post_recv(qp, 1, mem);
	post_send(qp, 2, mem);
	dev_counter_wait("tx_msgs", before, 1);
	CHECK_OK(ibv_start_poll(cq, &attr));
	CHECK_EQ(cq->wr_id, 1);
	CHECK_OK(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 0));
	CHECK_OK(ibv_next_poll(cq));
	CHECK_EQ(cq->wr_id, 2);
	CHECK_RET(ibv_next_poll(cq), ENOENT);
	CHECK_OK(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 0));
	ibv_end_poll(cq);
	post_recv(qp, 3, mem);
	post_send(qp, 4, mem);
	CHECK_SYS(ibv_get_cq_event(init.channel, &event, &context), 0);
	CHECK(event == ibv_cq_ex_to_cq(cq));
	ibv_ack_cq_events(event, 1);
	CHECK_WC(event, 3, IBV_WC_SUCCESS);
	CHECK_WC(event, 4, IBV_WC_SUCCESS);
}

TEST_SLOW(arm_polled, "PDM-4", "a thread may arm a CQ from within its own poll of it, between ibv_start_poll() and ibv_end_poll(), with locks and without, and the event comes", 20)
{
	arm_in_poll(false);
	arm_in_poll(true);
}
