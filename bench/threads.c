// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * threads DEVICE GID-INDEX THREADS SECONDS [BATCH]: 64-byte messages a second
 * of so many threads together, one JSON object.
 *
 * Each thread has a thread domain, a parent domain with it, a CQ and two RC
 * queue pairs connected to each other under that, and sends from one to the
 * other, BATCH messages a call, as fast as it can. A device without thread
 * domains is measured with a plain PD, which the answer says.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "rc.h"

#define SIZE		64
#define DEPTH		128
#define MAX_BATCH	32
#define MAX_THREADS	16

struct lane {
	pthread_t thread;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *from, *to;
	struct ibv_mr *mr;
	char *memory;
	/* Without a completion yet: requests of each queue. */
	int sends, receives;
	long sent, arrived;
	double seconds;
};

static struct ibv_context *context;
static struct ibv_pd *plain;
static union ibv_gid gid;
static int gid_index, batch = 1;
static double seconds;
static bool thread_domains = true;
static pthread_barrier_t barrier;
static atomic_bool over;

/* The scope of one thread, or the PD of all where the device has no such. */
static struct ibv_pd *make_scope(void)
{
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_parent_domain_init_attr attr = { .pd = plain };
	struct ibv_pd *scope;

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
		.cqe = 4 * DEPTH,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
		.parent_domain = scope,
	};
	struct ibv_cq_ex *extended;
	struct ibv_cq *cq;

	if (scope == plain) {
		cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
		if (!cq)
			die("CQ");
		return cq;
	}
	extended = ibv_create_cq_ex(context, &attr);
	if (!extended)
		die("CQ of a parent domain");
	return ibv_cq_ex_to_cq(extended);
}

static void set_up(struct lane *lane)
{
	lane->memory = aligned_alloc(4096, 4096);
	lane->pd = make_scope();
	lane->cq = make_cq(lane->pd);
	if (!lane->memory)
		die("no memory");
	memset(lane->memory, 0, 4096);
	lane->mr = ibv_reg_mr(lane->pd, lane->memory, 4096,
			      IBV_ACCESS_LOCAL_WRITE);
	if (!lane->mr)
		die("MR");
	lane->from = rc_new(lane->pd, lane->cq, DEPTH);
	lane->to = rc_new(lane->pd, lane->cq, DEPTH);
	rc_init(lane->from);
	rc_init(lane->to);
	rc_connect(lane->from, lane->to->qp_num, &gid, gid_index);
	rc_connect(lane->to, lane->from->qp_num, &gid, gid_index);
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

	while (lane->receives + batch <= DEPTH) {
		for (i = 0; i < batch; i++)
			wr[i] = (struct ibv_recv_wr) {
				.sg_list = &sge,
				.num_sge = 1,
				.next = i + 1 < batch ? &wr[i + 1] : NULL,
			};
		errno = ibv_post_recv(lane->to, wr, &bad);
		if (errno)
			die("receive");
		lane->receives += batch;
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
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.next = i + 1 < batch ? &wr[i + 1] : NULL,
		};
	wr[batch - 1].send_flags = IBV_SEND_SIGNALED;
	errno = ibv_post_send(lane->from, wr, &bad);
	if (errno)
		die("send");
	lane->sends += batch;
	lane->sent += batch;
}

static void reap(struct lane *lane)
{
	struct ibv_wc wc[32];
	int i, n;

	n = ibv_poll_cq(lane->cq, 32, wc);
	if (n < 0)
		die("poll");
	for (i = 0; i < n; i++) {
		errno = 0;
		if (wc[i].status != IBV_WC_SUCCESS)
			die("a completion says %s",
			    ibv_wc_status_str(wc[i].status));
		if (!(wc[i].opcode & IBV_WC_RECV)) {
			lane->sends -= batch;
			continue;
		}
		if (wc[i].byte_len != SIZE)
			die("a message of %u bytes", wc[i].byte_len);
		lane->receives--;
		lane->arrived++;
	}
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
		/* Never more than there are receives for. */
		while (lane->sends + batch <= DEPTH &&
		       lane->sent - lane->arrived + batch <= lane->receives)
			post_sends(lane);
		reap(lane);
	}
	lane->seconds = now() - start;
	return NULL;
}

int main(int argc, char **argv)
{
	static struct lane lanes[MAX_THREADS];
	struct timespec rest;
	int n, i;
	double rate = 0;

	if (argc < 5 || argc > 6)
		die("usage: threads DEVICE GID-INDEX THREADS SECONDS [BATCH]");
	context = open_device(argv[1]);
	gid_index = atoi(argv[2]);
	n = atoi(argv[3]);
	seconds = atof(argv[4]);
	if (argc == 6)
		batch = atoi(argv[5]);
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
