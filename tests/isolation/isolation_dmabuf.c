// SPDX-License-Identifier: GPL-2.0
/*
 * A message that has begun to access a dma-buf, and then waits for a page that
 * another process of its context does not provide, and for a peer that is gone.
 */
#include "buf.h"
#include "dev.h"
#include "iso.h"
#include "qp.h"
#include "stall.h"

static struct buf b;
/* The context of sender and owner. */
static struct ibv_context *ctx;
static bool patient;
static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));

/* Provides no page of its region, so that its worker waits, and only that. */
static void owner(struct peer *parent)
{
	char *memory = stall_memory(ISO_PAGE);
	struct iso_end e = {};
	struct ibv_mr *mr;
	uint32_t handle;

	peer_get_var(parent, handle);
	e.pd = MUST(ibv_import_pd(ctx, handle));
	mr = iso_mr(&e, memory, IBV_ACCESS_ON_DEMAND);
	peer_put_var(parent, mr->lkey);
	peer_put_var(parent, memory);
	stall_hold();
	peer_tell(parent);
	peer_wait(parent);
}

/* The worker of this process gathers the message, and not this thread. */
static void sender(struct peer *parent)
{
	struct ibv_mr *mr, other = {};
	struct iso_end e;

	iso_open(&e, KEEL0, ctx, ISO_RC);
	e.patient = patient;
	peer_put_var(parent, e.pd->handle);
	mr = MUST(ibv_reg_dmabuf_mr(e.pd, 0, PAGE, 0, b.fd,
				    IBV_ACCESS_LOCAL_WRITE));
	buf_close(&b);
	peer_get_var(parent, other.lkey);
	peer_get_var(parent, other.addr);
	e.split = &other;
	iso_meet(&e, parent);
	peer_wait(parent);
	CHECK_OK(iso_send(&e, 1, mr));
	peer_tell(parent);
	peer_wait(parent);
	if (patient)
		CHECK_NO_WC(e.cq);
	else
		CHECK_WC(e.cq, 1, IBV_WC_RETRY_EXC_ERR);
	peer_tell(parent);
	peer_wait(parent);
}

static void receiver(struct peer *parent)
{
	struct iso_end r;

	buf_close(&b);
	iso_open(&r, KEEL0, NULL, ISO_RC);
	r.mr = iso_mr(&r, page, 0);
	iso_meet(&r, parent);
	iso_post_recv(&r, 2, r.mr);
	peer_tell(parent);
	peer_wait(parent);
	CHECK_OK(ibv_destroy_qp(r.qp));
	peer_tell(parent);
	peer_wait(parent);
}

/* Wait until the dma-buf has so many references. */
static void check_refs(long want)
{
	int i;

	for (i = 0; i < ISO_MS && buf_refs() != want; i++)
		usleep(1000);
	CHECK_EQ(buf_refs(), want);
}

static void check_given_up(void)
{
	struct stall s;
	struct peer from, to;
	uint32_t handle, lkey;
	char *memory;
	long before;

	CHECK_EQ(buf_count(), 0);
	ctx = dev_open(KEEL0);
	stall_start(&s, owner);
	b = buf_new();
	peer_start(&from, sender);
	peer_start(&to, receiver);
	buf_close(&b);
	peer_get_var(&from, handle);
	peer_put_var(&s.peer, handle);
	peer_get_var(&s.peer, lkey);
	peer_get_var(&s.peer, memory);
	peer_wait(&s.peer);
	peer_put_var(&from, lkey);
	peer_put_var(&from, memory);
	iso_introduce(&from, &to);
	peer_wait(&to);
	before = buf_refs();
	CHECK_STEP(&from, "posting a send");
	/* The access has begun, and goes on. */
	check_refs(before + 1);
	usleep(300000);
	CHECK_EQ(buf_refs(), before + 1);
	CHECK_STEP(&to, "destroying the peer");
	check_refs(before);
	CHECK_STEP(&from, "the completion");
	CHECK_KILL(&to, "the receiver");
	CHECK_KILL(&from, "the sender");
	stall_end(&s);
	CHECK_OK(ibv_close_device(ctx));
	iso_check_empty(KEEL0);
}

TEST_DMABUF(failed, "PDM-3,ISO-1", "an RC send that fails because its peer is gone ends its access to a dma-buf, although it waited for other memory")
{
	check_given_up();
}

TEST_DMABUF(waits, "PDM-3,ISO-1", "an RC send that waits for its peer without limit ends its access to a dma-buf, although it waited for other memory")
{
	patient = true;
	check_given_up();
}
