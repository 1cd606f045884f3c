// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * overlap DEVICE GID-INDEX BYTES SECONDS: RDMA writes of so many bytes, and computation
 * meanwhile. One JSON object:
 *
 *   post     microseconds of ibv_post_send(), the median
 *   write    microseconds until the completion, the median
 *   overlap  the part of the write that is hidden, if the application computes for as
 *            long between posting and polling: 1 if both together take as long as one of
 *            them, 0 if as long as one after the other. It computes with registers, and
 *            needs no memory meanwhile
 */
#include "rc.h"

#define MOST		4000
#define LEAST		20

static volatile unsigned long sink;

static double times[2][MOST];

static void compute(long turns)
{
	long i;

	for (i = 0; i < turns; i++)
		sink = sink * 3 + i;
}

static int by_value(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

static double median(double *values, int n)
{
	qsort(values, n, sizeof(*values), by_value);
	return values[n / 2];
}

static void post(struct ibv_qp *qp, struct ibv_mr *mr, uint32_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, bytes, mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)mr->addr + bytes, mr->rkey },
	}, *bad;

	errno = ibv_post_send(qp, &wr, &bad);
	if (errno)
		die("ibv_post_send()");
}

static void wait_for(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	errno = 0;
	if (n < 0 || wc.status)
		die("a write ended with status %d", n < 0 ? -1 : (int)wc.status);
}

/*
 * Write for so long, and compute after each post. The times of the posts and of all of it
 * go to @times. Returns the number of writes.
 */
static int run(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mr *mr, uint32_t bytes,
	       double seconds, long turns)
{
	double begin = now(), start;
	int n;

	for (n = 0; n < MOST && (n < LEAST || now() - begin < seconds); n++) {
		start = now();
		post(qp, mr, bytes);
		times[0][n] = now() - start;
		compute(turns);
		wait_for(cq);
		times[1][n] = now() - start;
	}
	return n;
}

/* Turns that take so long. */
static long calibrate(double seconds)
{
	long turns = 1000;
	double start, took;

	for (;; turns *= 2) {
		start = now();
		compute(turns);
		took = now() - start;
		if (took > 0.01)
			return turns * (seconds / took) + 1;
	}
}

/* How long so many turns take if no write is under way. */
static double alone(long turns)
{
	double start;
	int n;

	for (n = 0; n < LEAST; n++) {
		start = now();
		compute(turns);
		times[0][n] = now() - start;
	}
	return median(times[0], LEAST);
}

int main(int argc, char **argv)
{
	double post_time, write_time, compute_time, both, shorter, seconds;
	long turns;
	struct ibv_context *context;
	uint32_t bytes;
	struct ibv_qp *from, *to;
	union ibv_gid gid;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *memory;
	int index, n;

	if (argc != 5)
		die("usage: overlap DEVICE GID-INDEX BYTES SECONDS");
	context = open_device(argv[1]);
	index = atoi(argv[2]);
	bytes = strtoul(argv[3], NULL, 10);
	seconds = atof(argv[4]);
	memory = calloc(2, bytes);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	if (!memory || !pd || !cq || ibv_query_gid(context, PORT, index, &gid))
		die("what a queue pair needs");
	mr = ibv_reg_mr(pd, memory, 2UL * bytes,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr)
		die("memory");
	from = rc_new(pd, cq, 4);
	to = rc_new(pd, cq, 4);
	rc_init(from);
	rc_init(to);
	rc_connect(from, to->qp_num, &gid, index);
	rc_connect(to, from->qp_num, &gid, index);

	run(from, cq, mr, bytes, 0, 0);
	n = run(from, cq, mr, bytes, seconds, 0);
	post_time = median(times[0], n);
	write_time = median(times[1], n);
	turns = calibrate(write_time);
	compute_time = alone(turns);
	n = run(from, cq, mr, bytes, seconds, turns);
	both = median(times[1], n);
	shorter = write_time < compute_time ? write_time : compute_time;
	printf("{\"post\": %.3f, \"write\": %.3f, \"overlap\": %.3f}\n", post_time * 1e6,
	       write_time * 1e6, (write_time + compute_time - both) / shorter);
	return 0;
}
