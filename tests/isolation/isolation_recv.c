// SPDX-License-Identifier: GPL-2.0
/*
 * A receive WQE names on-demand memory that cannot be faulted in, because its
 * process holds its own mmap_lock. This must delay neither a process that sends
 * to this WQE, nor the peers of that sender.
 */
#include "iso.h"
#include "qp.h"
#include "stall.h"
#include "t.h"

static enum iso_type type;
/* Only the second half of the message goes to the stalled memory. */
static bool half;
static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));

/* Post a receive WQE with memory that cannot be faulted in. */
static void hostile(struct peer *parent)
{
	struct ibv_mr *mr;
	struct iso_end e;

	iso_open(&e, KEEL0, NULL, type);
	mr = iso_mr(&e, stall_memory(ISO_PAGE), IBV_ACCESS_ON_DEMAND);
	iso_meet(&e, parent);
	if (half) {
		e.split = mr;
		mr = iso_mr(&e, page, 0);
	}
	iso_post_recv(&e, 1, mr);
	stall_hold();
	peer_tell(parent);
	pause();
}

/* Send to the receive WQE, and report the return of each call. */
static void caller(struct peer *parent)
{
	struct ibv_mr *mr;
	struct iso_end e;

	iso_open(&e, KEEL0, NULL, type);
	mr = iso_mr(&e, page, 0);
	iso_meet(&e, parent);
	peer_wait(parent);
	CHECK_OK(iso_send(&e, 2, mr));
	peer_tell(parent);
	peer_wait(parent);
	CHECK_OK(ibv_dereg_mr(mr));
	peer_tell(parent);
	peer_wait(parent);
	CHECK_OK(ibv_destroy_qp(e.qp));
	peer_tell(parent);
	peer_wait(parent);
}

/* Send until the send queue is full or the test kills this process. */
static void poster(struct peer *parent)
{
	struct ibv_mr *mr;
	struct iso_end e;
	int err;

	iso_open(&e, KEEL0, NULL, type);
	mr = iso_mr(&e, page, 0);
	iso_meet(&e, parent);
	peer_wait(parent);
	peer_tell(parent);
	do
		err = iso_send(&e, 2, mr);
	while (!err);
	CHECK_RET(err, ENOMEM);
	pause();
}

static void start(struct stall *s, struct peer *v, enum iso_type t,
		  void (*run)(struct peer *parent))
{
	type = t;
	stall_start(s, hostile);
	peer_start(v, run);
	iso_introduce(&s->peer, v);
	peer_wait(&s->peer);
}

static void check_calls(enum iso_type t)
{
	struct stall s;
	struct peer v;

	start(&s, &v, t, caller);
	CHECK_STEP(&v, "ibv_post_send()");
	CHECK_STEP(&v, "ibv_dereg_mr() of what is sent");
	CHECK_STEP(&v, "ibv_destroy_qp()");
	CHECK_KILL(&v, "a process that has sent");
	stall_end(&s);
	iso_check_empty(KEEL0);
}

static void check_kill(enum iso_type t)
{
	struct stall s;
	struct peer v;

	start(&s, &v, t, poster);
	peer_tell(&v);
	peer_wait(&v);
	usleep(50000);
	CHECK_KILL(&v, "a process that sends");
	stall_end(&s);
	iso_check_empty(KEEL0);
}

#define TO_STALLED	" to a receive WQE whose memory cannot be faulted in, "
#define CALLS		"ibv_post_send(), ibv_dereg_mr() and ibv_destroy_qp() return within 1 s"
#define KILLED		"a killed sender exits within 1 s"

TEST(rc_calls, "ISO-1", "during an RC send" TO_STALLED CALLS)
{
	check_calls(ISO_RC);
}

TEST(uc_calls, "ISO-1", "during a UC send" TO_STALLED CALLS)
{
	check_calls(ISO_UC);
}

TEST(ud_calls, "ISO-1", "during a datagram" TO_STALLED CALLS)
{
	check_calls(ISO_UD);
}

TEST(xrc_calls, "ISO-1", "during an XRC send" TO_STALLED CALLS)
{
	check_calls(ISO_XRC);
}

TEST(rc_kill, "ISO-1", "during RC sends" TO_STALLED KILLED)
{
	check_kill(ISO_RC);
}

TEST(uc_kill, "ISO-1", "during UC sends" TO_STALLED KILLED)
{
	check_kill(ISO_UC);
}

TEST(ud_kill, "ISO-1", "during datagrams" TO_STALLED KILLED)
{
	check_kill(ISO_UD);
}

TEST(xrc_kill, "ISO-1", "during XRC sends" TO_STALLED KILLED)
{
	check_kill(ISO_XRC);
}

TEST(rc_half, "ISO-1", "during an RC send whose second half goes" TO_STALLED CALLS)
{
	half = true;
	check_calls(ISO_RC);
}

TEST(rc_half_kill, "ISO-1", "during RC sends whose second halves go" TO_STALLED KILLED)
{
	half = true;
	check_kill(ISO_RC);
}
