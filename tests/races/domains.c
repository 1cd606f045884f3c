// SPDX-License-Identifier: GPL-2.0
/*
 * Shared PDs and XRC domains: one thread joins or exports a domain while another
 * ends it.
 */
#include <fcntl.h>

#include <infiniband/shpd.h>

#include "duel.h"
#include "raw.h"
#include "t.h"
#include "tree.h"

#define KEY	7

static struct ibv_context *ctx[2];
static struct ibv_pd *pd, *joined;
static struct ibv_xrcd *xrcd, *found;
static struct ibv_shpd shpd;
static int err, fd;
static long idle;

static void begin(void)
{
	ctx[0] = dev_open(KEEL0);
	ctx[1] = dev_open(KEEL0);
	idle = tree_count(KEEL0, NULL);
}

static void new_shared(void)
{
	pd = MUST(ibv_alloc_pd(ctx[0]));
	MUST(ibv_alloc_shpd(pd, KEY, &shpd));
}

static void join(void)
{
	joined = ibv_share_pd(ctx[1], &shpd, KEY);
	err = joined ? 0 : errno;
}

static void leave(void)
{
	CHECK_OK(ibv_dealloc_pd(pd));
}

/* The new instance keeps the domain. */
static enum duel_first judge_join(void)
{
	struct ibv_pd *third;

	if (err) {
		CHECK_EQ(err, EACCES);
		CHECK_EQ(tree_count(KEEL0, NULL), idle);
		return DUEL_B;
	}
	third = MUST(ibv_share_pd(ctx[0], &shpd, KEY));
	CHECK_EQ(tree_count(KEEL0, "shpd"), 1);
	CHECK_OK(ibv_dealloc_pd(third));
	CHECK_OK(ibv_dealloc_pd(joined));
	CHECK_NULL(ibv_share_pd(ctx[0], &shpd, KEY), EACCES);
	CHECK_EQ(tree_count(KEEL0, NULL), idle);
	return DUEL_A;
}

TEST_SLOW(share, "SPD-6", "ibv_share_pd() against dealloc of the last instance, both orders: the domain goes on with the new instance, or is gone", 120)
{
	begin();
	duel_short(new_shared, join, leave, judge_join);
}

static int owner;
static uint32_t owner_pd;

/* A file of its own, without the library, which would map and free parts of it. */
static void new_owner(void)
{
	struct ib_uverbs_alloc_pd_resp resp;
	struct ib_uverbs_alloc_pd req = {};
	struct raw_invoke inv = {
		.command = IB_USER_VERBS_CMD_ALLOC_PD,
		.in = &req, .in_len = sizeof(req),
		.out = &resp, .out_len = sizeof(resp),
	};

	owner = raw_open(KEEL0);
	CHECK_OK(raw_get_context(owner));
	CHECK_OK(raw_invoke(owner, &inv));
	owner_pd = resp.pd_handle;
	CHECK_EQ(tree_count(KEEL0, "pd"), 1);
}

static void export(void)
{
	struct raw_cmd cmd;
	uint64_t key = KEY;
	uint32_t handle;

	raw_init(&cmd, UVERBS_OBJECT_PD, KEEL_METHOD_PD_SHARE);
	raw_obj(&cmd, KEEL_ATTR_PD_SHARE_HANDLE, owner_pd);
	raw_in(&cmd, KEEL_ATTR_PD_SHARE_KEY, &key, sizeof(key));
	raw_out(&cmd, KEEL_ATTR_PD_SHARE_RESP_SHPD, &handle, sizeof(handle));
	err = raw_run(owner, &cmd);
}

static void close_file(void)
{
	SYS(close(owner));
}

/* The close ends the exported domain, or there was no file to export from. */
static enum duel_first judge_export(void)
{
	if (err)
		CHECK_EQ(err, EBADF);
	CHECK_EQ(tree_count(KEEL0, NULL), idle);
	return err ? DUEL_B : DUEL_A;
}

TEST_SLOW(export, "SPD-6,SPD-7", "the export of a PD against the last close of its file, both orders: the close ends the domain, or the export is refused", 120)
{
	begin();
	duel_short(new_owner, export, close_file, judge_export);
}

static struct ibv_xrcd *open_inode(struct ibv_context *context, int oflags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd, .oflags = oflags,
	};

	return ibv_open_xrcd(context, &attr);
}

static void new_xrcd(void)
{
	xrcd = MUST(open_inode(ctx[0], O_CREAT | O_EXCL));
}

static void find_xrcd(void)
{
	found = open_inode(ctx[1], 0);
	err = found ? 0 : errno;
}

static void close_xrcd(void)
{
	CHECK_OK(ibv_close_xrcd(xrcd));
}

static enum duel_first judge_xrcd(void)
{
	if (err) {
		CHECK_EQ(err, EAGAIN);
		CHECK_EQ(tree_count(KEEL0, NULL), idle);
		return DUEL_B;
	}
	CHECK_EQ(tree_count(KEEL0, "xrcd"), 1);
	CHECK_NULL(open_inode(ctx[0], O_CREAT | O_EXCL), EINVAL);
	CHECK_OK(ibv_close_xrcd(found));
	CHECK_EQ(tree_count(KEEL0, NULL), idle);
	return DUEL_A;
}

TEST_SLOW(xrcd, "XRC-3,XRC-7", "ibv_open_xrcd() without O_CREAT against the last ibv_close_xrcd() of the inode, both orders: it finds the domain, or gets EAGAIN", 120)
{
	begin();
	fd = SYS(open("/tmp/race", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	unlink("/tmp/race");
	duel_short(new_xrcd, find_xrcd, close_xrcd, judge_xrcd);
}
