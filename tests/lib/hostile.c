// SPDX-License-Identifier: GPL-2.0
/*
 * Hostile processes and their victims. See hostile.h.
 */
#include <sys/mman.h>

#include "hostile.h"
#include "iso.h"
#include "qp.h"
#include "stall.h"
#include "t.h"

/* Receive WQEs at each end. */
#define RECEIVES	4
/* A pair runs for a random time up to this, in us. */
#define ALONE_US	300000

enum how { HOLDS_LOCK, IN_PATH_WALK, STOPPED, HOWS };
enum end { VICTIM_KILLED, RELEASED, ABORTED, HOSTILE_KILLED, ENDS };

static const struct {
	enum iso_type type;
	enum ibv_wr_opcode op;
} requests[] = {
	{ ISO_RC, IBV_WR_SEND },
	{ ISO_RC, IBV_WR_RDMA_READ },
	{ ISO_RC, IBV_WR_RDMA_WRITE },
	{ ISO_RC, IBV_WR_ATOMIC_FETCH_AND_ADD },
	{ ISO_UC, IBV_WR_SEND },
	{ ISO_UC, IBV_WR_RDMA_WRITE },
	{ ISO_UD, IBV_WR_SEND },
	{ ISO_XRC, IBV_WR_SEND },
	{ ISO_XRC, IBV_WR_RDMA_WRITE },
};

#define REQUESTS	(sizeof(requests) / sizeof(*requests))

/* The kind of this pair. */
static enum how how;
static int request;
static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));

static void open_end(struct iso_end *e, struct peer *parent, void *memory,
		     int access)
{
	int i;

	iso_open(e, KEEL0, NULL, requests[request].type);
	e->mr = iso_mr(e, memory, access);
	iso_meet(e, parent);
	for (i = 0; i < RECEIVES; i++)
		iso_post_recv(e, 1, e->mr);
}

/* Ignore the result: the other end may be in any state. */
static void request_once(struct iso_end *e)
{
	enum ibv_wr_opcode op = requests[request].op;
	struct ibv_wc wc;

	if (op == IBV_WR_SEND)
		iso_send(e, 2, e->mr);
	else
		iso_rdma(e, op, 2, e->mr);
	while (ibv_poll_cq(e->cq, 1, &wc) > 0)
		if (wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS)
			iso_post_recv(e, 1, e->mr);
}

static void hostile(struct peer *parent)
{
	void *memory = stall_memory(ISO_PAGE);
	struct iso_end e;

	open_end(&e, parent, memory, IBV_ACCESS_ON_DEMAND);
	if (how == HOLDS_LOCK)
		stall_hold();
	peer_tell(parent);
	if (how == IN_PATH_WALK)
		stall_walk();
	for (;;) {
		request_once(&e);
		usleep(1000);
	}
}

static void victim(struct peer *parent)
{
	struct iso_end e;

	open_end(&e, parent, page, 0);
	peer_tell(parent);
	for (;;) {
		request_once(&e);
		usleep(1000);
	}
}

static void end_pair(struct stall *s, struct peer *v, enum end end)
{
	switch (end) {
	case RELEASED:
		stall_release(s);
		usleep(ALONE_US / 10);
		break;
	case ABORTED:
		stall_abort(s);
		usleep(ALONE_US / 10);
		break;
	case HOSTILE_KILLED:
		SYS(kill(s->peer.pid, SIGKILL));
		usleep(ALONE_US / 10);
		break;
	default:
		break;
	}
	/* peer_kill() returns only when the victim is dead. */
	peer_kill(v, SIGKILL);
	stall_end(s);
}

static void one_pair(uint64_t *seed)
{
	struct stall s;
	struct peer v;

	how = t_random(seed) % HOWS;
	request = t_random(seed) % REQUESTS;
	stall_start(&s, hostile);
	peer_start(&v, victim);
	iso_introduce(&s.peer, &v);
	peer_wait(&v);
	peer_wait(&s.peer);
	if (how == STOPPED)
		SYS(kill(s.peer.pid, SIGSTOP));
	usleep(t_random(seed) % ALONE_US);
	end_pair(&s, &v, t_random(seed) % ENDS);
}

void hostile_rounds(const atomic_bool *stop, uint64_t seed,
		    atomic_ullong *rounds)
{
	while (!atomic_load(stop)) {
		one_pair(&seed);
		atomic_fetch_add(rounds, 1);
	}
}
