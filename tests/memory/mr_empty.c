// SPDX-License-Identifier: GPL-2.0
/*
 * MRs of length 0, pinned and on demand.
 */
#include <sys/mman.h>
#include <sys/resource.h>

#include <infiniband/keeldv.h>

#include "qp.h"
#include "raw.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096
#define ALL	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
		 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | \
		 IBV_ACCESS_MW_BIND)

static char page[2 * PAGE] __attribute__((aligned(PAGE)));
static char other[PAGE] __attribute__((aligned(PAGE)));

static const unsigned int modes[] = { 0, IBV_ACCESS_ON_DEMAND };

/* Return how many KiB this process has pinned. */
static long pinned(void)
{
	char *text = t_read_file("/proc/self/status");
	char *at = strstr(text, "VmPin:");
	long kib;

	CHECK(at);
	kib = atol(at + 6);
	free(text);
	return kib;
}

TEST(registers, "DEV-4", "an MR of length 0 registers at any address, pinned or on demand, is listed with length 0, and pins nothing")
{
	static char *const at[] = { page, page + 5, page + PAGE - 1, NULL,
				    (char *)(1ULL << 50) };
	struct rlimit limit = {};
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	long before = pinned();
	struct tree tree;
	struct ibv_mr *mr;
	size_t i, j;
	char *text;

	for (i = 0; i < 2; i++)
		for (j = 0; j < sizeof(at) / sizeof(*at); j++) {
			mr = MUST(ibv_reg_mr(pd, at[j], 0, modes[i] | ALL));
			CHECK_EQ(mr->length, 0);
			CHECK(mr->lkey != 0);
			CHECK_EQ(mr->lkey, mr->rkey);
			CHECK_EQ(pinned(), before);
			tree_read(KEEL0, &tree);
			CHECK_EQ(tree_value(tree_only(&tree, "mr"), "length"), 0);
			tree_free(&tree);
			text = t_shell("rdma -dd resource show mr | tr '\n' ' '");
			CHECK(strstr(text, "mrlen 0"));
			CHECK(strstr(text, modes[i] ? "drv_memory odp" :
						      "drv_memory user"));
			free(text);
			CHECK_OK(ibv_dereg_mr(mr));
			CHECK_EQ(tree_count(KEEL0, "mr"), 0);
		}
	SYS(setrlimit(RLIMIT_MEMLOCK, &limit));
	SYS(setresuid(65534, 65534, 65534));
	CHECK_NULL(ibv_reg_mr(pd, page, 1, ALL), EPERM);
	CHECK_OK(ibv_dereg_mr(MUST(ibv_reg_mr(pd, page, 0, ALL))));
}

struct setup {
	struct ibv_pd *pd;
	struct ibv_mr *mr, *full;
	struct link l;
};

static struct setup setup(unsigned int mode)
{
	struct setup s = { .pd = MUST(ibv_alloc_pd(dev_open(KEEL0))) };

	s.mr = MUST(ibv_reg_mr(s.pd, page + 8, 0, mode | ALL));
	s.full = MUST(ibv_reg_mr(s.pd, other, PAGE, ALL));
	s.l = link_new(s.pd, s.pd, IBV_QPT_RC);
	memset(page, 'p', sizeof(page));
	memset(other, 'o', PAGE);
	return s;
}

static void again(struct setup *s)
{
	link_free(&s->l);
	s->l = link_new(s->pd, s->pd, IBV_QPT_RC);
}

/* Write @len bytes from the full MR to @at by the rkey of the empty MR. */
static enum ibv_wc_status write_to(struct setup *s, const char *at, uint32_t len)
{
	struct mem mem = { .addr = other, .len = len, .lkey = s->full->lkey };

	post_rdma(s->l.qp[0], IBV_WR_RDMA_WRITE, 1, mem, (uintptr_t)at,
		  s->mr->rkey);
	return wc_get(s->l.cq[0]).status;
}

static void check_messages(struct setup *s)
{
	struct mem none = { .addr = page + 8, .lkey = s->mr->lkey };
	struct mem one = { .addr = page + 8, .len = 1, .lkey = s->mr->lkey };

	post_recv(s->l.qp[1], 2, none);
	post_send(s->l.qp[0], 1, none);
	CHECK_WC(s->l.cq[0], 1, IBV_WC_SUCCESS);
	CHECK_EQ(CHECK_WC(s->l.cq[1], 2, IBV_WC_SUCCESS).byte_len, 0);
	CHECK_EQ(write_to(s, page + 8, 0), IBV_WC_SUCCESS);
	post_rdma(s->l.qp[0], IBV_WR_RDMA_READ, 1, none, (uintptr_t)page + 8,
		  s->mr->rkey);
	CHECK_WC(s->l.cq[0], 1, IBV_WC_SUCCESS);
	/* The empty MR permits no byte at any address. */
	CHECK_EQ(write_to(s, page + 8, 1), IBV_WC_REM_ACCESS_ERR);
	again(s);
	CHECK_EQ(write_to(s, page + 7, 1), IBV_WC_REM_ACCESS_ERR);
	again(s);
	post_send(s->l.qp[0], 1, one);
	CHECK_EQ(CHECK_WC(s->l.cq[0], 1, IBV_WC_LOC_PROT_ERR).vendor_err,
		 KEELDV_WHY_RANGE);
	again(s);
}

static void check_window(struct setup *s)
{
	struct ibv_mw *mw = MUST(ibv_alloc_mw(s->pd, IBV_MW_TYPE_1));
	struct ibv_mw_bind bind = {
		.wr_id = 3, .send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = s->mr, .addr = (uintptr_t)page + 8,
			       .mw_access_flags = IBV_ACCESS_REMOTE_READ },
	};
	uint32_t rkey;

	CHECK_OK(ibv_bind_mw(s->l.qp[0], mw, &bind));
	CHECK_WC(s->l.cq[0], 3, IBV_WC_SUCCESS);
	rkey = mw->rkey;
	bind.bind_info.length = 1;
	CHECK_OK(ibv_bind_mw(s->l.qp[0], mw, &bind));
	CHECK_EQ(CHECK_WC(s->l.cq[0], 3, IBV_WC_MW_BIND_ERR).vendor_err,
		 KEELDV_WHY_RANGE);
	mw->rkey = rkey;
	again(s);
	CHECK_OK(ibv_dealloc_mw(mw));
}

TEST(opens_nothing, "DEV-4", "an MR of length 0 serves messages of no bytes, and opens no byte to SGEs, rkeys or windows")
{
	struct setup s;
	int i;

	for (i = 0; i < 2; i++) {
		s = setup(modes[i]);
		check_messages(&s);
		check_window(&s);
		CHECK_ALL(page, 'p', sizeof(page));
		CHECK_ALL(other, 'o', PAGE);
		CHECK_OK(ibv_dereg_mr(s.mr));
	}
}

static int change_memory(struct ibv_mr *mr, char *at, size_t length,
			 unsigned int access)
{
	struct ib_uverbs_rereg_mr req = {
		.mr_handle = mr->handle,
		.flags = IBV_REREG_MR_CHANGE_TRANSLATION |
			 IBV_REREG_MR_CHANGE_ACCESS,
		.start = (uintptr_t)at, .hca_va = (uintptr_t)at,
		.length = length, .access_flags = access,
	};

	return raw_rereg_mr(mr->context->cmd_fd, &req);
}

TEST(rereg, "DEV-4", "ibv_rereg_mr() changes an MR's rights and its length from 0 to 100 and back, and pins only while the length is not 0")
{
	struct setup s;
	long before;
	int i;

	for (i = 0; i < 2; i++) {
		s = setup(modes[i]);
		before = pinned();
		CHECK_OK(ibv_rereg_mr(s.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL,
				      NULL, 0, modes[i]));
		CHECK_OK(ibv_rereg_mr(s.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL,
				      NULL, 0, modes[!i] | ALL));
		CHECK_EQ(pinned(), before);
		CHECK_EQ(write_to(&s, page + 8, 0), IBV_WC_SUCCESS);
		CHECK_EQ(write_to(&s, page + 8, 1), IBV_WC_REM_ACCESS_ERR);
		again(&s);
		CHECK_OK(ibv_rereg_mr(s.mr, IBV_REREG_MR_CHANGE_TRANSLATION |
				      IBV_REREG_MR_CHANGE_ACCESS, NULL,
				      page + 8, 100, modes[i] | ALL));
		CHECK_EQ(pinned() - before, modes[i] ? 0 : PAGE / 1024);
		CHECK_EQ(write_to(&s, page + 8, 100), IBV_WC_SUCCESS);
		CHECK_ALL(page, 'p', 8);
		CHECK_ALL(page + 8, 'o', 100);
		CHECK_ALL(page + 108, 'p', sizeof(page) - 108);
		CHECK_OK(change_memory(s.mr, page + 8, 0, modes[i] | ALL));
		CHECK_EQ(pinned(), before);
		CHECK_EQ(write_to(&s, page + 8, 0), IBV_WC_SUCCESS);
		CHECK_EQ(write_to(&s, page + 8, 1), IBV_WC_REM_ACCESS_ERR);
		CHECK_ALL(page + 8, 'o', 100);
		CHECK_OK(ibv_dereg_mr(s.mr));
		CHECK_EQ(pinned(), before);
	}
}

TEST(advice, "DEV-4", "ibv_advise_mr() of an on-demand MR of length 0 succeeds for no bytes and fails with EFAULT for one byte")
{
	struct setup s = setup(IBV_ACCESS_ON_DEMAND);
	struct ibv_sge sge = { .addr = (uintptr_t)page + 8,
			       .lkey = s.mr->lkey };

	CHECK_OK(ibv_advise_mr(s.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
			       IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
	sge.length = 1;
	CHECK_RET(ibv_advise_mr(s.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
				IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1), EFAULT);
}
