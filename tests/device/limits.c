// SPDX-License-Identifier: GPL-2.0
/*
 * Every limit that the device reports can be reached and not exceeded.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

#include <infiniband/keeldv.h>
#include <infiniband/shpd.h>

#include "dev.h"
#include "peer.h"
#include "t.h"
#include "tree.h"
#include "user.h"

#define PAGE	4096
#define LONG	"so many objects take minutes"

static char page[PAGE] __attribute__((aligned(PAGE)));

static struct ibv_device_attr query(struct ibv_context *ctx)
{
	struct ibv_device_attr attr;

	CHECK_OK(ibv_query_device(ctx, &attr));
	return attr;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Create up to @most objects; return how many were created before ENOMEM. */
static int make(struct ibv_pd *pd, void **objs, int most,
		void *(*one)(struct ibv_pd *pd))
{
	double start = now();
	int n;

	for (n = 0; n < most; n++) {
		errno = 0;
		objs[n] = one(pd);
		if (!objs[n]) {
			CHECK_EQ(errno, ENOMEM);
			break;
		}
	}
	t_note("%d objects, %.1f us each", n, (now() - start) / n * 1e6);
	return n;
}

static void *one_pd(struct ibv_pd *pd)
{
	return ibv_alloc_pd(pd->context);
}

TEST_NOT_DEBUG(max_pd, "PD-5,DEV-2", "a process can create max_pd PDs of all kinds together, and the next one fails with ENOMEM", LONG)
{
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_parent_domain_init_attr attr = { .pd = pd };
	int max = query(ctx).max_pd;
	void **pds = calloc(max, sizeof(*pds));
	struct ibv_shpd shpd;
	char *before;

	CHECK(max > 100);
	MUST(ibv_alloc_shpd(pd, 1, &shpd));
	pds[0] = MUST(ibv_alloc_parent_domain(ctx, &attr));
	pds[1] = MUST(ibv_share_pd(other, &shpd, 1));
	CHECK_EQ(make(pd, pds + 2, max - 3, one_pd), max - 3);
	before = tree_text(KEEL0);
	CHECK_NULL(ibv_alloc_pd(ctx), ENOMEM);
	CHECK_NULL(ibv_alloc_pd(other), ENOMEM);
	CHECK_NULL(ibv_alloc_parent_domain(ctx, &attr), ENOMEM);
	CHECK_NULL(ibv_share_pd(ctx, &shpd, 1), ENOMEM);
	CHECK_SAME_TREE(before);
	/* After one dealloc, one more PD of any kind can be created. */
	CHECK_OK(ibv_dealloc_pd(pds[max - 2]));
	pds[max - 2] = MUST(ibv_share_pd(ctx, &shpd, 1));
	CHECK_NULL(ibv_alloc_pd(ctx), ENOMEM);
	CHECK_OK(ibv_dealloc_pd(pds[0]));
	MUST(ibv_alloc_pd(ctx));
	CHECK_NULL(ibv_alloc_pd(ctx), ENOMEM);
}

static void *one_mr(struct ibv_pd *pd)
{
	return ibv_reg_mr(pd, page, PAGE, 0);
}

TEST_NOT_DEBUG(max_mr, "DEV-2", "a process can register max_mr MRs of user and device memory together, and the next one fails with ENOMEM", LONG)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_alloc_dm_attr attr = { .length = PAGE };
	struct ibv_dm *dm = MUST(ibv_alloc_dm(ctx, &attr));
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	int max = query(ctx).max_mr, i;
	void **mrs = calloc(max, sizeof(*mrs));

	CHECK(max > 100);
	for (i = 0; i < 10; i++)
		MUST(ibv_reg_dm_mr(pd, dm, 0, PAGE, IBV_ACCESS_ZERO_BASED));
	CHECK_EQ(make(pd, mrs, max - 10, one_mr), max - 10);
	CHECK_NULL(ibv_reg_mr(pd, page, PAGE, 0), ENOMEM);
	CHECK_NULL(ibv_reg_dm_mr(pd, dm, 0, 1, IBV_ACCESS_ZERO_BASED), ENOMEM);
	CHECK_EQ(tree_count(KEEL0, "mr") + tree_count(KEEL0, "dm_mr"), max);
	CHECK_OK(ibv_dereg_mr(mrs[5]));
	MUST(ibv_reg_dm_mr(pd, dm, 0, 1, IBV_ACCESS_ZERO_BASED));
	CHECK_NULL(ibv_reg_mr(pd, page, PAGE, 0), ENOMEM);
}

static void *one_mw(struct ibv_pd *pd)
{
	return ibv_alloc_mw(pd, IBV_MW_TYPE_2);
}

TEST_NOT_DEBUG(max_mw, "DEV-2", "a process can allocate max_mw windows, and the next one fails with ENOMEM", LONG)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	int max = query(ctx).max_mw;
	void **mws = calloc(max, sizeof(*mws));

	CHECK(max > 100);
	CHECK_EQ(make(pd, mws, max, one_mw), max);
	CHECK_NULL(ibv_alloc_mw(pd, IBV_MW_TYPE_1), ENOMEM);
	CHECK_OK(ibv_dealloc_mw(mws[max / 2]));
	MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	CHECK_NULL(ibv_alloc_mw(pd, IBV_MW_TYPE_1), ENOMEM);
}

static struct ibv_ah_attr ah_attr = { .is_global = 1, .port_num = 1 };

static void *one_ah(struct ibv_pd *pd)
{
	return ibv_create_ah(pd, &ah_attr);
}

/* ib_core resolves the address of each AH, which waits for a clock tick. */
TEST_CASE(max_ah, "DEV-2", "a process can create max_ah AHs, and the next one fails with ENOMEM",
	  .limit = 300, .not_debug = LONG)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	int max = query(ctx).max_ah;
	void **ahs = calloc(max, sizeof(*ahs));

	CHECK(max > 100);
	CHECK_OK(ibv_query_gid(ctx, 1, 0, &ah_attr.grh.dgid));
	CHECK_EQ(make(pd, ahs, max, one_ah), max);
	CHECK_NULL(ibv_create_ah(pd, &ah_attr), ENOMEM);
	CHECK_OK(ibv_destroy_ah(ahs[max / 2]));
	MUST(ibv_create_ah(pd, &ah_attr));
	CHECK_NULL(ibv_create_ah(pd, &ah_attr), ENOMEM);
}

TEST_NOT_DEBUG(max_dm, "DM-3,DM-6", "device memory holds as many buffers as it has pages, each on a page of its own", LONG)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_device_attr_ex dev_attr = {};
	/* Shares no page. */
	struct ibv_alloc_dm_attr attr = { .length = PAGE / 2 + 1 };
	struct keeldv_dm_attr dm_attr;
	struct ibv_dm *dm = NULL;
	unsigned int pages, n;
	uint8_t *taken;

	CHECK_OK(ibv_query_device_ex(ctx, NULL, &dev_attr));
	pages = dev_attr.max_dm_size / PAGE;
	taken = calloc(pages, 1);
	for (n = 0; n < pages; n++) {
		dm = MUST(ibv_alloc_dm(ctx, &attr));
		CHECK_OK(keeldv_query_dm(dm, &dm_attr));
		CHECK_EQ(dm_attr.start % PAGE, 0);
		CHECK(dm_attr.start / PAGE < pages);
		CHECK(!taken[dm_attr.start / PAGE]++);
	}
	CHECK_NULL(ibv_alloc_dm(ctx, &attr), ENOMEM);
	CHECK_OK(ibv_free_dm(dm));
	MUST(ibv_alloc_dm(ctx, &attr));
	CHECK_NULL(ibv_alloc_dm(ctx, &attr), ENOMEM);
}

static struct ibv_cq *no_cq;

static void *one_xrcd(struct ibv_pd *pd)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	return ibv_open_xrcd(pd->context, &attr);
}

static void *one_td(struct ibv_pd *pd)
{
	struct ibv_td_init_attr attr = {};

	return ibv_alloc_td(pd->context, &attr);
}

static void *one_cq(struct ibv_pd *pd)
{
	return ibv_create_cq(pd->context, 1, NULL, NULL, 0);
}

static void *one_srq(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 1, .max_sge = 1 } };

	return ibv_create_srq(pd, &attr);
}

static void *one_qp(struct ibv_pd *pd)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = no_cq, .recv_cq = no_cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	return ibv_create_qp(pd, &attr);
}

/* Shares no page. */
static void *one_dm(struct ibv_pd *pd)
{
	struct ibv_alloc_dm_attr attr = { .length = PAGE / 2 + 1 };

	return ibv_alloc_dm(pd->context, &attr);
}

static void *one_parent(struct ibv_pd *pd)
{
	struct ibv_parent_domain_init_attr attr = { .pd = pd };

	return ibv_alloc_parent_domain(pd->context, &attr);
}

static void *one_dm_mr(struct ibv_pd *pd)
{
	static struct ibv_dm *dm;

	if (!dm || dm->context != pd->context)
		dm = MUST(one_dm(pd));
	return ibv_reg_dm_mr(pd, dm, 0, 1, IBV_ACCESS_ZERO_BASED);
}

/*
 * Kinds of objects, with the parameters that limit them, and how many of them
 * set_up() creates.
 */
static const struct {
	const char *param;
	void *(*one)(struct ibv_pd *pd);
	int has;
} kinds[] = {
	{ "max_pd", one_pd, 1 },
	{ "max_td", one_td, 0 },
	{ "max_xrcd", one_xrcd, 0 },
	{ "max_cq", one_cq, 1 },
	{ "max_srq", one_srq, 0 },
	{ "max_qp", one_qp, 0 },
	{ "max_mr", one_mr, 0 },
	{ "max_mw", one_mw, 0 },
	{ "max_ah", one_ah, 0 },
	{ "max_dm", one_dm, 0 },
	{ "max_pd", one_parent, 1 },
	{ "max_mr", one_dm_mr, 0 },
};

#define KINDS	(int)(sizeof(kinds) / sizeof(*kinds))

static int write_param(const char *name, const char *value)
{
	char path[100];

	snprintf(path, sizeof(path), "/sys/module/keel/parameters/%s", name);
	return t_write_file(path, value);
}

static int read_param(const char *name)
{
	char path[100], *text;
	int value;

	snprintf(path, sizeof(path), "/sys/module/keel/parameters/%s", name);
	text = t_read_file(path);
	value = atoi(text);
	free(text);
	return value;
}

static struct ibv_pd *set_up(const char *device)
{
	struct ibv_context *ctx = dev_open(device);

	CHECK_OK(ibv_query_gid(ctx, 1, 0, &ah_attr.grh.dgid));
	no_cq = MUST(ibv_create_cq(ctx, 1, NULL, NULL, 0));
	return MUST(ibv_alloc_pd(ctx));
}

/* A user gets half of each limit, less what the user already has. */
static void take_kind(struct peer *parent)
{
	struct ibv_pd *pd;
	int kind, max, n;
	void **objs;

	peer_get_var(parent, kind);
	max = read_param(kinds[kind].param);
	/* A buffer takes a page of device memory: there are fewer of these. */
	if (kinds[kind].one == one_dm)
		max = read_param("dm_size") / PAGE;
	user_become(1000);
	pd = set_up(KEEL0);
	objs = calloc(max, sizeof(*objs));
	n = make(pd, objs, max, kinds[kind].one);
	if (n != max / 2 - kinds[kind].has)
		FAIL("%s: got %d, want %d", kinds[kind].param, n,
		     max / 2 - kinds[kind].has);
}

TEST_CASE(half, "ISO-5,PD-5", "one user gets half of each kind of object, and the next object fails with ENOMEM",
	  .limit = 300, .not_debug = LONG)
{
	struct peer p;
	int kind;

	for (kind = 0; kind < KINDS; kind++) {
		/* AHs take minutes, MRs of a buffer take one of the pages. */
		if (kinds[kind].one == one_ah || kinds[kind].one == one_dm_mr)
			continue;
		peer_start(&p, take_kind);
		peer_put_var(&p, kind);
		peer_end(&p);
		CHECK_EQ(tree_count(KEEL0, NULL), 0);
	}
}

void t_after(void)
{
	int kind;

	for (kind = 0; kind < KINDS; kind++)
		write_param(kinds[kind].param, "0");
	dev_del();
}

/* The limits that the device reports. */
static void check_attr(const char *device, int pd, int cq, int srq, int qp, int mr,
		       int mw, int ah)
{
	struct ibv_device_attr attr = query(dev_open(device));

	CHECK_EQ(attr.max_pd, pd);
	CHECK_EQ(attr.max_cq, cq);
	CHECK_EQ(attr.max_srq, srq);
	CHECK_EQ(attr.max_qp, qp);
	CHECK_EQ(attr.max_res_rd_atom, qp * attr.max_qp_rd_atom);
	CHECK_EQ(attr.max_mr, mr);
	CHECK_EQ(attr.max_mw, mw);
	CHECK_EQ(attr.max_ah, ah);
}

static void check_defaults(const char *device)
{
	check_attr(device, read_param("max_pd"), read_param("max_cq"),
		   read_param("max_srq"), read_param("max_qp"), read_param("max_mr"),
		   read_param("max_mw"), read_param("max_ah"));
}

TEST(set, "DEV-2,PD-5", "a new device has the limits that the parameters set, each can be reached and not exceeded, and other devices keep theirs")
{
	void *objs[40];
	struct ibv_pd *pd;
	char value[20];
	int kind, max;

	check_defaults(KEEL0);
	/* From 21 on, each kind has another number. */
	for (kind = 0; kind < 10; kind++) {
		snprintf(value, sizeof(value), "%d", 21 + kind);
		CHECK_OK(write_param(kinds[kind].param, value));
		CHECK_EQ(read_param(kinds[kind].param), 21 + kind);
	}
	dev_add();
	check_attr(KEEL1, 21, 24, 25, 26, 27, 28, 29);
	for (kind = 0; kind < KINDS; kind++) {
		max = read_param(kinds[kind].param);
		pd = set_up(KEEL1);
		CHECK_EQ(make(pd, objs, max, kinds[kind].one),
			 max - kinds[kind].has);
		CHECK_OK(ibv_close_device(pd->context));
		CHECK_EQ(tree_count(KEEL1, NULL), 0);
	}
	for (kind = 0; kind < 10; kind++)
		CHECK_OK(write_param(kinds[kind].param, "0"));
	check_defaults(KEEL0);
	check_attr(KEEL1, 21, 24, 25, 26, 27, 28, 29);
	dev_add();
	check_defaults(KEEL1);
}

TEST(set_refused, "DEV-2", "a limit that a device cannot keep is refused with EINVAL, and nothing changes")
{
	static const char * const bad[] = {
		"8000001", "4294967295", "-1", "many", "5 5",
	};
	size_t i;
	int kind;

	for (kind = 0; kind < KINDS; kind++) {
		CHECK_OK(write_param(kinds[kind].param, "8000000"));
		CHECK_EQ(read_param(kinds[kind].param), 8000000);
		CHECK_OK(write_param(kinds[kind].param, "1"));
		for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
			CHECK_RET(write_param(kinds[kind].param, bad[i]), EINVAL);
		CHECK_RET(write_param(kinds[kind].param, "4294967296"), ERANGE);
		CHECK_EQ(read_param(kinds[kind].param), 1);
	}
}
