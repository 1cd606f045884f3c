// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * threads DEVICE GID-INDEX THREADS SECONDS [BATCH [mr|cq]]: 64-byte messages a second
 * of so many threads together, one JSON object.
 *
 * Each thread has a thread domain, a parent domain with it, a CQ and two RC
 * queue pairs connected to each other under that, and sends from one to the
 * other, BATCH messages a call, as fast as it can. A device without thread
 * domains is measured with a plain PD, which the answer says.
 *
 * With "mr", all threads use one region, and with "cq" one CQ. Each thread takes the
 * completions of all from that one. There are no thread domains then.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "rc.h"

#define SIZE		64
#define DEPTH		128
#define MAX_BATCH	32
#define MAX_THREADS	16
/* For those of all threads. */
#define CQES		(2 * MAX_THREADS * DEPTH)

struct lane {
	pthread_t thread;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *from, *to;
	struct ibv_mr *mr;
	char *memory;
	long sent;
	double seconds;
	/* Requests of each queue without a completion yet. Any thread may get it. */
	atomic_int sends, receives;
	atomic_long arrived;
} __attribute__((aligned(128)));

static struct ibv_context *context;
static struct ibv_pd *plain;
static union ibv_gid gid;
static int gid_index, batch = 1;
static double seconds;
static bool thread_domains = true, one_mr, one_cq;
static struct lane lanes[MAX_THREADS];
static pthread_barrier_t barrier;
static atomic_bool over;

/* The scope of one thread, or the PD of all where the device has no such. */
static struct ibv_pd *make_scope(void)
{
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_parent_domain_init_attr attr = { .pd = plain };
	struct ibv_pd *scope;

	if (one_mr || one_cq) {
		thread_domains = false;
		return plain;
	}
	attr.td = ibv_alloc_td(context, &td_attr);
	if (!attr.td) {
		if (errno != EOPNOTSUPP && errno != ENOSYS)
			die("thread domain");
		thread_domains = false;
		return plain;
	}
	scope = ibv_alloc_parent_domain(context, &attr);
	if (!scope)
		die("parent domain");
	return scope;
}

static struct ibv_cq *make_cq(struct ibv_pd *scope)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = CQES,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
		.parent_domain = scope,
	};
	struct ibv_cq_ex *extended;
	struct ibv_cq *cq;

	if (scope == plain) {
		cq = ibv_create_cq(context, CQES, NULL, NULL, 0);
		if (!cq)
			die("CQ");
		return cq;
	}
	extended = ibv_create_cq_ex(context, &attr);
	if (!extended)
		die("CQ of a parent domain");
	return ibv_cq_ex_to_cq(extended);
}

/* The memory of a thread, and its region, which may have the pages of all. */
static void set_up_memory(struct lane *lane)
{
	size_t len = one_mr ? MAX_THREADS * 4096 : 4096;

	if (one_mr && lane != lanes) {
		lane->memory = lanes->memory + (lane - lanes) * 4096;
		lane->mr = lanes->mr;
		return;
	}
	lane->memory = aligned_alloc(4096, len);
	if (!lane->memory)
		die("no memory");
	memset(lane->memory, 0, len);
	lane->mr = ibv_reg_mr(lane->pd, lane->memory, len,
			      IBV_ACCESS_LOCAL_WRITE);
	if (!lane->mr)
		die("MR");
}

static void set_up(struct lane *lane)
{
	lane->pd = make_scope();
	lane->cq = one_cq && lane != lanes ? lanes->cq : make_cq(lane->pd);
	set_up_memory(lane);
	lane->from = rc_new(lane->pd, lane->cq, DEPTH);
	lane->to = rc_new(lane->pd, lane->cq, DEPTH);
	rc_init(lane->from);
	rc_init(lane->to);
	rc_connect(lane->from, lane->to->qp_num, &gid, gid_index);
	rc_connect(lane->to, lane->from->qp_num, &gid, gid_index);
}

static int load(atomic_int *n)
{
	return atomic_load_explicit(n, memory_order_relaxed);
}

static void add(atomic_int *n, int by)
{
	atomic_fetch_add_explicit(n, by, memory_order_relaxed);
}

static void post_receives(struct lane *lane)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)lane->memory + 2048,
		.length = SIZE,
		.lkey = lane->mr->lkey,
	};
	struct ibv_recv_wr wr[MAX_BATCH], *bad;
	int i;

	while (load(&lane->receives) + batch <= DEPTH) {
		for (i = 0; i < batch; i++)
			wr[i] = (struct ibv_recv_wr) {
				.wr_id = (uintptr_t)lane,
				.sg_list = &sge,
				.num_sge = 1,
				.next = i + 1 < batch ? &wr[i + 1] : NULL,
			};
		errno = ibv_post_recv(lane->to, wr, &bad);
		if (errno)
			die("receive");
		add(&lane->receives, batch);
	}
}

/* The last one of a batch is signalled; its completion gives back them all. */
static void post_sends(struct lane *lane)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)lane->memory,
		.length = SIZE,
		.lkey = lane->mr->lkey,
	};
	struct ibv_send_wr wr[MAX_BATCH], *bad;
	int i;

	for (i = 0; i < batch; i++)
		wr[i] = (struct ibv_send_wr) {
			.wr_id = (uintptr_t)lane,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.next = i + 1 < batch ? &wr[i + 1] : NULL,
		};
	wr[batch - 1].send_flags = IBV_SEND_SIGNALED;
	/* Another thread may get the completion at once. */
	add(&lane->sends, batch);
	errno = ibv_post_send(lane->from, wr, &bad);
	if (errno)
		die("send");
	lane->sent += batch;
}

static void reap(struct ibv_cq *cq)
{
	struct ibv_wc wc[32];
	struct lane *lane;
	int i, n;

	n = ibv_poll_cq(cq, 32, wc);
	if (n < 0)
		die("poll");
	for (i = 0; i < n; i++) {
		errno = 0;
		if (wc[i].status != IBV_WC_SUCCESS)
			die("a completion says %s",
			    ibv_wc_status_str(wc[i].status));
		lane = (struct lane *)(uintptr_t)wc[i].wr_id;
		if (!(wc[i].opcode & IBV_WC_RECV)) {
			add(&lane->sends, -batch);
			continue;
		}
		if (wc[i].byte_len != SIZE)
			die("a message of %u bytes", wc[i].byte_len);
		/* In this order, its thread does not send more than it can receive. */
		add(&lane->receives, -1);
		atomic_fetch_add_explicit(&lane->arrived, 1, memory_order_release);
	}
}

/* Never more than there are receives for. */
static bool may_send(struct lane *lane)
{
	long arrived = atomic_load_explicit(&lane->arrived, memory_order_acquire);

	return lane->sent - arrived + batch <= load(&lane->receives);
}

static void *run(void *arg)
{
	struct lane *lane = arg;
	double start;

	post_receives(lane);
	pthread_barrier_wait(&barrier);
	start = now();
	while (!atomic_load_explicit(&over, memory_order_relaxed)) {
		post_receives(lane);
		while (load(&lane->sends) + batch <= DEPTH && may_send(lane))
			post_sends(lane);
		reap(lane->cq);
	}
	lane->seconds = now() - start;
	return NULL;
}

int main(int argc, char **argv)
{
	struct timespec rest;
	int n, i;
	double rate = 0;

	if (argc < 5 || argc > 7)
		die("usage: threads DEVICE GID-INDEX THREADS SECONDS [BATCH [mr|cq]]");
	context = open_device(argv[1]);
	gid_index = atoi(argv[2]);
	n = atoi(argv[3]);
	seconds = atof(argv[4]);
	if (argc > 5)
		batch = atoi(argv[5]);
	if (argc > 6) {
		one_mr = !strcmp(argv[6], "mr");
		one_cq = !strcmp(argv[6], "cq");
		if (!one_mr && !one_cq)
			die("mr or cq");
	}
	if (n < 1 || n > MAX_THREADS || batch < 1 || batch > MAX_BATCH)
		die("1 to %d threads, 1 to %d messages a call", MAX_THREADS,
		    MAX_BATCH);
	if (ibv_query_gid(context, PORT, gid_index, &gid))
		die("GID %d", gid_index);
	plain = ibv_alloc_pd(context);
	if (!plain)
		die("PD");
	for (i = 0; i < n; i++)
		set_up(&lanes[i]);
	pthread_barrier_init(&barrier, NULL, n + 1);
	for (i = 0; i < n; i++)
		if (pthread_create(&lanes[i].thread, NULL, run, &lanes[i]))
			die("no thread");
	pthread_barrier_wait(&barrier);
	rest.tv_sec = seconds;
	rest.tv_nsec = (seconds - rest.tv_sec) * 1e9;
	nanosleep(&rest, NULL);
	atomic_store(&over, true);
	for (i = 0; i < n; i++) {
		pthread_join(lanes[i].thread, NULL);
		rate += lanes[i].arrived / lanes[i].seconds;
	}
	printf("{\"threads\": %d, \"rate\": %.6f, \"thread_domains\": %s}\n",
	       n, rate / 1e6, thread_domains ? "true" : "false");
	return 0;
}
