// SPDX-License-Identifier: GPL-2.0
/*
 * The honest pair: two QPs of the two hosts, on the devices that the stranger uses, too. And QPs
 * that send datagrams to a group, and receive them. They check all data, and the fuzzer checks
 * that they go on.
 */
#include <endian.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "groups.h"
#include "qp.h"
#include "t.h"
#include "world.h"

#define BYTES		10000
/* A round may take this long on a busy machine. */
#define ROUND_MS	30000
/* Leave the processor to the fuzzer. */
#define PAUSE_US	5000
/* Until a datagram is lost. It may arrive later, but before those that are sent after it. */
#define CAST_MS		50
#define MEMBER_RECVS	4
/* The Q_Key of members of each host, which nobody guesses. */
#define CAST_KEY(host)	(0x5e1f37b9 ^ (host) << 8)

/* Memory that the process of the honest pair shares with the fuzzer. */
static volatile struct {
	unsigned long rounds;
	unsigned long sent[HOSTS], arrived[HOSTS];	/* by the host of the member */
} *h;

/**
 * struct flow - datagrams to a group
 * @from: sends
 * @to: on the other host: a member that has to get each of them at most once
 * @ah: the group
 * @last: number of the last one that has arrived
 */
static struct flow {
	struct end from, to;
	struct ibv_ah *ah;
	uint32_t last;
} flows[HOSTS];

/* Nothing reaches them: a member with another Q_Key, and one of another group. */
static struct end silent[2];

/* A write, a send the other way, and an atomic operation. */
static void honest_round(struct end *a, struct end *b, unsigned long n)
{
	uint8_t byte = n;

	memset(a->mem, byte, BYTES);
	memset(b->mem + END_HALF, ~byte, BYTES);
	post_recv(a->qp, 1, end_part(a, END_HALF, BYTES));
	post_rdma(a->qp, IBV_WR_RDMA_WRITE, 2, end_part(a, 0, BYTES), (uintptr_t)b->mem,
		  b->mr->rkey);
	CHECK_WC(a->cq, 2, IBV_WC_SUCCESS);
	CHECK_ALL(b->mem, byte, BYTES);
	post_send(b->qp, 3, end_part(b, END_HALF, BYTES));
	CHECK_WC(a->cq, 1, IBV_WC_SUCCESS);
	CHECK_WC(b->cq, 3, IBV_WC_SUCCESS);
	CHECK_ALL(a->mem + END_HALF, (uint8_t)~byte, BYTES);
	post_add(a->qp, 4, end_part(a, BYTES, 8), (uintptr_t)b->mem + END_BYTES - 8, b->mr->rkey,
		 1);
	CHECK_WC(a->cq, 4, IBV_WC_SUCCESS);
	CHECK_EQ(*(uint64_t *)(a->mem + BYTES), n);
}

void member_receive(struct end *e, unsigned int slot)
{
	memset(e->mem + slot * MEMBER_SLOT, 0xee, MEMBER_SLOT);
	post_recv(e->qp, slot, end_part(e, slot * MEMBER_SLOT, GRH + 4096));
}

static struct end member_new(int host, int group, uint32_t key)
{
	struct end e = end_new_ud(host);
	unsigned int i;

	qp_ud_ready(e.qp, key);
	group_join(&e, &world_groups[group]);
	/* Room for those that should not come. */
	for (i = 0; i < MEMBER_RECVS; i++)
		member_receive(&e, i);
	return e;
}

static struct flow flow_new(int to)
{
	struct flow f = { .from = end_new_ud(!to) };

	qp_ud_ready(f.from.qp, CAST_KEY(to));
	f.to = member_new(to, W_FOUR, CAST_KEY(to));
	f.ah = group_ah(&f.from, &world_groups[W_FOUR]);
	return f;
}

static uint32_t cast_bytes(uint32_t n)
{
	return n * 397 % 4001;
}

static void cast(struct flow *f, uint32_t n, uint32_t key)
{
	struct ibv_send_wr *wr = send_wr(IBV_WR_SEND_WITH_IMM, 1,
					 end_part(&f->from, 0, cast_bytes(n)));

	memset(f->from.mem, n, cast_bytes(n));
	wr->imm_data = htobe32(n);
	wr->wr.ud.ah = f->ah;
	wr->wr.ud.remote_qpn = MULTICAST_QPN;
	wr->wr.ud.remote_qkey = key;
	post(f->from.qp, wr);
	CHECK_WC(f->from.cq, 1, IBV_WC_SUCCESS);
}

/* It was sent, and is newer than the last one. */
static void check_cast(struct flow *f, const struct ibv_wc *wc, uint32_t newest)
{
	uint32_t n = be32toh(wc->imm_data), len = cast_bytes(n);
	const char *data = f->to.mem + wc->wr_id * MEMBER_SLOT + GRH;

	CHECK_EQ(wc->status, IBV_WC_SUCCESS);
	CHECK_EQ(wc->wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	CHECK_EQ(wc->src_qp, f->from.qp->qp_num);
	if (n <= f->last || n > newest)
		FAIL("datagram %u arrives after %u of %u", n, f->last, newest);
	CHECK_EQ(wc->byte_len, GRH + len);
	CHECK_ALL(data, (uint8_t)n, len);
	CHECK_ALL(data + len, 0xee, 64);
	f->last = n;
	member_receive(&f->to, wc->wr_id);
}

/* Send datagram @n, and one that nobody is to get; it arrives, or is lost. */
static void cast_round(int to, uint32_t n)
{
	struct flow *f = &flows[to];
	struct ibv_wc wc;
	int ms;

	cast(f, n, CAST_KEY(to) ^ 2);
	cast(f, n, CAST_KEY(to));
	h->sent[to]++;
	for (ms = 0; f->last != n && ms < CAST_MS; ms++) {
		while (ibv_poll_cq(f->to.cq, 1, &wc) == 1) {
			check_cast(f, &wc, n);
			h->arrived[to]++;
		}
		usleep(1000);
	}
	CHECK_NO_WC(silent[0].cq);
	CHECK_NO_WC(silent[1].cq);
}

static void honest_run(void)
{
	struct end a = end_new(0), b = end_new(1);

	ends_join(&a, &b, &joint_patient);
	flows[0] = flow_new(0);
	flows[1] = flow_new(1);
	silent[0] = member_new(0, W_FOUR, CAST_KEY(0) ^ 1);
	silent[1] = member_new(0, W_THIRD, CAST_KEY(0));
	for (;;) {
		honest_round(&a, &b, h->rounds);
		cast_round(h->rounds % HOSTS, h->rounds + 1);
		h->rounds++;
		usleep(PAUSE_US);
	}
}

pid_t honest_start(void)
{
	pid_t pid;

	if (!h) {
		h = mmap(NULL, sizeof(*h), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
			 0);
		CHECK(h != MAP_FAILED);
	}
	pid = SYS(fork());
	if (!pid)
		honest_run();
	return pid;
}

static void wait_more(pid_t pid, const volatile unsigned long *counter, const char *what)
{
	unsigned long before = *counter;
	int ms;

	for (ms = 0; *counter == before; ms += 10) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			FAIL("the honest pair has failed after %lu rounds", h->rounds);
		if (ms > ROUND_MS)
			FAIL("the honest pair has stopped after %lu %s", before, what);
		usleep(10000);
	}
}

/* It must go on, whatever the stranger has done. */
void honest_check(pid_t pid)
{
	wait_more(pid, &h->rounds, "rounds");
	wait_more(pid, &h->arrived[0], "datagrams to host a");
	wait_more(pid, &h->arrived[1], "datagrams to host b");
}

void honest_end(pid_t pid)
{
	t_note("the honest pair: %lu rounds", h->rounds);
	t_note("%lu of %lu datagrams to a group have arrived at host a, %lu of %lu at host b",
	       h->arrived[0], h->sent[0], h->arrived[1], h->sent[1]);
	SYS(kill(pid, SIGKILL));
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
}
