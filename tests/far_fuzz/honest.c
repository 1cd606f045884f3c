// SPDX-License-Identifier: GPL-2.0
/*
 * The honest pair: two QPs of the two hosts, on the devices that the stranger uses, too. It
 * checks all data, and the fuzzer checks that it goes on.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "hosts.h"
#include "qp.h"
#include "t.h"
#include "world.h"

#define BYTES		10000
/* A round may take this long on a busy machine. */
#define ROUND_MS	30000
/* Leave the processor to the fuzzer. */
#define PAUSE_US	5000

static volatile unsigned long *rounds;

static struct mem part(const struct end *e, size_t off, uint32_t len)
{
	return (struct mem){ e->mem + off, len, e->mr->lkey };
}

/* A write, a send the other way, and an atomic operation. */
static void honest_round(struct end *a, struct end *b, unsigned long n)
{
	uint8_t byte = n;

	memset(a->mem, byte, BYTES);
	memset(b->mem + END_HALF, ~byte, BYTES);
	post_recv(a->qp, 1, part(a, END_HALF, BYTES));
	post_rdma(a->qp, IBV_WR_RDMA_WRITE, 2, part(a, 0, BYTES), (uintptr_t)b->mem, b->mr->rkey);
	CHECK_WC(a->cq, 2, IBV_WC_SUCCESS);
	CHECK_ALL(b->mem, byte, BYTES);
	post_send(b->qp, 3, part(b, END_HALF, BYTES));
	CHECK_WC(a->cq, 1, IBV_WC_SUCCESS);
	CHECK_WC(b->cq, 3, IBV_WC_SUCCESS);
	CHECK_ALL(a->mem + END_HALF, (uint8_t)~byte, BYTES);
	post_add(a->qp, 4, part(a, BYTES, 8), (uintptr_t)b->mem + END_BYTES - 8, b->mr->rkey, 1);
	CHECK_WC(a->cq, 4, IBV_WC_SUCCESS);
	CHECK_EQ(*(uint64_t *)(a->mem + BYTES), n);
}

static void honest_run(void)
{
	struct end a = end_new(0), b = end_new(1);

	ends_join(&a, &b, &joint_patient);
	for (;;) {
		honest_round(&a, &b, *rounds);
		++*rounds;
		usleep(PAUSE_US);
	}
}

pid_t honest_start(void)
{
	pid_t pid;

	if (!rounds) {
		rounds = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
			      0);
		CHECK(rounds != MAP_FAILED);
	}
	*rounds = 0;
	pid = SYS(fork());
	if (!pid)
		honest_run();
	return pid;
}

/* It must go on, whatever the stranger does. */
void honest_check(pid_t pid)
{
	unsigned long before = *rounds;
	int ms;

	for (ms = 0; *rounds == before; ms += 10) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			FAIL("the honest pair has failed after %lu rounds", before);
		if (ms > ROUND_MS)
			FAIL("the honest pair has stopped after %lu rounds", before);
		usleep(10000);
	}
}

void honest_end(pid_t pid)
{
	t_note("the honest pair: %lu rounds", *rounds);
	SYS(kill(pid, SIGKILL));
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
}
