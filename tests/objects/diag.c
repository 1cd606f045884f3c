// SPDX-License-Identifier: GPL-2.0
/*
 * Diagnosis of EBUSY: the object tree, the lists of holders and the trace
 * events name the object that holds a reference.
 */
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <infiniband/keeldv.h>
#include <infiniband/shpd.h>

#include "domain.h"
#include "peer.h"
#include "raw.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096
#define TRACING	"/sys/kernel/tracing/"

static char page[PAGE] __attribute__((aligned(PAGE)));

/* A small tree with nearly every kind of object. */
struct made {
	struct ibv_context *ctx;
	struct ibv_pd *pd, *parent;
	struct ibv_td *td;
	struct ibv_dm *dm;
	struct ibv_mr *mr, *dm_mr;
	struct ibv_mw *mw;
	struct ibv_shpd shpd;
};

static void make(struct made *m)
{
	struct ibv_alloc_dm_attr dm_attr = { .length = 100 };

	prctl(PR_SET_NAME, "diag me");
	m->ctx = dev_open(KEEL0);
	m->pd = MUST(ibv_alloc_pd(m->ctx));
	m->td = td_new(m->ctx);
	m->parent = parent_new(m->pd, m->td);
	m->dm = MUST(ibv_alloc_dm(m->ctx, &dm_attr));
	m->mr = MUST(ibv_reg_mr(m->pd, page, 77, 0));
	m->dm_mr = MUST(ibv_reg_dm_mr(m->parent, m->dm, 1, 99,
				      IBV_ACCESS_ZERO_BASED));
	m->mw = MUST(ibv_alloc_mw(m->parent, IBV_MW_TYPE_1));
	MUST(ibv_alloc_shpd(m->pd, 1, &m->shpd));
}

static void check_line(const struct tree_obj *obj, int depth, unsigned int refs,
		       const char *text, const char *holds, const char *held_by)
{
	CHECK_EQ(obj->depth, depth);
	CHECK_EQ(obj->refs, refs);
	CHECK_EQ(obj->pid, getpid());
	CHECK_STR(obj->comm, "diag me");
	CHECK_EQ(obj->closing, 0);
	CHECK_STR(obj->text, text);
	CHECK_STR(obj->holds, holds);
	CHECK_STR(obj->held_by, held_by);
}

#define ID(kind)	(tree_only(&tree, kind)->id)

/* The returned text stays valid for the next seven calls. */
static const char *fmt(const char *format, ...)
{
	static char text[8][128];
	static int next;
	va_list ap;

	next = (next + 1) % 8;
	va_start(ap, format);
	vsnprintf(text[next], sizeof(text[0]), format, ap);
	va_end(ap);
	return text[next];
}

TEST(lines, "PD-1,PD-2,TD-1,PDM-1,SPD-1,DM-1", "debugfs shows depth, refs, pid and comm of each object, the objects it holds and the objects that hold it")
{
	struct keeldv_dm_attr dm;
	struct made m;
	struct tree tree;

	make(&m);
	CHECK_OK(keeldv_query_dm(m.dm, &dm));
	tree_read(KEEL0, &tree);
	CHECK_EQ(tree.count, 9);
	check_line(tree_only(&tree, "domain"), 0, 2, "instances 1", "",
		   fmt("pd %u, shpd %u", ID("pd"), ID("shpd")));
	check_line(tree_only(&tree, "pd"), 1, 3, fmt("domain %u", ID("domain")),
		   fmt("domain %u", ID("domain")),
		   fmt("parent %u, mr %u", ID("parent"), ID("mr")));
	check_line(tree_only(&tree, "parent"), 2, 3,
		   fmt("domain %u", ID("domain")),
		   fmt("pd %u, td %u", ID("pd"), ID("td")),
		   fmt("dm_mr %u, mw %u", ID("dm_mr"), ID("mw")));
	check_line(tree_only(&tree, "td"), 0, 2, "", "",
		   fmt("parent %u", ID("parent")));
	check_line(tree_only(&tree, "mr"), 2, 1,
		   fmt("key 0x%08x length 77", m.mr->lkey),
		   fmt("pd %u", ID("pd")), "");
	check_line(tree_only(&tree, "dm_mr"), 3, 1,
		   fmt("key 0x%08x length 99", m.dm_mr->lkey),
		   fmt("parent %u, dm %u", ID("parent"), ID("dm")), "");
	check_line(tree_only(&tree, "mw"), 3, 1,
		   fmt("key 0x%08x length 0", m.mw->rkey),
		   fmt("parent %u", ID("parent")), "");
	check_line(tree_only(&tree, "shpd"), 1, 1, "",
		   fmt("domain %u", ID("domain")), "");
	check_line(tree_only(&tree, "dm"), 0, 2,
		   fmt("start 0x%llx length 100", (unsigned long long)dm.start),
		   "", fmt("dm_mr %u", ID("dm_mr")));
	/* A mapping holds one more reference. */
	MUST(keeldv_dm_map(m.dm));
	tree_read(KEEL0, &tree);
	CHECK(tree_only(&tree, "dm")->refs > 2);
}

TEST(order, "PD-2", "debugfs lists each object below the first object that it needs")
{
	static const char * const want[] = {
		"domain", "pd", "parent", "dm_mr", "mw", "mr", "shpd", "td",
		"dm",
	};
	struct made m;
	struct tree tree;
	int i;

	make(&m);
	tree_read(KEEL0, &tree);
	CHECK_EQ(tree.count, 9);
	for (i = 0; i < 9; i++)
		CHECK_STR(tree.objs[i].kind, want[i]);
}

TEST(many_holders, "PD-2", "debugfs names 8 holders of an object and counts the rest, and lists each of 300 objects once")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct tree tree;
	int i;

	for (i = 0; i < 300; i++)
		MUST(ibv_reg_mr(pd, page, 1 + i, 0));
	tree_read(KEEL0, &tree);
	CHECK_EQ(tree.count, 302);
	CHECK_EQ(tree_only(&tree, "pd")->refs, 301);
	CHECK(strstr(tree_only(&tree, "pd")->held_by, " and 292 more"));
	for (i = 0; i < 300; i++)
		CHECK_EQ(tree_value(&tree.objs[2 + i], "length"), 1 + i);
}

static void check_holder(const struct keeldv_holder *h, enum keeldv_kind kind,
			 unsigned int id)
{
	CHECK_EQ(h->kind, kind);
	CHECK_EQ(h->id, id);
	CHECK_EQ(h->pid, getpid());
	CHECK_EQ(h->reserved, 0);
	CHECK_STR(h->comm, "diag me");
}

TEST(holders, "PD-2,PDM-9,TD-2,DM-8", "keeldv_*_holders() return kind, number, pid and comm of each object that keeps an object busy")
{
	struct keeldv_holder list[4];
	struct made m;
	struct tree tree;
	uint32_t count;

	make(&m);
	tree_read(KEEL0, &tree);
	count = 4;
	CHECK_OK(keeldv_pd_holders(m.pd, list, &count));
	CHECK_EQ(count, 2);
	check_holder(&list[0], KEELDV_KIND_PARENT, ID("parent"));
	check_holder(&list[1], KEELDV_KIND_MR, ID("mr"));
	count = 4;
	CHECK_OK(keeldv_pd_holders(m.parent, list, &count));
	CHECK_EQ(count, 2);
	check_holder(&list[0], KEELDV_KIND_DM_MR, ID("dm_mr"));
	check_holder(&list[1], KEELDV_KIND_MW, ID("mw"));
	count = 4;
	CHECK_OK(keeldv_td_holders(m.td, list, &count));
	CHECK_EQ(count, 1);
	check_holder(&list[0], KEELDV_KIND_PARENT, ID("parent"));
	count = 4;
	CHECK_OK(keeldv_dm_holders(m.dm, list, &count));
	CHECK_EQ(count, 1);
	check_holder(&list[0], KEELDV_KIND_DM_MR, ID("dm_mr"));
}

TEST(holders_room, "PD-2", "keeldv_pd_holders() fills a short list as far as it goes, and always returns the count of all holders")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	static struct keeldv_holder list[2000];
	struct raw_cmd cmd;
	uint32_t count = 0;
	int i;

	for (i = 0; i < 5; i++)
		MUST(ibv_reg_mr(pd, page, 1, 0));
	CHECK_OK(keeldv_pd_holders(pd, NULL, &count));
	CHECK_EQ(count, 5);
	memset(list, 0xaa, sizeof(list));
	count = 3;
	CHECK_OK(keeldv_pd_holders(pd, list, &count));
	CHECK_EQ(count, 5);
	CHECK_EQ(list[2].kind, KEELDV_KIND_MR);
	CHECK_ALL(&list[3], 0xaa, sizeof(list[3]));
	count = 2000;
	CHECK_OK(keeldv_pd_holders(pd, list, &count));
	CHECK_EQ(count, 5);
	CHECK_ALL(&list[5], 0, sizeof(list[5]));
	count = 1;
	CHECK_RET(keeldv_pd_holders(pd, NULL, &count), EINVAL);
	CHECK_RET(keeldv_pd_holders(pd, list, NULL), EINVAL);
	CHECK_RET(keeldv_pd_holders(NULL, list, &count), EINVAL);

	/* A list without room; the provider leaves it out. */
	raw_init(&cmd, UVERBS_OBJECT_PD, KEEL_METHOD_PD_HOLDERS);
	raw_obj(&cmd, KEEL_ATTR_HOLDERS_HANDLE, pd->handle);
	raw_out(&cmd, KEEL_ATTR_HOLDERS_RESP_LIST, list, 0);
	raw_out(&cmd, KEEL_ATTR_HOLDERS_RESP_COUNT, &count, sizeof(count));
	CHECK_RET(raw_run(ctx->cmd_fd, &cmd), 0);
	CHECK_EQ(count, 5);
}

static void trace_on(const char *event, const char *value)
{
	CHECK_OK(t_write_file(fmt(TRACING "events/keel/%s/enable", event),
			      value));
}

void t_after(void)
{
	t_write_file(TRACING "events/keel/enable", "0");
}

static void check_event(const char *trace, const char *event, const char *what)
{
	if (!strstr(trace, fmt("%s: %s", event, what)))
		FAIL("got no event %s: %s, want one", event, what);
}

TEST(trace, "PD-2,PDM-9", "trace events report each birth and death of an object, and the holder behind each refused destroy")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_parent_domain_init_attr attr = {};
	struct ibv_pd *parent;
	struct ibv_mr *mr;
	struct tree tree;
	char *trace, me[64];

	prctl(PR_SET_NAME, "diag me");
	snprintf(me, sizeof(me), "of pid %d (diag me)", getpid());
	trace_on("keel_obj_birth", "1");
	trace_on("keel_obj_death", "1");
	trace_on("keel_destroy_refused", "1");
	CHECK_OK(t_write_file(TRACING "trace", ""));
	attr.pd = MUST(ibv_alloc_pd(ctx));
	parent = MUST(ibv_alloc_parent_domain(ctx, &attr));
	mr = MUST(ibv_reg_mr(parent, page, 1, 0));
	tree_read(KEEL0, &tree);
	CHECK_RET(ibv_dealloc_pd(attr.pd), EBUSY);
	CHECK_RET(ibv_dealloc_pd(parent), EBUSY);
	trace = t_read_file(TRACING "trace");
	CHECK(!strstr(trace, "keel_obj_death"));
	CHECK_OK(ibv_dereg_mr(mr));
	CHECK_OK(ibv_dealloc_pd(parent));
	CHECK_OK(ibv_dealloc_pd(attr.pd));
	trace = t_read_file(TRACING "trace");
	check_event(trace, "keel_obj_birth",
		    fmt("keel0: domain %u %s", ID("domain"), me));
	check_event(trace, "keel_obj_birth", fmt("keel0: pd %u %s", ID("pd"), me));
	check_event(trace, "keel_obj_birth",
		    fmt("keel0: parent %u %s", ID("parent"), me));
	check_event(trace, "keel_obj_birth", fmt("keel0: mr %u %s", ID("mr"), me));
	check_event(trace, "keel_destroy_refused",
		    fmt("keel0: pd %u is held by 1, first by parent %u %s",
			ID("pd"), ID("parent"), me));
	check_event(trace, "keel_destroy_refused",
		    fmt("keel0: parent %u is held by 1, first by mr %u %s",
			ID("parent"), ID("mr"), me));
	check_event(trace, "keel_obj_death", fmt("keel0: mr %u %s", ID("mr"), me));
	check_event(trace, "keel_obj_death",
		    fmt("keel0: parent %u %s", ID("parent"), me));
	check_event(trace, "keel_obj_death", fmt("keel0: pd %u %s", ID("pd"), me));
	check_event(trace, "keel_obj_death",
		    fmt("keel0: domain %u %s", ID("domain"), me));
}

/* Return how many refused destroys the trace has. */
static int count_refused(void)
{
	char *trace = t_read_file(TRACING "trace"), *at = trace;
	int n = 0;

	while ((at = strstr(at, "keel_destroy_refused: "))) {
		at++;
		n++;
	}
	free(trace);
	return n;
}

TEST(trace_once, "PD-2,PDM-9,TD-2,DM-8", "each refused destroy raises one trace event, whether the RDMA core or keel refuses it, and a list of holders raises none")
{
	struct ibv_pd *base;
	uint32_t count = 0;
	int start;
	struct made m;

	make(&m);
	base = MUST(ibv_alloc_pd(m.ctx));
	parent_new(base, NULL);
	trace_on("keel_destroy_refused", "1");
	start = count_refused();
	/* The RDMA core refuses these. */
	CHECK_RET(ibv_dealloc_pd(m.pd), EBUSY);
	CHECK_EQ(count_refused() - start, 1);
	CHECK_RET(ibv_dealloc_pd(m.parent), EBUSY);
	CHECK_EQ(count_refused() - start, 2);
	CHECK_RET(ibv_free_dm(m.dm), EBUSY);
	CHECK_EQ(count_refused() - start, 3);
	/* keel refuses these: it counts parent domains. */
	CHECK_RET(ibv_dealloc_td(m.td), EBUSY);
	CHECK_EQ(count_refused() - start, 4);
	CHECK_RET(ibv_dealloc_pd(base), EBUSY);
	CHECK_EQ(count_refused() - start, 5);
	CHECK_OK(keeldv_pd_holders(m.pd, NULL, &count));
	count = 0;
	CHECK_OK(keeldv_dm_holders(m.dm, NULL, &count));
	count = 0;
	CHECK_OK(keeldv_td_holders(m.td, NULL, &count));
	CHECK_EQ(count_refused() - start, 5);
}

static void hold(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);

	prctl(PR_SET_NAME, "somebody");
	MUST(ibv_reg_mr(MUST(ibv_alloc_pd(ctx)), page, 1, 0));
	peer_tell(parent);
	pause();
}

TEST(others, "PD-1,PD-3", "rdma resource and debugfs name the process that created a PD and an MR while that process lives")
{
	struct tree tree;
	struct peer p;
	char *text;

	peer_start(&p, hold);
	peer_wait(&p);
	tree_read(KEEL0, &tree);
	CHECK_EQ(tree_only(&tree, "mr")->pid, p.pid);
	CHECK_STR(tree_only(&tree, "mr")->comm, "somebody");
	text = t_shell("rdma resource show pd; rdma resource show mr");
	CHECK(strstr(text, fmt("pid %d comm somebody", p.pid)));
	CHECK_EQ(res_count(KEEL0, "mr"), 1);
	CHECK_EQ(res_count(KEEL0, "pd"), 1);
	peer_kill(&p, SIGKILL);
	CHECK_EQ(res_count(KEEL0, "mr") + res_count(KEEL0, "pd"), 0);
}
