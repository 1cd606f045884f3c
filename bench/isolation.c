// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The cost of one process to another. One JSON object:
 *
 * isolation spin SECONDS: how often a loop of the processor runs
 * isolation load DEVICE QUEUES MIB: so many send queues with long messages,
 *	until it is killed; prints a line as soon as all have something to do
 * isolation rnr DEVICE SAMPLES SECONDS: from posting a receive that a sender
 *	waits for until its completion
 * isolation no_wait DEVICE SAMPLES SECONDS: likewise from posting the send, with
 *	the receive there: the least that "rnr" can be
 * isolation rnr_two DEVICE SAMPLES SECONDS: the same, between two processes
 * isolation wake SAMPLES: from waking a thread of another process, by eventfd,
 *	until it runs: the least that "rnr_two" can be
 * isolation wait DEVICE QUEUES: so many send queues wait for a receive, until
 *	it is killed; prints a line when they do
 * isolation batch DEVICE MESSAGES SECONDS: 64-byte messages, so many a call
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "rc.h"

#define SIZE		64
#define MIB		(1024UL * 1024)
/* Work requests of a queue under load: it must last for as long as is measured. */
#define LOAD_DEPTH	32
#define MAX_BATCH	1024
#define MAX_SAMPLES	1000
/* How long a sender waits before the receive comes, in us. */
#define RNR_WAIT	5000

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;

static void open_all(const char *device)
{
	context = open_device(device);
	pd = ibv_alloc_pd(context);
	if (!pd || ibv_query_gid(context, PORT, 0, &gid))
		die("PD or GID");
}

static struct ibv_cq *new_cq(int entries)
{
	struct ibv_cq *cq = ibv_create_cq(context, entries, NULL, NULL, 0);

	if (!cq)
		die("CQ of %d entries", entries);
	return cq;
}

static void join(struct ibv_qp *a, struct ibv_qp *b)
{
	rc_init(a);
	rc_init(b);
	rc_connect(a, b->qp_num, &gid, 0);
	rc_connect(b, a->qp_num, &gid, 0);
}

static struct ibv_mr *new_mr(size_t length)
{
	void *at = mmap(NULL, length, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	struct ibv_mr *mr;

	if (at == MAP_FAILED)
		die("%zu bytes of memory", length);
	mr = ibv_reg_mr(pd, at, length, IBV_ACCESS_LOCAL_WRITE);
	if (!mr)
		die("MR of %zu bytes", length);
	return mr;
}

static struct ibv_sge sge_of(const struct ibv_mr *mr, size_t length)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)mr->addr, .length = length,
		.lkey = mr->lkey,
	};

	return sge;
}

/* One that signals nothing unless @flags says so. */
static void post_send(struct ibv_qp *qp, struct ibv_sge *sge, int flags)
{
	struct ibv_send_wr wr = {
		.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = flags,
	}, *bad;

	errno = ibv_post_send(qp, &wr, &bad);
	if (errno)
		die("send");
}

static void post_recv(struct ibv_qp *qp, struct ibv_sge *sge)
{
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = 1 }, *bad;

	errno = ibv_post_recv(qp, &wr, &bad);
	if (errno)
		die("receive");
}

/* Ready, and nothing more to do. */
static void stay(void)
{
	puts("{}");
	fflush(stdout);
	for (;;)
		pause();
}

static void spin(double seconds)
{
	double start = now(), took;
	unsigned long loops = 0;
	volatile int i;

	do {
		for (i = 0; i < 100000; i++)
			;
		loops += 100000;
		took = now() - start;
	} while (took < seconds);
	printf("{\"rate\": %.6f}\n", loops / took / 1e6);
}

/*
 * All queues wait for receives first, so that it is the kernel that goes on
 * with them, and not the calls of this process.
 */
static void load(int queues, size_t mib)
{
	struct ibv_qp **qp = calloc(queues, sizeof(*qp));
	struct ibv_mr *mr = new_mr(mib * MIB);
	struct ibv_sge sge = sge_of(mr, mib * MIB);
	struct ibv_cq *cq = new_cq(4096);
	int i, j;

	for (i = 0; i < queues; i++) {
		qp[i] = rc_new(pd, cq, LOAD_DEPTH);
		if (i % 2)
			join(qp[i - 1], qp[i]);
	}
	for (i = 0; i < queues; i++)
		for (j = 0; j < LOAD_DEPTH; j++)
			post_send(qp[i], &sge, 0);
	for (i = 0; i < queues; i++)
		for (j = 0; j < LOAD_DEPTH; j++)
			post_recv(qp[i], &sge);
	stay();
}

static void wait_for_receives(int queues)
{
	struct ibv_mr *mr = new_mr(4096);
	struct ibv_sge sge = sge_of(mr, SIZE);
	struct ibv_cq *cq = new_cq(256);
	struct ibv_qp *from, *to;
	int i;

	for (i = 0; i < queues; i++) {
		from = rc_new(pd, cq, 1);
		to = rc_new(pd, cq, 1);
		join(from, to);
		post_send(from, &sge, 0);
	}
	stay();
}

static void poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(cq, 1, &wc);
	while (!n);
	errno = 0;
	if (n < 0 || wc.status != IBV_WC_SUCCESS)
		die("completion: %s", n < 0 ? "none" :
		    ibv_wc_status_str(wc.status));
}

/* A processor that sleeps, or an emulator, takes its time to come back. */
static void spin_for(int us)
{
	double until = now() + us / 1e6;

	while (now() < until)
		;
}

/* As rarely as does no harm to what the other process measures. */
static void poll_asleep(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		usleep(2 * RNR_WAIT);
	if (n < 0 || wc.status != IBV_WC_SUCCESS)
		die("completion");
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* With the receive there, after the same pause. */
static double no_wait(struct ibv_qp *from, struct ibv_qp *to,
		      struct ibv_sge *sge)
{
	double start, took;

	post_recv(to, sge);
	spin_for(RNR_WAIT);
	start = now();
	post_send(from, sge, IBV_SEND_SIGNALED);
	poll_one(to->recv_cq);
	took = now() - start;
	poll_one(from->send_cq);
	return took;
}

/* The sender has waited for a while when the receive comes. */
static double recover(struct ibv_qp *from, struct ibv_qp *to,
		      struct ibv_sge *sge)
{
	double start, took;

	post_send(from, sge, IBV_SEND_SIGNALED);
	spin_for(RNR_WAIT);
	start = now();
	post_recv(to, sge);
	poll_one(to->recv_cq);
	took = now() - start;
	poll_one(from->send_cq);
	return took;
}

static void print_samples(double *took, int n)
{
	qsort(took, n, sizeof(took[0]), compare);
	printf("{\"us\": %.3f, \"worst\": %.3f, \"samples\": %d}\n",
	       took[n / 2] * 1e6, took[n - 1] * 1e6, n);
}

static void check_samples(int samples)
{
	if (samples < 1 || samples > MAX_SAMPLES)
		die("1 to %d samples", MAX_SAMPLES);
}

/* Shared by two processes. */
static struct board {
	_Atomic uint32_t qpn[2];
	atomic_int connected, turn;
} *board;

static void new_board(void)
{
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED)
		die("a page");
}

/* Without a processor for it: the other process may need it. */
static void wait_until(atomic_int *what, int value)
{
	while (atomic_load(what) < value)
		usleep(200);
}

static struct ibv_qp *meet(int me)
{
	struct ibv_qp *qp = rc_new(pd, new_cq(4), 4);

	rc_init(qp);
	atomic_store(&board->qpn[me], qp->qp_num);
	while (!atomic_load(&board->qpn[!me]))
		usleep(200);
	rc_connect(qp, atomic_load(&board->qpn[!me]), &gid, 0);
	atomic_fetch_add(&board->connected, 1);
	wait_until(&board->connected, 2);
	return qp;
}

/* A message in each turn that comes; then it waits for a receive. */
static void send_in_turns(const char *device)
{
	struct ibv_sge sge;
	struct ibv_qp *qp;
	int i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_all(device);
	sge = sge_of(new_mr(4096), SIZE);
	qp = meet(0);
	for (i = 1;; i += 2) {
		wait_until(&board->turn, i);
		post_send(qp, &sge, IBV_SEND_SIGNALED);
		atomic_store(&board->turn, i + 1);
		poll_asleep(qp->send_cq);
	}
}

static void rnr_two(const char *device, int samples, double seconds)
{
	static double took[MAX_SAMPLES];
	double start = now(), at;
	struct ibv_sge sge;
	struct ibv_qp *qp;
	int n = 0;

	check_samples(samples);
	new_board();
	if (!fork())
		send_in_turns(device);
	open_all(device);
	sge = sge_of(new_mr(4096), SIZE);
	qp = meet(1);
	do {
		atomic_store(&board->turn, 2 * n + 1);
		wait_until(&board->turn, 2 * n + 2);
		spin_for(RNR_WAIT);
		at = now();
		post_recv(qp, &sge);
		poll_one(qp->recv_cq);
		took[n++] = now() - at;
	} while (n < samples && now() - start < seconds);
	print_samples(took, n);
}

static void wake(int samples)
{
	int n, fd = eventfd(0, 0);
	static double took[MAX_SAMPLES];
	uint64_t one = 1;
	double at;

	check_samples(samples);
	new_board();
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (read(fd, &one, sizeof(one)) == sizeof(one))
			atomic_fetch_add(&board->turn, 1);
	}
	for (n = 0; n < samples; n++) {
		spin_for(RNR_WAIT);
		at = now();
		if (write(fd, &one, sizeof(one)) != sizeof(one))
			die("eventfd");
		while (atomic_load(&board->turn) <= n)
			;
		took[n] = now() - at;
	}
	print_samples(took, n);
}

typedef double (*sample_fn)(struct ibv_qp *from, struct ibv_qp *to,
			    struct ibv_sge *sge);

static void rnr(sample_fn sample, int samples, double seconds)
{
	struct ibv_mr *mr = new_mr(4096);
	struct ibv_sge sge = sge_of(mr, SIZE);
	struct ibv_qp *from = rc_new(pd, new_cq(4), 4);
	struct ibv_qp *to = rc_new(pd, new_cq(4), 4);
	static double took[MAX_SAMPLES];
	double start = now();
	int n = 0;

	check_samples(samples);
	join(from, to);
	do
		took[n++] = sample(from, to, &sge);
	while (n < samples && now() - start < seconds);
	print_samples(took, n);
}

/* As many receives as sends, then a call with all the sends. */
static void one_batch(struct ibv_qp *from, struct ibv_qp *to, int batch,
		      struct ibv_send_wr *send, struct ibv_recv_wr *recv)
{
	struct ibv_send_wr *bad_send;
	struct ibv_recv_wr *bad_recv;
	int i;

	errno = ibv_post_recv(to, recv, &bad_recv);
	if (!errno)
		errno = ibv_post_send(from, send, &bad_send);
	if (errno)
		die("a call with %d messages", batch);
	for (i = 0; i < batch; i++)
		poll_one(to->recv_cq);
	poll_one(from->send_cq);
}

static void batches(int batch, double seconds)
{
	static struct ibv_send_wr send[MAX_BATCH];
	static struct ibv_recv_wr recv[MAX_BATCH];
	struct ibv_mr *mr = new_mr(4096);
	struct ibv_sge sge = sge_of(mr, SIZE);
	struct ibv_qp *from = rc_new(pd, new_cq(2), MAX_BATCH);
	struct ibv_qp *to = rc_new(pd, new_cq(MAX_BATCH), MAX_BATCH);
	double start, took;
	long n = 0;
	int i;

	if (batch < 1 || batch > MAX_BATCH)
		die("1 to %d messages a call", MAX_BATCH);
	join(from, to);
	for (i = 0; i < batch; i++) {
		bool last = i == batch - 1;

		send[i] = (struct ibv_send_wr) {
			.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
			.send_flags = last ? IBV_SEND_SIGNALED : 0,
			.next = last ? NULL : &send[i + 1],
		};
		recv[i] = (struct ibv_recv_wr) {
			.sg_list = &sge, .num_sge = 1,
			.next = last ? NULL : &recv[i + 1],
		};
	}
	start = now();
	do {
		one_batch(from, to, batch, send, recv);
		n += batch;
		took = now() - start;
	} while (took < seconds);
	printf("{\"us\": %.6f}\n", took / n * 1e6);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "spin") && argc == 3) {
		spin(atof(argv[2]));
		return 0;
	}
	if (!strcmp(what, "wake") && argc == 3) {
		wake(atoi(argv[2]));
		return 0;
	}
	if (!strcmp(what, "rnr_two") && argc == 5) {
		rnr_two(argv[2], atoi(argv[3]), atof(argv[4]));
		return 0;
	}
	if (argc < 4)
		die("usage: see the head of isolation.c");
	open_all(argv[2]);
	if (!strcmp(what, "load") && argc == 5)
		load(atoi(argv[3]), atoi(argv[4]));
	else if (!strcmp(what, "wait") && argc == 4)
		wait_for_receives(atoi(argv[3]));
	else if (!strcmp(what, "rnr") && argc == 5)
		rnr(recover, atoi(argv[3]), atof(argv[4]));
	else if (!strcmp(what, "no_wait") && argc == 5)
		rnr(no_wait, atoi(argv[3]), atof(argv[4]));
	else if (!strcmp(what, "batch") && argc == 5)
		batches(atoi(argv[3]), atof(argv[4]));
	else
		die("usage: see the head of isolation.c");
	return 0;
}
