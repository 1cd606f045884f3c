// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * crowd QPS DEVICE GID-INDEX OTHER-DEVICE OTHER-GID-INDEX: two processes connect so many
 * queue pairs, each on its device, in pairs, to RTS. One of each hundred carries an RDMA
 * write, which the other process checks. One JSON object: the "seconds" until all are
 * connected, and how many bytes of "kernel" memory a queue pair takes. They end with the
 * standard input.
 */
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rc.h"

#define LEN		64
/* One of so many carries a message. */
#define SAMPLE		100
#define PATIENCE	30.0

/**
 * struct half - what a process tells the other one at first
 * @gid: of its device
 * @addr: of its memory: LEN bytes for each message
 * @rkey: the key of that
 */
struct half {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t rkey;
};

static int qps, gid_index, channel;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp **qp;
static uint32_t *theirs;
static char *memory;
static struct half other;

static void tell(const void *data, size_t n)
{
	if (send(channel, data, n, MSG_NOSIGNAL) != (ssize_t)n)
		die("the other process");
}

static void hear(void *data, size_t n)
{
	errno = 0;
	if (recv(channel, data, n, MSG_WAITALL) != (ssize_t)n)
		die("the other process has ended");
}

/* Both processes are here. */
static void meet(void)
{
	char c = 0;

	tell(&c, 1);
	hear(&c, 1);
}

static int samples(void)
{
	return (qps + SAMPLE - 1) / SAMPLE;
}

/* Of the sample @i, in the memory of the process that it is written to. */
static void fill(char *data, int i)
{
	memset(data, 1 + i % 255, LEN);
}

static void prepare(const char *device)
{
	size_t bytes = (size_t)samples() * LEN;
	struct half mine = {};

	context = open_device(device);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 2 * SAMPLE, NULL, NULL, 0);
	qp = calloc(qps, sizeof(*qp));
	theirs = calloc(qps, sizeof(*theirs));
	memory = calloc(1, bytes);
	if (!pd || !cq || !qp || !theirs || !memory)
		die("what queue pairs need");
	mr = ibv_reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr || ibv_query_gid(context, PORT, gid_index, &mine.gid))
		die("memory, or GID %d", gid_index);
	mine.addr = (uintptr_t)memory;
	mine.rkey = mr->rkey;
	tell(&mine, sizeof(mine));
	hear(&other, sizeof(other));
}

/* @first: tell the other process the numbers before it does. */
static void connect_all(bool first)
{
	uint32_t *mine = calloc(qps, sizeof(*mine));
	int i;

	if (!mine)
		die("no memory");
	for (i = 0; i < qps; i++) {
		qp[i] = rc_new(pd, cq, 1);
		rc_init(qp[i]);
		mine[i] = qp[i]->qp_num;
	}
	if (!first)
		hear(theirs, qps * sizeof(*theirs));
	tell(mine, qps * sizeof(*mine));
	if (first)
		hear(theirs, qps * sizeof(*theirs));
	for (i = 0; i < qps; i++)
		rc_connect(qp[i], theirs[i], &other.gid, gid_index);
	free(mine);
}

/* An RDMA write from the sample @i. */
static void write_one(int i)
{
	struct ibv_sge sge = { (uintptr_t)memory + i * LEN, LEN, mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { other.addr + i * LEN, other.rkey },
	}, *bad;
	double end = now() + PATIENCE;
	struct ibv_wc wc;
	int n;

	fill(memory + i * LEN, i);
	errno = ibv_post_send(qp[i * SAMPLE], &wr, &bad);
	if (errno)
		die("ibv_post_send()");
	do {
		n = ibv_poll_cq(cq, 1, &wc);
	} while (!n && now() < end);
	errno = 0;
	if (n != 1)
		die("the write of QP %d does not end", i * SAMPLE);
	if (wc.status)
		die("the write of QP %d ended with status %d", i * SAMPLE, wc.status);
}

static void check(void)
{
	char want[LEN];
	int i;

	errno = 0;
	for (i = 0; i < samples(); i++) {
		fill(want, i);
		if (memcmp(memory + i * LEN, want, LEN))
			die("the write of QP %d has not arrived", i * SAMPLE);
	}
}

/* Until the input ends, or the channel, which is the input of the other process. */
static void stay(int input)
{
	char c;

	while (read(input, &c, 1) > 0)
		;
}

static void other_process(const char *device)
{
	/* Before anything can fail. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prepare(device);
	meet();
	connect_all(false);
	meet();
	meet();
	check();
	meet();
	stay(channel);
	exit(0);
}

int main(int argc, char **argv)
{
	double start, took, bytes;
	int pair[2], i;
	pid_t child;
	bool first;

	if (argc != 6)
		die("usage: crowd QPS DEVICE GID-INDEX OTHER-DEVICE OTHER-GID-INDEX");
	qps = atoi(argv[1]);
	if (qps < 1)
		die("a number is wrong");
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		die("socketpair()");
	child = fork();
	if (child < 0)
		die("fork()");
	first = child;
	channel = pair[!first];
	close(pair[first]);
	gid_index = atoi(argv[first ? 3 : 5]);
	if (!first)
		other_process(argv[4]);
	prepare(argv[2]);
	bytes = kernel_bytes();
	meet();
	start = now();
	connect_all(true);
	meet();
	took = now() - start;
	/* Objects that were freed meanwhile are there until a grace period is over. */
	sleep(1);
	bytes = kernel_bytes() - bytes;
	for (i = 0; i < samples(); i++)
		write_one(i);
	meet();
	meet();
	printf("{\"seconds\": %.3f, \"kernel\": %.0f}\n", took, bytes / 2 / qps);
	fflush(stdout);
	stay(STDIN_FILENO);
	close(channel);
	waitpid(child, NULL, 0);
	return 0;
}
