// SPDX-License-Identifier: GPL-2.0
/*
 * The calls of libkeel: objects of other providers, missing arguments, and the
 * holders of a busy object, which the provider also logs.
 */
#include <stdarg.h>

#include <infiniband/cmd_write.h>

#include "fake.h"
#include "keeldv.h"
#include "shpd.h"

/* Holders that the provider logs at most. */
#define SHOWN	16

static char logged[64][256];
static int lines;

/* Replaces the function of libibverbs, which prints only what the user requested. */
void __verbs_log(struct verbs_context *ctx, uint32_t level, const char *fmt, ...)
{
	char line[256], *text = line;
	va_list ap;
	int i;

	CHECK_EQ(level, VERBS_LOG_INFO);
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	/* The names of the device and of the function come first. */
	for (i = 0; i < 2; i++)
		text = MUST(strstr(text, ": ")) + 2;
	CHECK(lines < 64);
	strcpy(logged[lines++], text);
}

static void check_logged(const char *name, uint32_t handle)
{
	uint32_t n = fake.nholders < SHOWN ? fake.nholders : SHOWN;
	const struct keel_uapi_holder *h = fake.holders;
	char want[256];
	uint32_t i;

	CHECK_EQ(lines, n + (fake.nholders > n));
	for (i = 0; i < n; i++, h++) {
		snprintf(want, sizeof(want),
			 "%s %u is held by %s %u of process %u (%.16s)\n", name,
			 handle, keeldv_kind_str(h->kind), h->id, h->pid, h->comm);
		CHECK_STR(logged[i], want);
	}
	if (fake.nholders > n) {
		snprintf(want, sizeof(want), "%s %u is held by %u more\n", name,
			 handle, fake.nholders - n);
		CHECK_STR(logged[n], want);
	}
	lines = 0;
}

TEST(log, "PD-2,TD-2,DM-8", "a refused destroy logs each of the first 16 holders once, and the number of the others")
{
	static const uint32_t counts[] = { 0, 1, 15, 16, 17, 32 };
	struct ibv_alloc_dm_attr dm_attr = { .length = 64 };
	struct ibv_td_init_attr td_attr = {};
	struct ibv_pd *pd;
	struct ibv_td *td;
	struct ibv_dm *dm;
	size_t i;

	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	td = MUST(ibv_alloc_td(fake.ctx, &td_attr));
	dm = MUST(ibv_alloc_dm(fake.ctx, &dm_attr));
	for (i = 0; i < 32; i++) {
		fake.holders[i] = (struct keel_uapi_holder){
			.kind = 1 + i % KEELDV_KIND_QP, .id = 100 + i,
			.pid = 1000 + i,
		};
		/* The name of a process need not end with a zero. */
		memset(fake.holders[i].comm, 'a' + i % 26, 16);
	}
	for (i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		fake.nholders = counts[i];
		fake.fail[FAKE_DEALLOC_PD] = EBUSY;
		CHECK_RET(ibv_dealloc_pd(pd), EBUSY);
		check_logged("PD", FAKE_PD);
		fake.fail[FAKE_FREE_TD] = EBUSY;
		CHECK_RET(ibv_dealloc_td(td), EBUSY);
		check_logged("TD", FAKE_TD);
		fake.fail[FAKE_FREE_DM] = EBUSY;
		CHECK_RET(ibv_free_dm(dm), EBUSY);
		check_logged("DM", dm->handle);
	}
	/* If the kernel does not name the holders, nothing is logged. */
	fake.fail[FAKE_DEALLOC_PD] = EBUSY;
	fake.fail[FAKE_HOLDERS] = EIO;
	CHECK_RET(ibv_dealloc_pd(pd), EBUSY);
	CHECK_EQ(lines, 0);
	CHECK_OK(ibv_free_dm(dm));
	CHECK_OK(ibv_dealloc_td(td));
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

TEST(log_cqs, "PDM-9", "the log names the number of the CQs that keep a parent domain busy, which the kernel does not know")
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 1, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
	};
	struct ibv_pd *pd, *parent;
	struct ibv_cq *cq[2];
	int i;

	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	parent = fake_parent(pd, NULL);
	attr.parent_domain = parent;
	for (i = 0; i < 2; i++)
		cq[i] = ibv_cq_ex_to_cq(MUST(ibv_create_cq_ex(fake.ctx, &attr)));
	CHECK_RET(ibv_dealloc_pd(parent), EBUSY);
	CHECK_EQ(lines, 1);
	CHECK_STR(logged[0], "PD 8 is held by 2 cq of this process\n");
	CHECK_OK(ibv_destroy_cq(cq[0]));
	CHECK_OK(ibv_destroy_cq(cq[1]));
	CHECK_OK(ibv_dealloc_pd(parent));
	CHECK_OK(ibv_dealloc_pd(pd));
	CHECK_EQ(lines, 1);
	fake_close();
}

TEST(dm_holders, "DM-8", "the holders of a buffer are those that the kernel returns for its handle")
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct keeldv_holder list[2];
	struct ibv_dm *first, *dm;
	uint32_t count = 2;

	fake_open();
	/* The handle of the second buffer is not 0. */
	first = MUST(ibv_alloc_dm(fake.ctx, &attr));
	dm = MUST(ibv_alloc_dm(fake.ctx, &attr));
	fake.nholders = 1;
	fake.holders[0] = (struct keel_uapi_holder){
		.kind = KEELDV_KIND_DM_MR, .id = 30, .pid = 40,
	};
	CHECK_OK(keeldv_dm_holders(dm, list, &count));
	CHECK_EQ(count, 1);
	CHECK_EQ(list[0].kind, KEELDV_KIND_DM_MR);
	CHECK_EQ(list[0].id, 30);
	CHECK_EQ(list[0].pid, 40);
	/* The kernel wrote one holder only. */
	CHECK_ALL(&list[1], 0, sizeof(list[1]));
	CHECK_EQ(fake.holders_of, UVERBS_OBJECT_DM);
	CHECK_EQ(fake.holders_handle, dm->handle);
	CHECK_EQ(fake.holders_room, 2);
	CHECK_EQ(fake.holders_flags, 0);
	fake.fail[FAKE_HOLDERS] = EIO;
	CHECK_RET(keeldv_dm_holders(dm, list, &count), EIO);
	CHECK_OK(ibv_free_dm(dm));
	CHECK_OK(ibv_free_dm(first));
	fake_close();
}

TEST(missing, "DEV-4,SPD-1", "every call of libkeel refuses a missing object or a missing result with EINVAL")
{
	struct ibv_shpd shpd = { .handle = 77 };
	struct keeldv_holder list[1];
	struct keeldv_pd_attr pd_attr;
	struct keeldv_dm_attr dm_attr;
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_td_init_attr td_attr = {};
	uint32_t count = 1;
	struct ibv_pd *pd;
	struct ibv_td *td;
	struct ibv_dm *dm;

	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	td = MUST(ibv_alloc_td(fake.ctx, &td_attr));
	dm = MUST(ibv_alloc_dm(fake.ctx, &attr));
	CHECK_RET(keeldv_query_pd(NULL, &pd_attr), EINVAL);
	CHECK_RET(keeldv_query_pd(pd, NULL), EINVAL);
	CHECK_RET(keeldv_query_dm(NULL, &dm_attr), EINVAL);
	CHECK_RET(keeldv_query_dm(dm, NULL), EINVAL);
	CHECK_NULL(keeldv_dm_map(NULL), EINVAL);
	CHECK_RET(keeldv_pd_holders(NULL, list, &count), EINVAL);
	CHECK_RET(keeldv_td_holders(NULL, list, &count), EINVAL);
	CHECK_RET(keeldv_dm_holders(NULL, list, &count), EINVAL);
	CHECK_RET(keeldv_pd_holders(pd, NULL, &count), EINVAL);
	CHECK_RET(keeldv_td_holders(td, NULL, &count), EINVAL);
	CHECK_RET(keeldv_dm_holders(dm, NULL, &count), EINVAL);
	CHECK_RET(keeldv_td_holders(td, list, NULL), EINVAL);
	CHECK_RET(keeldv_dm_holders(dm, list, NULL), EINVAL);
	CHECK_NULL(ibv_alloc_shpd(NULL, 1, &shpd), EINVAL);
	CHECK_NULL(ibv_alloc_shpd(pd, 1, NULL), EINVAL);
	CHECK_NULL(ibv_share_pd(NULL, &shpd, 1), EINVAL);
	CHECK_NULL(ibv_share_pd(fake.ctx, NULL, 1), EINVAL);
	CHECK_EQ(shpd.handle, 77);
	CHECK_EQ(count, 1);
	CHECK_EQ(fake.calls[FAKE_HOLDERS], 0);
	CHECK_EQ(fake.calls[FAKE_QUERY_DM], 0);
	CHECK_EQ(fake.calls[FAKE_ALLOC_PD], 1);
	CHECK_OK(ibv_free_dm(dm));
	CHECK_OK(ibv_dealloc_td(td));
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

TEST(foreign, "DEV-4,SPD-1", "every call of libkeel refuses the objects of another provider with EOPNOTSUPP")
{
	struct verbs_device device = {};
	struct ibv_context other = { .device = &device.device };
	struct ibv_pd pd = { .context = &other };
	struct ibv_td td = { .context = &other };
	struct ibv_dm dm = { .context = &other };
	struct ibv_shpd shpd = { .handle = 77 };
	struct keeldv_pd_attr pd_attr;
	struct keeldv_dm_attr dm_attr;
	struct keeldv_holder list[1];
	uint32_t count = 1;

	fake_open();
	CHECK(!keeldv_is_supported(&device.device));
	CHECK_RET(keeldv_query_pd(&pd, &pd_attr), EOPNOTSUPP);
	CHECK_RET(keeldv_query_dm(&dm, &dm_attr), EOPNOTSUPP);
	CHECK_NULL(keeldv_dm_map(&dm), EOPNOTSUPP);
	CHECK_RET(keeldv_pd_holders(&pd, list, &count), EOPNOTSUPP);
	CHECK_RET(keeldv_td_holders(&td, list, &count), EOPNOTSUPP);
	CHECK_RET(keeldv_dm_holders(&dm, list, &count), EOPNOTSUPP);
	CHECK_NULL(ibv_alloc_shpd(&pd, 1, &shpd), EOPNOTSUPP);
	CHECK_NULL(ibv_share_pd(&other, &shpd, 1), EOPNOTSUPP);
	CHECK_EQ(shpd.handle, 77);
	CHECK_EQ(count, 1);
	CHECK_EQ(fake.calls[FAKE_HOLDERS], 0);
	CHECK_EQ(fake.calls[FAKE_QUERY_DM], 0);
	CHECK_EQ(fake.calls[FAKE_MAP_DM], 0);
	CHECK_EQ(fake.calls[FAKE_ALLOC_PD], 0);
	fake_close();
}
