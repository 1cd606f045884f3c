// SPDX-License-Identifier: GPL-2.0
/*
 * XRC domains, and regions of other processes: what never reaches the kernel, and what
 * a refusal of the kernel leaves.
 */
#include <fcntl.h>

#include "fake.h"

TEST(import_mr, "SPD-9", "an imported region has the keys and the length that the kernel returns, and a handle that does not exist is refused")
{
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	fake.fail[FAKE_QUERY_MR] = ENOENT;
	CHECK_NULL(ibv_import_mr(pd, FAKE_MR), ENOENT);
	fake.fail[FAKE_CALLOC] = ENOMEM;
	CHECK_NULL(ibv_import_mr(pd, FAKE_MR), ENOMEM);
	mr = MUST(ibv_import_mr(pd, FAKE_MR));
	CHECK(mr->pd == pd && mr->context == fake.ctx);
	CHECK_EQ(mr->handle, FAKE_MR);
	CHECK_EQ(mr->length, 77);
	CHECK_EQ(mr->lkey, 0x4400);
	CHECK_EQ(mr->rkey, 0x5500);
	/* The region belongs to the exporter, and stays. */
	ibv_unimport_mr(mr);
	CHECK_EQ(fake.calls[FAKE_DEREG_MR], 0);
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

TEST(xrcd, "XRC-1,DEV-4", "an XRC domain of invalid members is refused, and one that cannot be opened or closed is reported")
{
	struct ibv_xrcd_init_attr attr = { .fd = -1, .oflags = O_CREAT };
	struct ibv_xrcd *xrcd;

	fake_open();
	CHECK_NULL(ibv_open_xrcd(fake.ctx, &attr), EINVAL);
	attr.comp_mask = IBV_XRCD_INIT_ATTR_FD;
	CHECK_NULL(ibv_open_xrcd(fake.ctx, &attr), EINVAL);
	attr.comp_mask |= IBV_XRCD_INIT_ATTR_OFLAGS;
	attr.oflags = 0;
	CHECK_NULL(ibv_open_xrcd(fake.ctx, &attr), EINVAL);
	CHECK_EQ(fake.calls[FAKE_OPEN_XRCD], 0);
	attr.oflags = O_CREAT;
	fake.fail[FAKE_OPEN_XRCD] = EAGAIN;
	CHECK_NULL(ibv_open_xrcd(fake.ctx, &attr), EAGAIN);
	fake.fail[FAKE_CALLOC] = ENOMEM;
	CHECK_NULL(ibv_open_xrcd(fake.ctx, &attr), ENOMEM);
	xrcd = MUST(ibv_open_xrcd(fake.ctx, &attr));
	CHECK(xrcd->context == fake.ctx);
	fake.fail[FAKE_CLOSE_XRCD] = EBUSY;
	CHECK_RET(ibv_close_xrcd(xrcd), EBUSY);
	CHECK_OK(ibv_close_xrcd(xrcd));
	/* A file can be opened without O_CREAT. */
	attr.fd = 5;
	attr.oflags = 0;
	CHECK_OK(ibv_close_xrcd(MUST(ibv_open_xrcd(fake.ctx, &attr))));
	CHECK_EQ(fake.xrcd.fd, 5);
	CHECK_EQ(fake.xrcd.oflags, 0);
	fake_close();
}
