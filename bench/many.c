// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * many DEVICE GID-INDEX QPS BATCH SECONDS: RDMA writes of 64 bytes from so many queue
 * pairs in turn, each to a peer of its own. One JSON object with millions of messages a
 * second, "rate". BATCH messages, of as many queue pairs, are posted before the next poll:
 * with keeldv_post_sends() if there is more than one, or with ibv_post_send(), one after
 * the other, if BATCH is negative.
 */
#include <dlfcn.h>
#include <stdbool.h>

#include "rc.h"

#define LEN		64
#define MOST_BATCH	64
#define PIECES		15

/* As <infiniband/keeldv.h> of keel has it; other devices have no such call. */
struct keeldv_post {
	struct ibv_qp *qp;
	struct ibv_send_wr *wr;
	struct ibv_send_wr *bad_wr;
	int ret;
};

static int (*post_sends)(struct keeldv_post *posts, unsigned int n);

static struct ibv_cq *cq;
static struct ibv_qp **from;
static int qps, batch;
static bool one_call;
static struct ibv_sge sge;
static struct ibv_send_wr wr;
static struct keeldv_post posts[MOST_BATCH];

static void connect_all(struct ibv_context *context, struct ibv_pd *pd, int gid_index)
{
	union ibv_gid gid;
	struct ibv_qp *to;
	int i;

	if (ibv_query_gid(context, PORT, gid_index, &gid))
		die("GID %d", gid_index);
	for (i = 0; i < qps; i++) {
		from[i] = rc_new(pd, cq, 4);
		to = rc_new(pd, cq, 4);
		rc_init(from[i]);
		rc_init(to);
		rc_connect(from[i], to->qp_num, &gid, gid_index);
		rc_connect(to, from[i]->qp_num, &gid, gid_index);
	}
}

static void post(int first)
{
	struct ibv_send_wr *bad;
	int i;

	if (one_call) {
		for (i = 0; i < batch; i++) {
			posts[i].qp = from[(first + i) % qps];
			posts[i].wr = &wr;
		}
		errno = post_sends(posts, batch);
		if (errno)
			die("keeldv_post_sends()");
		return;
	}
	for (i = 0; i < batch; i++) {
		errno = ibv_post_send(from[(first + i) % qps], &wr, &bad);
		if (errno)
			die("ibv_post_send()");
	}
}

static void poll(void)
{
	struct ibv_wc wc[MOST_BATCH];
	int left, n, i;

	for (left = batch; left; left -= n) {
		n = ibv_poll_cq(cq, left, wc);
		errno = 0;
		if (n < 0)
			die("poll");
		for (i = 0; i < n; i++)
			if (wc[i].status)
				die("a write ended with status %d", wc[i].status);
	}
}

/* Each queue pair once or more. Returns messages a second. */
static double piece(double seconds)
{
	double start = now();
	long sent = 0;
	int first = 0;

	do {
		post(first);
		poll();
		first = (first + batch) % qps;
		sent += batch;
	} while (sent < qps || now() - start < seconds);
	return sent / (now() - start);
}

static int by_value(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
	static char memory[2 * LEN];
	struct ibv_context *context;
	double rates[PIECES];
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	int i;

	if (argc != 6)
		die("usage: many DEVICE GID-INDEX QPS BATCH SECONDS");
	qps = atoi(argv[3]);
	batch = atoi(argv[4]);
	one_call = batch > 1;
	batch = abs(batch);
	if (qps < 1 || batch < 1 || batch > MOST_BATCH || batch > qps)
		die("a number is wrong");
	if (one_call) {
		void *library = dlopen("libkeel.so.1", RTLD_NOW);

		post_sends = library ? dlsym(library, "keeldv_post_sends") : NULL;
		errno = 0;
		if (!post_sends)
			die("keeldv_post_sends() is missing");
	}
	context = open_device(argv[1]);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 2 * MOST_BATCH, NULL, NULL, 0);
	from = calloc(qps, sizeof(*from));
	if (!pd || !cq || !from)
		die("what queue pairs need");
	mr = ibv_reg_mr(pd, memory, sizeof(memory),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr)
		die("memory");
	connect_all(context, pd, atoi(argv[2]));
	sge = (struct ibv_sge){ (uintptr_t)memory, LEN, mr->lkey };
	wr = (struct ibv_send_wr){
		.sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)memory + LEN, mr->rkey },
	};
	/* The first messages take the slow path. */
	piece(0);
	for (i = 0; i < PIECES; i++)
		rates[i] = piece(atof(argv[5]) / PIECES);
	qsort(rates, PIECES, sizeof(*rates), by_value);
	printf("{\"rate\": %.6f}\n", rates[PIECES / 2] / 1e6);
	return 0;
}
