// SPDX-License-Identifier: GPL-2.0
/*
 * Quotas: an unprivileged user holds at most as much of a resource as is still
 * free.
 */
#include <signal.h>

#include "qp.h"
#include "t.h"
#include "tree.h"
#include "user.h"

#define ALICE	1000
#define BOB	1001
#define TRACING	"/sys/kernel/tracing/"

/* A resource that is quickly exhausted: device memory, in PIECES pieces. */
#define PIECES	256
#define ALL	PIECES

/*
 * A process of some user, which allocates or frees pieces on request. It
 * answers with the change of its number of pieces.
 */
struct taker {
	struct peer p;
	int has;
};

static uint64_t dm_size(struct ibv_context *ctx)
{
	struct ibv_device_attr_ex attr = {};

	CHECK_OK(ibv_query_device_ex(ctx, NULL, &attr));
	CHECK(attr.max_dm_size >= PIECES * 4096);
	return attr.max_dm_size;
}

static struct ibv_dm *dm(struct ibv_context *ctx, uint64_t length)
{
	struct ibv_alloc_dm_attr attr = { .length = length };

	errno = 0;
	return ibv_alloc_dm(ctx, &attr);
}

static int take(struct ibv_context *ctx, struct ibv_dm **pieces, int *has,
		int n)
{
	uint64_t size = dm_size(ctx) / PIECES;
	int start = *has;

	for (; n < 0; n++)
		CHECK_OK(ibv_free_dm(pieces[--*has]));
	for (; n > 0; n--) {
		pieces[*has] = dm(ctx, size);
		if (!pieces[*has]) {
			CHECK_EQ(errno, ENOMEM);
			break;
		}
		++*has;
	}
	return *has - start;
}

static void obey(struct peer *parent, struct ibv_context *ctx)
{
	struct ibv_dm *pieces[PIECES + 1];
	int n, has = 0;

	for (;;) {
		peer_get_var(parent, n);
		if (!n)
			return;
		n = take(ctx, pieces, &has, n);
		peer_put_var(parent, n);
	}
}

/*
 * Where a taker runs: in the user namespace of a process, or in a nested one.
 */
struct place {
	pid_t ns;
	uid_t uid;
	bool deeper;
};

static void taker_at(struct peer *parent)
{
	struct place at;

	peer_get_var(parent, at);
	if (at.ns)
		user_ns_join(at.ns, at.uid);
	else if (at.uid)
		user_become(at.uid);
	if (at.deeper)
		user_ns_new();
	obey(parent, dev_open(KEEL0));
}

static struct taker taker_in(pid_t ns, uid_t uid, bool deeper)
{
	struct place at = { .ns = ns, .uid = uid, .deeper = deeper };
	struct taker t = {};

	peer_start(&t.p, taker_at);
	peer_put_var(&t.p, at);
	return t;
}

static struct taker taker_new(uid_t uid)
{
	return taker_in(0, uid, false);
}

/*
 * Return how many pieces the taker got, or the negative number that it freed.
 */
static int taker_take(struct taker *t, int n)
{
	peer_put_var(&t->p, n);
	peer_get_var(&t->p, n);
	t->has += n;
	return n;
}

static void taker_end(struct taker *t)
{
	int quit = 0;

	peer_put_var(&t->p, quit);
	peer_end(&t->p);
}

TEST(shares, "ISO-5", "one user gets half of device memory (ENOMEM), the next user half of the rest, root all the rest, and a death frees memory")
{
	struct taker alice = taker_new(ALICE), bob = taker_new(BOB);
	struct taker root = taker_new(0);

	CHECK_EQ(taker_take(&alice, ALL), 128);
	CHECK_EQ(tree_count(KEEL0, "dm"), 128);
	CHECK_EQ(taker_take(&bob, ALL), 64);
	CHECK_EQ(taker_take(&alice, ALL), 0);
	/* A user that frees pieces gets back at most its share. */
	CHECK_EQ(taker_take(&alice, -20), -20);
	CHECK_EQ(taker_take(&bob, ALL), 10);
	CHECK_EQ(taker_take(&alice, ALL), 0);
	CHECK_EQ(taker_take(&root, ALL), 256 - 108 - 74);
	CHECK_EQ(taker_take(&root, ALL), 0);
	CHECK_EQ(tree_count(KEEL0, "dm"), 256);
	CHECK_EQ(taker_take(&bob, 1), 0);
	taker_end(&root);

	peer_kill(&alice.p, SIGKILL);
	CHECK_EQ(tree_count(KEEL0, "dm"), 74);
	CHECK_EQ(taker_take(&bob, ALL), 128 - 74);
	taker_end(&bob);
}

TEST(processes, "ISO-5", "the processes of a user share one quota")
{
	struct taker one = taker_new(ALICE), two = taker_new(ALICE);

	CHECK_EQ(taker_take(&one, 100), 100);
	CHECK_EQ(taker_take(&two, ALL), 28);
	CHECK_EQ(taker_take(&one, 1), 0);
	CHECK_EQ(taker_take(&two, -1), -1);
	CHECK_EQ(taker_take(&one, ALL), 1);
	taker_end(&one);
	taker_end(&two);
}

static void lender(struct peer *parent)
{
	struct ibv_context *ctx;

	user_become(ALICE);
	ctx = dev_open(KEEL0);
	peer_put_fd(parent, ctx->cmd_fd);
	obey(parent, ctx);
}

static void borrower(struct peer *parent)
{
	int fd = peer_get_fd(parent);

	user_become(BOB);
	obey(parent, MUST(ibv_import_device(fd)));
}

TEST(imported, "ISO-5", "an object counts for the user who created it, even in a context imported from another user")
{
	struct taker alice = {}, bob = {};
	int fd;

	peer_start(&alice.p, lender);
	peer_start(&bob.p, borrower);
	fd = peer_get_fd(&alice.p);
	peer_put_fd(&bob.p, fd);
	close(fd);
	CHECK_EQ(taker_take(&alice, ALL), 128);
	CHECK_EQ(taker_take(&bob, ALL), 64);
	taker_end(&bob);
	/* The pieces count for Bob until they are freed, with the context. */
	CHECK_EQ(taker_take(&alice, ALL), 0);
	CHECK_EQ(tree_count(KEEL0, "dm"), 192);
	taker_end(&alice);
	CHECK_EQ(tree_count(KEEL0, "dm"), 0);
}

/* Alice with subordinate IDs, as newuidmap(1) would map them. */
#define ALICE_MAP	"0 1000 1\n1 100000 10"

TEST(namespaces, "ISO-5", "user namespaces do not multiply a share, neither with subordinate IDs nor nested")
{
	struct taker outside = taker_new(ALICE), bob = taker_new(BOB);
	struct taker own, other, deeper, second;
	struct peer ns, ns2;

	user_ns_start(&ns, ALICE, ALICE_MAP);
	user_ns_start(&ns2, ALICE, ALICE_MAP);
	own = taker_in(ns.pid, 0, false);
	other = taker_in(ns.pid, 7, false);
	deeper = taker_in(ns.pid, 7, true);
	second = taker_in(ns2.pid, 3, false);
	CHECK_EQ(taker_take(&own, 40), 40);
	CHECK_EQ(taker_take(&other, 40), 40);
	CHECK_EQ(taker_take(&deeper, 40), 40);
	CHECK_EQ(taker_take(&second, ALL), 8);
	CHECK_EQ(taker_take(&own, 1), 0);
	CHECK_EQ(taker_take(&other, 1), 0);
	CHECK_EQ(taker_take(&deeper, 1), 0);
	CHECK_EQ(taker_take(&outside, 1), 0);
	CHECK_EQ(taker_take(&bob, ALL), 64);
	taker_end(&own);
	taker_end(&other);
	taker_end(&deeper);
	taker_end(&second);
	taker_end(&outside);
	taker_end(&bob);
	user_ns_end(&ns);
	user_ns_end(&ns2);
}

TEST(containers, "ISO-5", "a container of root counts as one user whatever its users are, and a container that maps root's ID counts as root")
{
	struct taker first, inside, deeper, second, shared, again;
	struct peer ns[3];

	user_ns_start(&ns[0], 0, "0 200000 65536");
	user_ns_start(&ns[1], 0, "0 300000 65536");
	user_ns_start(&ns[2], 0, "0 0 65536");
	first = taker_in(ns[0].pid, 0, false);
	inside = taker_in(ns[0].pid, 33, false);
	deeper = taker_in(ns[0].pid, 33, true);
	second = taker_in(ns[1].pid, 0, false);
	shared = taker_in(ns[2].pid, 0, false);
	again = taker_in(ns[2].pid, 33, false);
	CHECK_EQ(taker_take(&first, 126), 126);
	CHECK_EQ(taker_take(&inside, 1), 1);
	CHECK_EQ(taker_take(&deeper, ALL), 1);
	CHECK_EQ(taker_take(&first, 1), 0);
	CHECK_EQ(taker_take(&second, ALL), 64);
	CHECK_EQ(taker_take(&shared, 31), 31);
	CHECK_EQ(taker_take(&again, ALL), 1);
	CHECK_EQ(taker_take(&shared, ALL), 0);
	taker_end(&first);
	taker_end(&inside);
	taker_end(&deeper);
	taker_end(&second);
	taker_end(&shared);
	taker_end(&again);
	user_ns_end(&ns[0]);
	user_ns_end(&ns[1]);
	user_ns_end(&ns[2]);
}

static struct ibv_dm *dm_aligned(struct ibv_context *ctx, uint64_t length,
				 uint32_t log_align)
{
	struct ibv_alloc_dm_attr attr = {
		.length = length, .log_align_req = log_align,
	};

	return ibv_alloc_dm(ctx, &attr);
}

static void dm_alice(struct peer *parent)
{
	struct ibv_context *ctx;
	struct ibv_dm *half;
	uint64_t size;

	user_become(ALICE);
	ctx = dev_open(KEEL0);
	size = dm_size(ctx);
	CHECK_NULL(dm(ctx, size), ENOMEM);
	CHECK_NULL(dm(ctx, size / 2 + 1), ENOMEM);
	CHECK_NULL(dm(ctx, UINT64_MAX), ENOMEM);
	CHECK_NULL(dm(ctx, UINT64_MAX - 4095), ENOMEM);
	CHECK_NULL(dm(ctx, 0), EINVAL);
	CHECK_NULL(dm_aligned(ctx, size, 63), EINVAL);
	half = MUST(dm(ctx, size / 2));
	CHECK_NULL(dm(ctx, 1), ENOMEM);
	CHECK_OK(ibv_free_dm(half));
	/* The kernel counts whole pages. Two small buffers share the last one. */
	MUST(dm(ctx, size / 2 - 4096));
	MUST(dm(ctx, 1));
	MUST(dm(ctx, 1));
	CHECK_NULL(dm(ctx, 4096 / 2 + 1), ENOMEM);
	peer_tell(parent);
	peer_wait(parent);
}

static void dm_bob(struct peer *parent)
{
	struct ibv_context *ctx;

	peer_wait(parent);
	user_become(BOB);
	ctx = dev_open(KEEL0);
	CHECK_NULL(dm(ctx, dm_size(ctx) / 4 + 1), ENOMEM);
	MUST(dm(ctx, dm_size(ctx) / 4));
	CHECK_NULL(dm(ctx, 1), ENOMEM);
	peer_tell(parent);
	peer_wait(parent);
}

TEST(dm_bytes, "ISO-5,DM-1,DM-3", "device memory is shared by bytes: one user gets half, the next a quarter (ENOMEM), and root the rest")
{
	struct ibv_context *ctx;
	struct peer alice, bob;
	uint64_t size;

	peer_start(&alice, dm_alice);
	peer_start(&bob, dm_bob);
	peer_wait(&alice);
	peer_tell(&bob);
	peer_wait(&bob);
	ctx = dev_open(KEEL0);
	size = dm_size(ctx);
	MUST(dm(ctx, size / 4));
	CHECK_NULL(dm(ctx, 1), ENOMEM);
	peer_tell(&alice);
	peer_end(&alice);
	MUST(dm(ctx, size / 2));
	peer_tell(&bob);
	peer_end(&bob);
	MUST(dm(ctx, size / 4));
}

static union ibv_gid group_gid(int n)
{
	union ibv_gid gid = { .raw = { 0xff, 0x0e } };

	gid.raw[14] = n >> 8;
	gid.raw[15] = n;
	return gid;
}

/* Attach to groups until the kernel refuses; return how many succeeded. */
static int attach_groups(struct ibv_qp *qp, int from, int most)
{
	union ibv_gid gid;
	int n, ret;

	for (n = 0; n < most; n++) {
		gid = group_gid(from + n);
		ret = ibv_attach_mcast(qp, &gid, 0);
		if (ret) {
			CHECK_RET(ret, ENOMEM);
			break;
		}
	}
	return n;
}

/*
 * Attach new QPs to one group until the kernel refuses; return how many
 * succeeded.
 */
static int attach_qps(struct ibv_pd *pd, struct ibv_cq *cq, int group, int most)
{
	union ibv_gid gid = group_gid(group);
	int n, ret;

	for (n = 0; n < most; n++) {
		ret = ibv_attach_mcast(qp_new(pd, cq, IBV_QPT_UD, NULL), &gid,
				       0);
		if (ret) {
			CHECK_RET(ret, ENOMEM);
			break;
		}
	}
	return n;
}

static void mcast_user(struct peer *parent)
{
	struct ibv_device_attr attr;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	int part;

	peer_get_var(parent, part);
	user_become(part == 2 ? ALICE : BOB);
	ctx = dev_open(KEEL0);
	CHECK_OK(ibv_query_device(ctx, &attr));
	pd = MUST(ibv_alloc_pd(ctx));
	cq = cq_new(ctx);
	CHECK_EQ(attach_groups(qp_new(pd, cq, IBV_QPT_UD, NULL), part << 12,
			       attr.max_mcast_grp), attr.max_mcast_grp / part);
	/* The group of the first user, who already has one QP in the group. */
	CHECK_EQ(attach_qps(pd, cq, 2 << 12, attr.max_mcast_qp_attach),
		 attr.max_mcast_qp_attach / part - (part == 2));
	peer_tell(parent);
	peer_wait(parent);
}

TEST(mcast, "ISO-5", "multicast groups, and the QPs in one group, are shared by the same rule")
{
	struct peer alice, bob;
	int part;

	peer_start(&alice, mcast_user);
	peer_start(&bob, mcast_user);
	part = 2;
	peer_put_var(&alice, part);
	peer_wait(&alice);
	part = 4;
	peer_put_var(&bob, part);
	peer_wait(&bob);
	peer_tell(&alice);
	peer_end(&alice);
	peer_tell(&bob);
	peer_end(&bob);
}

#define EVENT	TRACING "events/keel/keel_quota_refused/enable"

static void check_trace(const char *who, uint64_t more, uint64_t has,
			uint64_t all, uint64_t limit)
{
	char *trace = t_read_file(TRACING "trace"), *line, text[200];

	snprintf(text, sizeof(text), "keel_quota_refused: " KEEL0
		 ": %ju dm_bytes to %s", (uintmax_t)more, who);
	line = strstr(trace, text);
	snprintf(text, sizeof(text), ", which holds %ju; %ju of %ju are taken\n",
		 (uintmax_t)has, (uintmax_t)all, (uintmax_t)limit);
	if (!line || !strstr(line, text))
		FAIL("got \"%s\", want one to %s%s", trace, who, text);
	free(trace);
}

TEST(trace, "ISO-5", "each refusal raises a trace event with the user, what the user holds, and the limit")
{
	struct taker alice = taker_new(ALICE), inside;
	uint64_t size, piece;
	struct peer ns;

	user_ns_start(&ns, 0, "0 200000 65536");
	inside = taker_in(ns.pid, 5, false);
	size = dm_size(dev_open(KEEL0));
	piece = size / PIECES;
	CHECK_OK(t_write_file(EVENT, "1"));
	CHECK_OK(t_write_file(TRACING "trace", ""));
	taker_take(&alice, ALL);
	taker_take(&inside, ALL);
	CHECK_OK(t_write_file(EVENT, "0"));
	check_trace("user 1000", piece, size / 2, size / 2, size);
	check_trace("user namespace ", piece, size / 4, size / 4 * 3, size);
	taker_end(&alice);
	taker_end(&inside);
	user_ns_end(&ns);
}
