// SPDX-License-Identifier: GPL-2.0
/*
 * Hostile input to the write() commands, which keel shares with every driver:
 * keel's driver data of ALLOC_PD, and the parts that all commands have in
 * common. Commands are sent by write(), or by the ioctl that carries the same
 * commands.
 */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <rdma/keel-queue.h>

#include "raw.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096

static unsigned char page[PAGE] __attribute__((aligned(PAGE)));

/*
 * An address that cannot be accessed. It is volatile, so that the compiler does
 * not see the address.
 */
static void *volatile nowhere = (void *)8;
#define NOWHERE	nowhere

/* Refused because of a handle: ENOENT, or EINVAL on older kernels. */
#define NO_HANDLE	(-1)

struct pd_answer {
	struct ib_uverbs_alloc_pd_resp core;
	struct keel_uapi_pd_info drv;
	uint64_t more[2];
} __attribute__((packed, aligned(8)));

static int alloc_pd(int fd, const void *drv, uint16_t drv_len,
		    struct keel_uapi_pd_info *info, uint16_t info_len)
{
	static struct ib_uverbs_alloc_pd_resp resp;
	static const struct ib_uverbs_alloc_pd cmd;
	struct raw_invoke inv = {
		.command = IB_USER_VERBS_CMD_ALLOC_PD,
		.in = &cmd, .in_len = sizeof(cmd),
		.out = &resp, .out_len = sizeof(resp),
		.drv_in = drv, .drv_in_len = drv_len,
		.drv_out = info, .drv_out_len = info_len,
	};

	return raw_invoke(fd, &inv);
}

TEST(pd_absent, "DEV-4,PD-1", "ALLOC_PD without driver data creates a plain PD, with and without space for a response")
{
	struct keel_uapi_pd_info info = { .kind = 7 };
	int fd = dev_open(KEEL0)->cmd_fd;

	CHECK_OK(alloc_pd(fd, NULL, 0, NULL, 0));
	CHECK_OK(alloc_pd(fd, NULL, 0, &info, sizeof(info)));
	CHECK_EQ(info.kind, KEEL_UAPI_PD_PLAIN);
	CHECK(info.domain != 0);
	CHECK_EQ(tree_count(KEEL0, "pd"), 2);
}

TEST(pd_short, "DEV-4", "driver data of ALLOC_PD that is shorter than in the first ABI version is refused with EINVAL")
{
	static const struct keel_uapi_alloc_pd_req req;
	struct keel_uapi_pd_info info;
	int fd = dev_open(KEEL0)->cmd_fd;
	int len;

	for (len = 1; len < (int)sizeof(req); len++)
		CHECK_RET(alloc_pd(fd, &req, len, &info, sizeof(info)), EINVAL);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	CHECK_OK(alloc_pd(fd, &req, sizeof(req), &info, sizeof(info)));
}

TEST(pd_long, "DEV-4", "longer driver data of ALLOC_PD is accepted if the additional bytes are zero, and refused with EOPNOTSUPP otherwise")
{
	struct {
		struct keel_uapi_alloc_pd_req req;
		unsigned char more[48];
	} req = {};
	struct keel_uapi_pd_info info;
	int fd = dev_open(KEEL0)->cmd_fd;
	int i;

	CHECK_OK(alloc_pd(fd, &req, sizeof(req), &info, sizeof(info)));
	CHECK_OK(alloc_pd(fd, &req, sizeof(req.req) + 1, &info, sizeof(info)));
	CHECK_EQ(tree_count(KEEL0, "pd"), 2);
	for (i = 0; i < 48; i++) {
		req.more[i] = 1;
		CHECK_RET(alloc_pd(fd, &req, sizeof(req), &info, sizeof(info)),
			  EOPNOTSUPP);
		req.more[i] = 0;
	}
	CHECK_EQ(tree_count(KEEL0, "pd"), 2);
}

TEST(pd_members, "DEV-4,SPD-4", "ALLOC_PD of an unknown kind, or with a non-zero member that must be 0, is refused with EINVAL")
{
	static const struct keel_uapi_alloc_pd_req bad[] = {
		{ .kind = KEEL_UAPI_PD_PARENT },
		{ .kind = 3 }, { .kind = 1U << 31 }, { .kind = ~0U },
		{ .kind = KEEL_UAPI_PD_PLAIN, .shpd_handle = 1 },
		{ .kind = KEEL_UAPI_PD_PLAIN, .share_key = 1 },
		{ .kind = KEEL_UAPI_PD_PLAIN, .share_key = 1ULL << 63 },
		{ .kind = KEEL_UAPI_PD_PARENT, .shpd_handle = 1, .share_key = 1 },
	};
	static const struct keel_uapi_alloc_pd_req unknown = {
		.kind = KEEL_UAPI_PD_SHARED,
	};
	struct keel_uapi_pd_info info;
	int fd = dev_open(KEEL0)->cmd_fd;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		CHECK_RET(alloc_pd(fd, &bad[i], sizeof(bad[i]), &info,
				   sizeof(info)), EINVAL);
	CHECK_RET(alloc_pd(fd, &unknown, sizeof(unknown), &info, sizeof(info)),
		  EACCES);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

TEST(pd_answer, "DEV-4", "the response of ALLOC_PD is cut to the space given, and additional space is zeroed")
{
	struct keel_uapi_pd_info info[3];
	int fd = dev_open(KEEL0)->cmd_fd;

	memset(info, 0xaa, sizeof(info));
	CHECK_OK(alloc_pd(fd, NULL, 0, info, 4));
	CHECK(info[0].domain != 0xaaaaaaaa);
	CHECK_EQ(info[0].kind, 0xaaaaaaaa);
	memset(info, 0xaa, sizeof(info));
	CHECK_OK(alloc_pd(fd, NULL, 0, info, 2 * sizeof(info[0])));
	CHECK_EQ(info[0].kind, KEEL_UAPI_PD_PLAIN);
	CHECK_ALL(&info[1], 0, sizeof(info[1]));
	CHECK_ALL(&info[2], 0xaa, sizeof(info[2]));
}

TEST(pd_pointers, "DEV-4", "ALLOC_PD fails with EFAULT if its driver data cannot be read or its response cannot be written, and leaves no PD")
{
	struct keel_uapi_pd_info info;
	int fd = dev_open(KEEL0)->cmd_fd;
	unsigned char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	SYS(munmap(p + PAGE, PAGE));
	CHECK_RET(alloc_pd(fd, NOWHERE, 16, &info, sizeof(info)), EFAULT);
	CHECK_RET(alloc_pd(fd, p + PAGE - 8, 16, &info, sizeof(info)), EFAULT);
	CHECK_RET(alloc_pd(fd, p, PAGE + 8, &info, sizeof(info)), EFAULT);
	CHECK_RET(alloc_pd(fd, NULL, 0, NOWHERE, 8), EFAULT);
	CHECK_RET(alloc_pd(fd, NULL, 0, (void *)(p + PAGE - 4), 8), EFAULT);
	/*
	 * The kernel zeroes the space behind the response, so that space must
	 * be writable.
	 */
	CHECK_RET(alloc_pd(fd, NULL, 0, (void *)(p + PAGE - 8), 16), EFAULT);
	SYS(mprotect(p, PAGE, PROT_READ));
	CHECK_RET(alloc_pd(fd, NULL, 0, (void *)p, 8), EFAULT);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	CHECK_EQ(res_count(KEEL0, "pd"), 0);
}

TEST(pd_by_write, "DEV-4", "ALLOC_PD by write() follows the same rules, and a wrong count or header is refused with EINVAL or ENOSPC")
{
	struct pd_answer resp = {};
	struct ib_uverbs_alloc_pd cmd = { .response = (uintptr_t)&resp };
	struct keel_uapi_alloc_pd_req req = {};
	uint64_t more[4] = { 0, 0, 0, 1 };
	int fd = dev_open(KEEL0)->cmd_fd;

#define ALLOC(drv, drv_len, resp_len)					\
	raw_write(fd, IB_USER_VERBS_CMD_ALLOC_PD, &cmd, sizeof(cmd), drv,	\
		  drv_len, resp_len)
	CHECK_OK(ALLOC(&req, sizeof(req), sizeof(resp)));
	CHECK(resp.drv.domain != 0);
	CHECK_ALL(resp.more, 0, sizeof(resp.more));
	CHECK_OK(ALLOC(NULL, 0, sizeof(resp.core)));
	CHECK_OK(ALLOC(more, 24, sizeof(resp)));
	CHECK_RET(ALLOC(more, 32, sizeof(resp)), EOPNOTSUPP);
	CHECK_RET(ALLOC(&req, 8, sizeof(resp)), EINVAL);
	CHECK_RET(ALLOC(&req, sizeof(req), 0), ENOSPC);
	req.kind = 9;
	CHECK_RET(ALLOC(&req, sizeof(req), sizeof(resp)), EINVAL);
	req.kind = 0;
	cmd.response = 8;
	CHECK_RET(ALLOC(&req, sizeof(req), sizeof(resp)), EFAULT);
	CHECK_RET(ALLOC(NULL, 0, sizeof(resp.core)), EFAULT);
	cmd.response = ~0ULL - 16;
	CHECK_RET(ALLOC(&req, sizeof(req), sizeof(resp)), EFAULT);
	/* The core part of the command is too short. */
	CHECK_RET(raw_write(fd, IB_USER_VERBS_CMD_ALLOC_PD, &cmd, 4, NULL, 0,
			    sizeof(resp)), ENOSPC);
	CHECK_EQ(tree_count(KEEL0, "pd"), 3);
}

TEST(write_header, "DEV-4", "write() refuses a malformed command with EINVAL, an unknown command with EOPNOTSUPP, a bad address with EFAULT")
{
	struct ib_uverbs_cmd_hdr hdr = { .command = IB_USER_VERBS_CMD_ALLOC_PD };
	int fd = dev_open(KEEL0)->cmd_fd;
	int i;

	for (i = 1; i < (int)sizeof(hdr); i++)
		CHECK_SYS(write(fd, &hdr, i), EINVAL);
	CHECK_SYS(write(fd, NOWHERE, 64), EFAULT);
	hdr.in_words = 500;
	CHECK_SYS(write(fd, &hdr, sizeof(hdr)), EINVAL);
	hdr.in_words = 2;
	hdr.command = 0xff;
	CHECK_SYS(write(fd, &hdr, sizeof(hdr)), EOPNOTSUPP);
	hdr.command = 1 << 30;
	CHECK_SYS(write(fd, &hdr, sizeof(hdr)), EINVAL);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

TEST(no_context, "DEV-4", "a file without a context refuses every command with EINVAL, and a file with a context refuses a second context")
{
	static const struct ib_uverbs_alloc_pd cmd;
	struct ib_uverbs_alloc_pd_resp resp;
	struct raw_invoke inv = {
		.command = IB_USER_VERBS_CMD_ALLOC_PD, .in = &cmd,
		.in_len = sizeof(cmd), .out = &resp, .out_len = sizeof(resp),
	};
	struct raw_cmd td;
	int fd = raw_open(KEEL0);

	raw_init(&td, KEEL_OBJECT_TD, KEEL_METHOD_TD_ALLOC);
	raw_new(&td, KEEL_ATTR_TD_ALLOC_HANDLE);
	CHECK_RET(raw_invoke(fd, &inv), EINVAL);
	CHECK_RET(raw_run(fd, &td), EINVAL);
	CHECK_SYS(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0), EINVAL);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	CHECK_OK(raw_get_context(fd));
	CHECK_RET(raw_get_context(fd), EINVAL);
	CHECK_OK(raw_invoke(fd, &inv));
	CHECK_OK(raw_run(fd, &td));
}

TEST(get_context, "DEV-4", "GET_CONTEXT refuses non-zero driver data with EOPNOTSUPP, a bad response address with EFAULT, and can be retried")
{
	struct {
		struct ib_uverbs_get_context_resp core;
		struct keel_uapi_context_resp drv;
		uint64_t more;
	} resp = { .more = ~0ULL };
	struct ib_uverbs_get_context cmd = { .response = (uintptr_t)&resp };
	uint64_t drv[2] = { 0, 1 };
	int fd = raw_open(KEEL0);

#define GET(drv, drv_len, resp_len)					\
	raw_write(fd, IB_USER_VERBS_CMD_GET_CONTEXT, &cmd, sizeof(cmd),	\
		  drv, drv_len, resp_len)
	CHECK_RET(GET(drv, 16, sizeof(resp)), EOPNOTSUPP);
	cmd.response = 8;
	CHECK_RET(GET(NULL, 0, sizeof(resp)), EFAULT);
	cmd.response = (uintptr_t)&resp;
	CHECK_OK(GET(drv, 8, sizeof(resp)));
	CHECK_EQ(resp.drv.comp_mask, KEEL_CONTEXT_STATE | KEEL_CONTEXT_RING_END);
	CHECK_EQ(resp.drv.dm_access_align, 1);
	CHECK_EQ(resp.more, 0);
}

/* A command without driver data in keel. */
struct plain {
	const char *name;
	uint32_t command;
	union {
		struct ib_uverbs_reg_mr reg_mr;
		struct ib_uverbs_alloc_mw alloc_mw;
		struct ib_uverbs_create_ah create_ah;
		struct ib_uverbs_open_xrcd open_xrcd;
	} in;
	uint16_t in_len, out_len;
};

static struct plain plains[4];

static void make_plains(struct ibv_pd *pd)
{
	union ibv_gid gid;

	plains[0] = (struct plain){
		"REG_MR", IB_USER_VERBS_CMD_REG_MR, .in.reg_mr = {
			.start = (uintptr_t)page, .length = PAGE,
			.hca_va = (uintptr_t)page, .pd_handle = pd->handle,
		}, sizeof(struct ib_uverbs_reg_mr),
		sizeof(struct ib_uverbs_reg_mr_resp),
	};
	plains[1] = (struct plain){
		"ALLOC_MW", IB_USER_VERBS_CMD_ALLOC_MW, .in.alloc_mw = {
			.pd_handle = pd->handle, .mw_type = IBV_MW_TYPE_1,
		}, sizeof(struct ib_uverbs_alloc_mw),
		sizeof(struct ib_uverbs_alloc_mw_resp),
	};
	plains[2] = (struct plain){
		"CREATE_AH", IB_USER_VERBS_CMD_CREATE_AH, .in.create_ah = {
			.pd_handle = pd->handle,
			.attr = { .is_global = 1, .port_num = 1 },
		}, sizeof(struct ib_uverbs_create_ah),
		sizeof(struct ib_uverbs_create_ah_resp),
	};
	CHECK_OK(ibv_query_gid(pd->context, 1, 0, &gid));
	memcpy(plains[2].in.create_ah.attr.grh.dgid, gid.raw, 16);
	plains[3] = (struct plain){
		"OPEN_XRCD", IB_USER_VERBS_CMD_OPEN_XRCD, .in.open_xrcd = {
			.fd = ~0U, .oflags = O_CREAT,
		}, sizeof(struct ib_uverbs_open_xrcd),
		sizeof(struct ib_uverbs_open_xrcd_resp),
	};
}

static void check_plain(int fd, const struct plain *p, void *out,
			const void *drv, uint16_t drv_len, void *drv_out,
			uint16_t drv_out_len, int want)
{
	struct raw_invoke inv = {
		.command = p->command, .in = &p->in, .in_len = p->in_len,
		.out = out, .out_len = p->out_len,
		.drv_in = drv, .drv_in_len = drv_len,
		.drv_out = drv_out, .drv_out_len = drv_out_len,
	};
	int before = tree_count(KEEL0, NULL), got = raw_invoke(fd, &inv);

	if (want == NO_HANDLE && (got == ENOENT || got == EINVAL))
		want = got;
	if (got != want)
		FAIL("%s: got %s, want %s", p->name, t_errname(got),
		     want == NO_HANDLE ? "ENOENT" : t_errname(want));
	CHECK_EQ(tree_count(KEEL0, NULL), before + !want);
}

TEST(plain_commands, "DEV-4", "REG_MR, ALLOC_MW, CREATE_AH, OPEN_XRCD refuse driver data with EOPNOTSUPP, bad pointers with EFAULT, leaving nothing")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	static const uint64_t zero[4], one[4] = { 0, 0, 0, 1 };
	unsigned char out[256], drv_out[16];
	int fd = pd->context->cmd_fd, i;

	make_plains(pd);
	for (i = 0; i < 4; i++) {
		const struct plain *p = &plains[i];

		check_plain(fd, p, out, NULL, 0, NULL, 0, 0);
		check_plain(fd, p, out, zero, 32, NULL, 0, 0);
		memset(drv_out, 0xaa, 16);
		check_plain(fd, p, out, NULL, 0, drv_out, 16, 0);
		/*
		 * CREATE_AH answers with a number; the other commands have no
		 * driver response.
		 */
		CHECK_EQ(!!drv_out[0], p->command == IB_USER_VERBS_CMD_CREATE_AH);
		CHECK_ALL(drv_out + 4, 0, 12);
		check_plain(fd, p, out, one, 32, NULL, 0, EOPNOTSUPP);
		check_plain(fd, p, out, NOWHERE, 32, NULL, 0, EFAULT);
		check_plain(fd, p, out, NULL, 0, NOWHERE, 16, EFAULT);
		check_plain(fd, p, NOWHERE, NULL, 0, NULL, 0, EFAULT);
	}
}

TEST(plain_handles, "DEV-4", "REG_MR, ALLOC_MW and CREATE_AH refuse a dead, foreign or wrong PD handle with ENOENT or EINVAL, leaving nothing")
{
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_pd *dead = MUST(ibv_alloc_pd(ctx));
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, page, 1, 0));
	uint32_t bad[3] = { dead->handle, 0, mr->handle };
	unsigned char out[256];
	int i, j;

	for (i = 0; i < 10; i++)
		bad[1] = MUST(ibv_alloc_pd(other))->handle;
	CHECK_OK(ibv_dealloc_pd(dead));
	make_plains(pd);
	for (j = 0; j < 3; j++) {
		plains[0].in.reg_mr.pd_handle = bad[j];
		plains[1].in.alloc_mw.pd_handle = bad[j];
		plains[2].in.create_ah.pd_handle = bad[j];
		for (i = 0; i < 3; i++)
			check_plain(ctx->cmd_fd, &plains[i], out, NULL, 0, NULL,
				    0, j == 2 ? EINVAL : NO_HANDLE);
	}
}

static int destroy(int fd, uint32_t command, uint32_t handle)
{
	/* All these commands begin with the handle. */
	uint32_t in[2] = { handle, 0 };
	struct raw_invoke inv = {
		.command = command, .in = in, .in_len = 4,
	};

	return raw_invoke(fd, &inv);
}

TEST(destroys, "DEV-4", "a destroy of a dead or foreign handle is refused with ENOENT, of another type with EINVAL, and destroys nothing")
{
	static const uint32_t commands[] = {
		IB_USER_VERBS_CMD_DEALLOC_PD, IB_USER_VERBS_CMD_DEREG_MR,
		IB_USER_VERBS_CMD_DEALLOC_MW, IB_USER_VERBS_CMD_DESTROY_AH,
		IB_USER_VERBS_CMD_CLOSE_XRCD,
	};
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	struct ibv_alloc_dm_attr attr = { .length = 1 };
	struct ibv_dm *dm = MUST(ibv_alloc_dm(ctx, &attr));
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	uint32_t dead = pd->handle, foreign;
	char *before;
	size_t i;

	CHECK_OK(ibv_dealloc_pd(pd));
	for (i = 0; i < 10; i++)
		foreign = MUST(ibv_alloc_pd(other))->handle;
	before = tree_text(KEEL0);
	for (i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		CHECK_RET(destroy(ctx->cmd_fd, commands[i], dead), ENOENT);
		CHECK_RET(destroy(ctx->cmd_fd, commands[i], foreign), ENOENT);
		CHECK_RET(destroy(ctx->cmd_fd, commands[i], dm->handle), EINVAL);
		CHECK_RET(destroy(ctx->cmd_fd, commands[i], ~0U), ENOENT);
	}
	CHECK_SAME_TREE(before);
}

TEST(bad_queues, "DEV-4", "CQs and SRQs above the device's limits, and empty CQs, are refused with EINVAL")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_device_attr attr;

	CHECK_OK(ibv_query_device(ctx, &attr));
	CHECK_NULL(ibv_create_cq(ctx, attr.max_cqe + 1, NULL, NULL, 0), EINVAL);
	CHECK_NULL(ibv_create_cq(ctx, 0, NULL, NULL, 0), EINVAL);
	CHECK_NULL(ibv_create_cq(ctx, 1, NULL, NULL, ctx->num_comp_vectors),
		   EINVAL);
	srq.attr.max_wr = attr.max_srq_wr + 1;
	CHECK_NULL(ibv_create_srq(pd, &srq), EINVAL);
	srq.attr.max_wr = 1;
	srq.attr.max_sge = attr.max_srq_sge + 1;
	CHECK_NULL(ibv_create_srq(pd, &srq), EINVAL);
	CHECK_EQ(tree_count(KEEL0, NULL), 2);
}

/* ib_core implements DM_ALLOC and DM_MR_REG, keel creates their objects. */
TEST(dm_core, "DEV-4,DM-1", "DM_ALLOC and DM_MR_REG with an unwritable command or output fail with EFAULT and leave nothing behind")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_alloc_dm_attr attr = { .length = 1 };
	struct ibv_dm *dm = MUST(ibv_alloc_dm(ctx, &attr));
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	uint64_t offset = 0, length = 1;
	uint32_t align = 0, access = IBV_ACCESS_ZERO_BASED, key;
	struct raw_cmd cmd, *ro;
	char *before = tree_text(KEEL0);
	int i;

	ro = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	raw_init(ro, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC);
	raw_new(ro, UVERBS_ATTR_ALLOC_DM_HANDLE);
	raw_in(ro, UVERBS_ATTR_ALLOC_DM_LENGTH, &length, 8);
	raw_in(ro, UVERBS_ATTR_ALLOC_DM_ALIGNMENT, &align, 4);
	ro->hdr.length = sizeof(ro->hdr) + 3 * sizeof(ro->attrs[0]);
	SYS(mprotect(ro, PAGE, PROT_READ));
	CHECK_SYS(ioctl(ctx->cmd_fd, RDMA_VERBS_IOCTL, ro), EFAULT);
	CHECK_SAME_TREE(before);
	for (i = 0; i < 2; i++) {
		raw_init(&cmd, UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG);
		raw_new(&cmd, UVERBS_ATTR_REG_DM_MR_HANDLE);
		raw_in(&cmd, UVERBS_ATTR_REG_DM_MR_OFFSET, &offset, 8);
		raw_in(&cmd, UVERBS_ATTR_REG_DM_MR_LENGTH, &length, 8);
		raw_obj(&cmd, UVERBS_ATTR_REG_DM_MR_PD_HANDLE, pd->handle);
		raw_in(&cmd, UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, &access, 4);
		raw_obj(&cmd, UVERBS_ATTR_REG_DM_MR_DM_HANDLE, dm->handle);
		raw_out(&cmd, UVERBS_ATTR_REG_DM_MR_RESP_LKEY,
			i ? (void *)&key : NOWHERE, 4);
		raw_out(&cmd, UVERBS_ATTR_REG_DM_MR_RESP_RKEY,
			i ? NOWHERE : (void *)&key, 4);
		CHECK_RET(raw_run(ctx->cmd_fd, &cmd), EFAULT);
		CHECK_SAME_TREE(before);
	}
	CHECK_OK(ibv_dealloc_pd(pd));
	CHECK_OK(ibv_free_dm(dm));
}
