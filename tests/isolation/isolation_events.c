// SPDX-License-Identifier: GPL-2.0
/*
 * An event is raised by the worker of the process that it belongs to. This wakes all
 * that wait for the event, and the process decides how many these are. So its peer must
 * not do this.
 *
 * A process that is stopped has a worker that is stopped. This process has its
 * channels, and sees when the events come.
 */
#include <poll.h>
#include <sys/wait.h>

#include <rdma/ib_user_verbs.h>

#include "iso.h"
#include "qp.h"
#include "rings.h"
#include "stall.h"
#include "t.h"

/* An event that does not come within this time comes later. */
#define NEVER_MS	100
#define RECVS		4

static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));
static enum iso_type type;

/* The events of the process that is stopped. */
struct watch {
	struct peer owner, sender;
	int channel, async;
};

static bool readable(int fd, int ms)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	return poll(&poll_fd, 1, ms) > 0;
}

static void check_completion(const struct watch *w)
{
	struct ib_uverbs_comp_event_desc desc;

	CHECK(readable(w->channel, ISO_MS));
	CHECK_EQ(read(w->channel, &desc, sizeof(desc)), (int)sizeof(desc));
}

static void check_async(const struct watch *w, enum ibv_event_type event)
{
	struct ib_uverbs_async_event_desc desc;

	CHECK(readable(w->async, ISO_MS));
	CHECK_EQ(read(w->async, &desc, sizeof(desc)), (int)sizeof(desc));
	CHECK_EQ(desc.event_type, event);
}

/* Tell the events to the test, then wait for it. @twin: with a child. */
static void own(struct peer *parent, bool twin)
{
	struct ibv_srq_attr limit = { .srq_limit = RECVS };
	struct iso_end e;
	int i;

	iso_open(&e, KEEL0, NULL, type);
	e.mr = iso_mr(&e, page, 0);
	peer_put_fd(parent, e.channel->fd);
	peer_put_fd(parent, e.ctx->async_fd);
	iso_meet(&e, parent);
	for (i = 0; i < RECVS; i++)
		iso_post_recv(&e, 1, e.mr);
	if (e.srq)
		CHECK_OK(ibv_modify_srq(e.srq, &limit, IBV_SRQ_LIMIT));
	CHECK_OK(ibv_req_notify_cq(e.cq, 0));
	if (twin && !SYS(fork())) {
		peer_wait(parent);
		_exit(0);
	}
	peer_tell(parent);
	pause();
}

static void owner(struct peer *parent)
{
	own(parent, false);
}

static void twins(struct peer *parent)
{
	own(parent, true);
}

static void sender(struct peer *parent)
{
	struct iso_end e;

	iso_open(&e, KEEL0, NULL, type);
	e.mr = iso_mr(&e, page, 0);
	iso_meet(&e, parent);
	peer_wait(parent);
	CHECK_OK(iso_send(&e, 2, e.mr));
	CHECK_WC(e.cq, 2, IBV_WC_SUCCESS);
	peer_tell(parent);
	peer_wait(parent);
}

/* Write with a wrong rkey: an event of the responder. */
static void offender(struct peer *parent)
{
	struct iso_end e;

	iso_open(&e, KEEL0, NULL, type);
	e.mr = iso_mr(&e, page, 0);
	iso_meet(&e, parent);
	peer_wait(parent);
	e.peer.rkey ^= 0xff;
	CHECK_OK(iso_rdma(&e, IBV_WR_RDMA_WRITE, 2, e.mr));
	CHECK_WC(e.cq, 2, IBV_WC_REM_ACCESS_ERR);
	peer_tell(parent);
	peer_wait(parent);
}

/* Provides no page of one region, and gets a message in another one. */
static void blocked(struct peer *parent)
{
	char *memory = stall_memory(ISO_PAGE);
	struct iso_end written, e;

	iso_open(&written, KEEL0, NULL, type);
	written.mr = iso_mr(&written, memory, IBV_ACCESS_ON_DEMAND);
	iso_open(&e, KEEL0, written.ctx, type);
	e.mr = iso_mr(&e, page, 0);
	peer_put_fd(parent, e.channel->fd);
	iso_meet(&written, parent);
	iso_meet(&e, parent);
	iso_post_recv(&e, 1, e.mr);
	CHECK_OK(ibv_req_notify_cq(e.cq, 0));
	stall_hold();
	peer_tell(parent);
	peer_wait(parent);
}

static void writer(struct peer *parent)
{
	struct iso_end e;

	iso_open(&e, KEEL0, NULL, type);
	e.mr = iso_mr(&e, page, 0);
	iso_meet(&e, parent);
	peer_wait(parent);
	CHECK_OK(iso_rdma(&e, IBV_WR_RDMA_WRITE, 2, e.mr));
	peer_tell(parent);
	peer_wait(parent);
	CHECK_NO_WC(e.cq);
	peer_tell(parent);
	peer_wait(parent);
}

static void start(struct watch *w, void (*own)(struct peer *parent),
		  void (*send)(struct peer *parent))
{
	peer_start(&w->owner, own);
	peer_start(&w->sender, send);
	w->channel = peer_get_fd(&w->owner);
	w->async = peer_get_fd(&w->owner);
	iso_introduce(&w->owner, &w->sender);
	peer_wait(&w->owner);
}

static void end(struct watch *w)
{
	peer_tell(&w->sender);
	peer_end(&w->sender);
	SYS(close(w->channel));
	SYS(close(w->async));
	iso_check_empty(KEEL0);
}

static void stop_and_send(struct watch *w)
{
	SYS(kill(w->owner.pid, SIGSTOP));
	SYS(waitpid(w->owner.pid, NULL, WUNTRACED));
	peer_tell(&w->sender);
	CHECK_WITHIN(&w->sender, "a work request");
	CHECK(!readable(w->channel, NEVER_MS));
	CHECK(!readable(w->async, 0));
}

TEST_CASE(received, "ISO-1", "the completion event of a receive is raised by the process that receives, not by the one that sends",
	  ISO_NEEDS_THREADS)
{
	struct watch w;

	for (type = 0; type < ISO_TYPES; type++) {
		t_note("%s", iso_types[type]);
		start(&w, owner, sender);
		stop_and_send(&w);
		SYS(kill(w.owner.pid, SIGCONT));
		check_completion(&w);
		if (type == ISO_XRC)
			check_async(&w, IBV_EVENT_SRQ_LIMIT_REACHED);
		CHECK(!readable(w.async, NEVER_MS));
		CHECK(!readable(w.channel, 0));
		peer_kill(&w.owner, SIGKILL);
		end(&w);
	}
}

TEST_CASE(refused, "ISO-1", "the event of a queue pair that its peer fails is raised by the process of the queue pair",
	  ISO_NEEDS_THREADS)
{
	struct watch w;

	type = ISO_RC;
	start(&w, owner, offender);
	stop_and_send(&w);
	SYS(kill(w.owner.pid, SIGCONT));
	check_async(&w, IBV_EVENT_QP_ACCESS_ERR);
	/* The receives are flushed, and the first of them raises the other event. */
	check_completion(&w);
	peer_kill(&w.owner, SIGKILL);
	end(&w);
}

TEST_CASE(removed, "ISO-1,DEV-3", "a process that is stopped with an event to raise does not delay the end of its objects",
	  ISO_NEEDS_THREADS)
{
	struct watch w;

	type = ISO_UD;
	start(&w, owner, sender);
	stop_and_send(&w);
	CHECK_KILL(&w.owner, "a stopped process");
	end(&w);
}

TEST_CASE(behind, "ISO-1", "an event is raised although the process keeps another waiting for a page of it",
	  ISO_NEEDS_THREADS)
{
	struct peer writes;
	struct stall s;
	struct watch w;

	type = ISO_RC;
	stall_start(&s, blocked);
	peer_start(&writes, writer);
	peer_start(&w.sender, sender);
	w.channel = peer_get_fd(&s.peer);
	iso_introduce(&s.peer, &writes);
	iso_introduce(&s.peer, &w.sender);
	peer_wait(&s.peer);
	CHECK_STEP(&writes, "posting a write");
	/* The worker asks for the page. */
	usleep(NEVER_MS * 1000);
	CHECK_STEP(&writes, "a look at the CQ");
	peer_tell(&w.sender);
	CHECK_WITHIN(&w.sender, "a send");
	check_completion(&w);
	stall_end(&s);
	peer_tell(&writes);
	peer_end(&writes);
	peer_tell(&w.sender);
	peer_end(&w.sender);
	SYS(close(w.channel));
	iso_check_empty(KEEL0);
}

TEST(dead, "ISO-1", "an event of a process that was killed is raised for another that has its channel")
{
	struct watch w;

	for (type = 0; type < ISO_TYPES; type++) {
		t_note("%s", iso_types[type]);
		start(&w, twins, sender);
		SYS(kill(w.owner.pid, SIGKILL));
		SYS(waitpid(w.owner.pid, NULL, 0));
		peer_tell(&w.sender);
		CHECK_WITHIN(&w.sender, "a message to a dead process");
		check_completion(&w);
		peer_tell(&w.owner);
		end(&w);
	}
}

/* A process that is stopped, and its child, which writes to itself. */
static void parent_and_child(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_comp_channel *channel = MUST(ibv_create_comp_channel(ctx));
	struct ibv_pd *pd = rings_pd_shared(ctx);
	struct ibv_cq *cq = MUST(ibv_create_cq(ctx, RECVS, NULL, channel, 0));
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, page, ISO_PAGE, ISO_RIGHTS));
	struct ibv_qp *qp = qp_new(pd, cq, IBV_QPT_RC, NULL);

	qp_connect(qp, qp->qp_num);
	peer_put_fd(parent, channel->fd);
	CHECK_OK(ibv_req_notify_cq(cq, 0));
	if (SYS(fork()))
		for (;;)
			pause();
	peer_tell(parent);
	peer_wait(parent);
	post(qp, &(struct ibv_send_wr){
		.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)page, .rkey = mr->rkey },
	});
	peer_tell(parent);
	_exit(0);
}

TEST(shared, "ISO-1", "the completion event of a send is raised by the thread that posted it, although the process that created the CQ is stopped")
{
	struct watch w;

	peer_start(&w.owner, parent_and_child);
	w.channel = peer_get_fd(&w.owner);
	peer_wait(&w.owner);
	SYS(kill(w.owner.pid, SIGSTOP));
	SYS(waitpid(w.owner.pid, NULL, WUNTRACED));
	peer_tell(&w.owner);
	CHECK_WITHIN(&w.owner, "a send");
	check_completion(&w);
	peer_kill(&w.owner, SIGKILL);
	SYS(close(w.channel));
	iso_check_empty(KEEL0);
}

TEST(sent, "ISO-2", "the completion event of a send is there when ibv_post_send() returns: the thread that posted it has raised it")
{
	struct iso_end a, b;
	struct iso_addr to;
	struct watch w;
	bool at_once = false;
	int i;

	iso_open(&a, KEEL0, NULL, ISO_RC);
	iso_open(&b, KEEL0, a.ctx, ISO_RC);
	a.mr = iso_mr(&a, page, 0);
	to = iso_addr(&b);
	iso_connect(&a, &to);
	to = iso_addr(&a);
	iso_connect(&b, &to);
	w.channel = a.channel->fd;
	b.mr = iso_mr(&b, page, 0);
	/* If the worker happens to run the queue just now, it sends the message. */
	for (i = 0; i < 10 && !at_once; i++) {
		iso_post_recv(&b, 1, b.mr);
		CHECK_OK(ibv_req_notify_cq(a.cq, 0));
		CHECK_OK(iso_send(&a, 2, a.mr));
		at_once = readable(w.channel, 0);
		check_completion(&w);
		CHECK_WC(a.cq, 2, IBV_WC_SUCCESS);
		CHECK(!readable(w.channel, NEVER_MS));
	}
	CHECK(at_once);
}
