// SPDX-License-Identifier: GPL-2.0
/*
 * Contexts, PDs, thread domains, parent domains, regions and windows: members
 * that never reach the kernel, failures, and what a refused destroy reports.
 */
#include <time.h>

#include <infiniband/cmd_write.h>

#include "fake.h"
#include "keeldv.h"

static struct ibv_pd *pd;
static struct ibv_context other;

static void setup(void)
{
	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
}

static void finish(void)
{
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

TEST(context, "DEV-2", "a context that cannot be opened leaves nothing, and one that can shows the state of its device")
{
	static const enum fake_call calls[] = { FAKE_GET_CONTEXT, FAKE_MMAP };
	int i;

	for (i = 0; i < 2; i++) {
		fake.fail[calls[i]] = EACCES;
		/* The first mapping is that of the fake device itself. */
		fake.pass[calls[i]] = i;
		CHECK(!fake_try_open());
		CHECK_EQ(errno, EACCES);
	}
	fake_open();
	CHECK(keeldv_is_supported(fake.ctx->device));
	CHECK(!keeldv_is_supported(NULL));
	CHECK(!keel_is_gone(fake.ctx));
	fake_gone();
	CHECK(keel_is_gone(fake.ctx));
	fake_close();
}

TEST(clock, "DEV-2", "the raw clock is the clock of the timestamps, and nothing else is answered")
{
	struct ibv_values_ex values = { .comp_mask = ~0U };
	struct timespec before, after;
	int64_t ns;

	fake_open();
	CHECK_SYS(clock_gettime(CLOCK_MONOTONIC_RAW, &before), 0);
	CHECK_OK(ibv_query_rt_values_ex(fake.ctx, &values));
	CHECK_SYS(clock_gettime(CLOCK_MONOTONIC_RAW, &after), 0);
	CHECK_EQ(values.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
	CHECK_EQ(values.raw_clock.tv_sec, 0);
	ns = values.raw_clock.tv_nsec;
	CHECK(ns >= before.tv_sec * 1000000000LL + before.tv_nsec);
	CHECK(ns <= after.tv_sec * 1000000000LL + after.tv_nsec);
	/* The clock is the only bit. */
	values = (struct ibv_values_ex){ .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	CHECK_OK(ibv_query_rt_values_ex(fake.ctx, &values));
	CHECK_EQ(values.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
	CHECK(values.raw_clock.tv_nsec >= ns);
	/* Every bit but the clock: the value stays. */
	values = (struct ibv_values_ex){
		.comp_mask = ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK,
		.raw_clock = { .tv_sec = 5, .tv_nsec = 6 },
	};
	CHECK_OK(ibv_query_rt_values_ex(fake.ctx, &values));
	CHECK_EQ(values.comp_mask, 0);
	CHECK_EQ(values.raw_clock.tv_sec, 5);
	CHECK_EQ(values.raw_clock.tv_nsec, 6);
	fake_close();
}

TEST(td, "TD-1,TD-2", "a thread domain that is busy stays, its holders are asked for, and device removal lets it be freed")
{
	struct ibv_td_init_attr attr = { .comp_mask = 1 };
	struct keeldv_holder list[2];
	uint32_t count = 2;
	struct ibv_td *td;

	setup();
	CHECK_NULL(ibv_alloc_td(fake.ctx, &attr), EINVAL);
	attr.comp_mask = 0;
	fake.fail[FAKE_ALLOC_TD] = EAGAIN;
	CHECK_NULL(ibv_alloc_td(fake.ctx, &attr), EAGAIN);
	fake.fail[FAKE_CALLOC] = ENOMEM;
	CHECK_NULL(ibv_alloc_td(fake.ctx, &attr), ENOMEM);
	td = MUST(ibv_alloc_td(fake.ctx, &attr));
	CHECK(td->context == fake.ctx);
	fake.fail[FAKE_FREE_TD] = EBUSY;
	CHECK_RET(ibv_dealloc_td(td), EBUSY);
	CHECK_EQ(fake.holders_flags, KEEL_UAPI_HOLDERS_F_REFUSED);
	CHECK_EQ(fake.holders_of, KEEL_OBJECT_TD);
	CHECK_EQ(fake.holders_handle, FAKE_TD);
	fake.nholders = 3;
	fake.holders[0] = (struct keel_uapi_holder){ .kind = 3, .id = 30 };
	fake.holders[1] = (struct keel_uapi_holder){ .kind = 7, .id = 70 };
	CHECK_OK(keeldv_td_holders(td, list, &count));
	CHECK_EQ(count, 3);
	CHECK_EQ(list[0].id, 30);
	CHECK_EQ(list[1].kind, 7);
	CHECK_EQ(fake.holders_flags, 0);
	CHECK_EQ(fake.holders_room, 2);
	CHECK_EQ(fake.holders_handle, FAKE_TD);
	/* After removal, the kernel answers EIO. It has freed the thread domain. */
	fake.fail[FAKE_FREE_TD] = EIO;
	CHECK_RET(ibv_dealloc_td(td), EIO);
	/* RDMAV_ALLOW_DISASSOC_DESTROY, which libibverbs reads early. */
	verbs_allow_disassociate_destroy = true;
	fake.fail[FAKE_FREE_TD] = EIO;
	CHECK_OK(ibv_dealloc_td(td));
	fake_drop_object(FAKE_TDS, FAKE_TD);
	finish();
}

TEST(kinds, "DEV-2", "each kind of object has a name, and every other number is an unknown one")
{
	static const char *const words[] = {
#define WORD(name, number, word) \
		[number] = (word),
		KEEL_UAPI_KINDS(WORD)
	};
	uint32_t i;

	for (i = 0; i < 100; i++)
		CHECK_STR(keeldv_kind_str(i), i < sizeof(words) / sizeof(*words) &&
			  words[i] ? words[i] : "unknown");
	CHECK_STR(keeldv_kind_str(-1), "unknown");
}

TEST(parent, "PDM-2,PDM-5,PDM-8", "a parent domain of invalid members is refused, and a valid one passes its handles")
{
	struct ibv_pd far_pd = { .context = &other };
	struct ibv_td far_td = { .context = &other };
	struct ibv_td_init_attr td_attr = {};
	struct ibv_parent_domain_init_attr attr = {};
	struct ibv_pd *parent, *second;
	struct ibv_td *td;
	void *fn = (void *)abort;

#define REFUSED	CHECK_NULL(ibv_alloc_parent_domain(fake.ctx, &attr), EINVAL)
	setup();
	td = MUST(ibv_alloc_td(fake.ctx, &td_attr));
	REFUSED;
	attr.pd = &far_pd;
	REFUSED;
	attr.pd = pd;
	attr.td = &far_td;
	REFUSED;
	attr.td = NULL;
	attr.comp_mask = 1 << 2;
	REFUSED;
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	REFUSED;
	memcpy(&attr.alloc, &fn, sizeof(fn));
	REFUSED;
	attr.alloc = NULL;
	memcpy(&attr.free, &fn, sizeof(fn));
	REFUSED;
	CHECK_EQ(fake.calls[FAKE_ALLOC_PARENT], 0);
	/* Without its bit, the member does not count. */
	attr.comp_mask = 0;
	attr.pd_context = &attr;
	fake.fail[FAKE_ALLOC_PARENT] = EAGAIN;
	CHECK_NULL(ibv_alloc_parent_domain(fake.ctx, &attr), EAGAIN);
	fake.fail[FAKE_CALLOC] = ENOMEM;
	CHECK_NULL(ibv_alloc_parent_domain(fake.ctx, &attr), ENOMEM);
	parent = MUST(ibv_alloc_parent_domain(fake.ctx, &attr));
	CHECK_EQ(fake.parent_pd, pd->handle);
	CHECK_EQ(fake.parent_td, -1);
	CHECK(!to_kparent(parent)->free);
	CHECK(!to_kparent(parent)->pd_context);
	attr.pd = parent;
	REFUSED;
	attr.pd = pd;
	attr.td = td;
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	second = MUST(ibv_alloc_parent_domain(fake.ctx, &attr));
	CHECK_EQ(fake.parent_td, FAKE_TD);
	CHECK(to_kparent(second)->pd_context == &attr);
	CHECK_EQ(second->handle, FAKE_PARENT);
	CHECK_OK(ibv_dealloc_pd(second));
	CHECK_OK(ibv_dealloc_pd(parent));
	CHECK_OK(ibv_dealloc_td(td));
	finish();
}

TEST(pd, "PD-2", "a PD that is busy stays, and its holders are asked for once")
{
	struct keeldv_pd_attr attr;
	uint32_t count = 0;

	setup();
	fake.fail[FAKE_DEALLOC_PD] = EBUSY;
	CHECK_RET(ibv_dealloc_pd(pd), EBUSY);
	CHECK_EQ(fake.calls[FAKE_HOLDERS], 1);
	CHECK_EQ(fake.holders_flags, KEEL_UAPI_HOLDERS_F_REFUSED);
	CHECK_EQ(fake.holders_of, UVERBS_OBJECT_PD);
	CHECK_EQ(fake.holders_handle, FAKE_PD);
	/* Another error is not a holder. */
	fake.fail[FAKE_DEALLOC_PD] = EPERM;
	CHECK_RET(ibv_dealloc_pd(pd), EPERM);
	CHECK_EQ(fake.calls[FAKE_HOLDERS], 1);
	CHECK_OK(keeldv_query_pd(pd, &attr));
	CHECK_EQ(attr.domain, 5);
	CHECK_EQ(attr.kind, KEELDV_PD_PLAIN);
	fake.nholders = 32;
	CHECK_OK(keeldv_pd_holders(pd, NULL, &count));
	CHECK_EQ(count, 32);
	CHECK_RET(keeldv_pd_holders(pd, NULL, &count), EINVAL);
	CHECK_RET(keeldv_pd_holders(pd, NULL, NULL), EINVAL);
	fake.fail[FAKE_ALLOC_PD] = EACCES;
	CHECK_NULL(ibv_alloc_pd(fake.ctx), EACCES);
	finish();
}

TEST(import, "SPD-9", "an imported parent domain has locks and default memory, and a handle that does not exist is refused")
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 1, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
	};
	struct ibv_pd *imported;
	struct ibv_cq_ex *ex;

	setup();
	fake.fail[FAKE_QUERY_PD] = ENOENT;
	CHECK_NULL(ibv_import_pd(fake.ctx, FAKE_PARENT), ENOENT);
	fake.fail[FAKE_CALLOC] = ENOMEM;
	CHECK_NULL(ibv_import_pd(fake.ctx, FAKE_PARENT), ENOMEM);
	fake.kind = KEEL_UAPI_PD_PARENT;
	imported = MUST(ibv_import_pd(fake.ctx, FAKE_PARENT));
	CHECK_EQ(fake.queried_pd, FAKE_PARENT);
	CHECK_EQ(imported->handle, FAKE_PARENT);
	attr.parent_domain = imported;
	ex = MUST(ibv_create_cq_ex(fake.ctx, &attr));
	/* The CQ does not need it any more. */
	ibv_unimport_pd(imported);
	CHECK(!to_kcq_ex(ex)->lock.single_threaded);
	CHECK_OK(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)));
	fake.kind = KEEL_UAPI_PD_PLAIN;
	imported = MUST(ibv_import_pd(fake.ctx, FAKE_PARENT));
	attr.parent_domain = imported;
	CHECK_NULL(ibv_create_cq_ex(fake.ctx, &attr), EINVAL);
	ibv_unimport_pd(imported);
	finish();
}

TEST(mr, "DEV-4", "a region is not moved to a PD, or made of a buffer, of another context")
{
	struct ibv_pd far_pd = { .context = &other };
	struct ibv_dm far_dm = { .context = &other };
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_mr *mr, *dm_mr;
	struct ibv_dm *dm;
	char mem[64];

	setup();
	fake.fail[FAKE_REG_MR] = EFAULT;
	CHECK_NULL(ibv_reg_mr(pd, mem, 64, 0), EFAULT);
	mr = MUST(ibv_reg_mr(pd, mem, 64, 0));
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, &far_pd, NULL, 0, 0));
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0));
	CHECK_EQ(fake.calls[FAKE_REREG_MR], 0);
	CHECK_OK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0));
	CHECK(mr->pd == pd);
	CHECK_NULL(ibv_reg_dm_mr(pd, &far_dm, 0, 64, IBV_ACCESS_ZERO_BASED),
		   EINVAL);
	CHECK_EQ(fake.calls[FAKE_REG_DM_MR], 0);
	dm = MUST(ibv_alloc_dm(fake.ctx, &attr));
	fake.fail[FAKE_REG_DM_MR] = EINVAL;
	CHECK_NULL(ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED),
		   EINVAL);
	dm_mr = MUST(ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED));
	/* The destroy must not include [0, 64) in fork() again. */
	CHECK_EQ(fake.dontfork, 64);
	fake.fail[FAKE_DEREG_MR] = EBUSY;
	CHECK_RET(ibv_dereg_mr(dm_mr), EBUSY);
	CHECK_OK(ibv_dereg_mr(dm_mr));
	CHECK_EQ(fake.dontfork, 64);
	CHECK_OK(ibv_free_dm(dm));
	CHECK_OK(ibv_dereg_mr(mr));
	finish();
}

static void check_request(struct fake_mr_request want)
{
	CHECK_MEM(&fake.mr, &want, sizeof(want));
}

TEST(requests, "PD-4,DM-7", "a region is requested in its own PD, with each argument of the application")
{
	int flags = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD |
		    IBV_REREG_MR_CHANGE_ACCESS;
	struct ibv_alloc_dm_attr attr = { .length = 4096 };
	struct ibv_mr *mr, *dm_mr;
	struct ibv_dm *first, *dm;
	struct ibv_pd *parent;
	char mem[256];

	setup();
	parent = fake_parent(pd, NULL);
	mr = MUST(ibv_reg_mr_iova(pd, mem + 16, 48, 0x12340010,
				  IBV_ACCESS_REMOTE_READ));
	check_request((struct fake_mr_request){
		.pd = FAKE_PD, .addr = mem + 16, .length = 48,
		.iova = 0x12340010, .access = IBV_ACCESS_REMOTE_READ });
	CHECK_OK(ibv_rereg_mr(mr, flags, parent, mem + 32, 64,
			      IBV_ACCESS_LOCAL_WRITE));
	check_request((struct fake_mr_request){
		.flags = flags, .pd = FAKE_PARENT, .addr = mem + 32,
		.length = 64, .iova = (uintptr_t)(mem + 32),
		.access = IBV_ACCESS_LOCAL_WRITE });
	/* The handle of the second buffer is not 0. */
	first = MUST(ibv_alloc_dm(fake.ctx, &attr));
	dm = MUST(ibv_alloc_dm(fake.ctx, &attr));
	dm_mr = MUST(ibv_reg_dm_mr(parent, dm, 512, 1024,
				   IBV_ACCESS_ZERO_BASED |
				   IBV_ACCESS_REMOTE_ATOMIC));
	check_request((struct fake_mr_request){
		.pd = FAKE_PARENT, .dm = 1, .iova = 512, .length = 1024,
		.access = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_ATOMIC });
	CHECK_OK(ibv_dereg_mr(dm_mr));
	CHECK_OK(ibv_dereg_mr(mr));
	CHECK_OK(ibv_free_dm(dm));
	CHECK_OK(ibv_free_dm(first));
	CHECK_OK(ibv_dealloc_pd(parent));
	finish();
}

TEST(mw, "DEV-4", "windows and address handles that cannot be created or destroyed are reported, and stay")
{
	struct ibv_ah_attr attr = {
		.grh = { .sgid_index = 1, .hop_limit = 2, .flow_label = 3 },
		.is_global = 1, .port_num = 1, .sl = 4,
	};
	struct ibv_mw *mw, *one;
	struct ibv_ah *ah;

	setup();
	fake.fail[FAKE_ALLOC_MW] = ENOMEM;
	CHECK_NULL(ibv_alloc_mw(pd, IBV_MW_TYPE_2), ENOMEM);
	mw = MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_2));
	CHECK_EQ(mw->handle, FAKE_MW + IBV_MW_TYPE_2);
	one = MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	CHECK_EQ(one->handle, FAKE_MW + IBV_MW_TYPE_1);
	CHECK_OK(ibv_dealloc_mw(one));
	fake.fail[FAKE_DEALLOC_MW] = EBUSY;
	CHECK_RET(ibv_dealloc_mw(mw), EBUSY);
	CHECK_EQ(mw->rkey, 0x3300);
	CHECK_OK(ibv_dealloc_mw(mw));
	fake.fail[FAKE_CREATE_AH] = ENETUNREACH;
	CHECK_NULL(ibv_create_ah(pd, &attr), ENETUNREACH);
	ah = MUST(ibv_create_ah(pd, &attr));
	CHECK_EQ(fake.ah.grh.sgid_index, 1);
	CHECK_EQ(fake.ah.grh.hop_limit, 2);
	CHECK_EQ(fake.ah.grh.flow_label, 3);
	CHECK_EQ(fake.ah.sl, 4);
	fake.fail[FAKE_DESTROY_AH] = EBUSY;
	CHECK_RET(ibv_destroy_ah(ah), EBUSY);
	CHECK_EQ(to_kah(ah)->ah, 0xa4);
	CHECK_OK(ibv_destroy_ah(ah));
	finish();
}
