/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The calls of libkeel: see <infiniband/keeldv.h>.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include <ccan/array_size.h>

#include "keel.h"
#include "keeldv.h"

/* keeldv.h does not include the contract, but must have the same numbers. */
#define SAME_KIND(name, number, word) KEELDV_KIND_##name == (number) &&
static_assert(KEEL_UAPI_KINDS(SAME_KIND) true, "kinds of objects differ");

#define SAME_RES(name)                                                         \
	static_assert((int)KEELDV_RES_##name == (int)KEEL_RES_##name,          \
		      #name " differs")
SAME_RES(CQ);
SAME_RES(SQ);
SAME_RES(RQ);
SAME_RES(SRQ);
static_assert(KEELDV_DRIVER_ID == KEEL_DRIVER_ID, "driver id differs");

#define SAME_PD_KIND(name)                                                     \
	static_assert((int)KEELDV_PD_##name == (int)KEEL_UAPI_PD_##name,       \
		      #name " differs")
SAME_PD_KIND(PLAIN);
SAME_PD_KIND(PARENT);
SAME_PD_KIND(SHARED);

#define SAME_WHY(name, number, text) KEELDV_WHY_##name == (number) &&
static_assert(KEEL_UAPI_WHYS(SAME_WHY) true, "vendor errors differ");

/* The kernel writes to the list of the application directly. */
#define SAME_MEMBER(member)                                                    \
	static_assert(offsetof(struct keeldv_holder, member) ==                \
			      offsetof(struct keel_uapi_holder, member),       \
		      #member " is elsewhere")
SAME_MEMBER(kind);
SAME_MEMBER(id);
SAME_MEMBER(pid);
SAME_MEMBER(comm);
static_assert(sizeof(struct keeldv_holder) == sizeof(struct keel_uapi_holder),
	      "sizes of holders differ");

static const char *const reasons[] = {
#define REASON(name, number, text)                                             \
	[number] = (text),
	KEEL_UAPI_WHYS(REASON)
};

const char *keeldv_why_str(uint32_t vendor_err)
{
	return vendor_err < ARRAY_SIZE(reasons) ? reasons[vendor_err] :
						  "unknown";
}

bool keeldv_is_supported(struct ibv_device *device)
{
	return device && keel_is_ours(device);
}

static int check_context(struct ibv_context *ibctx)
{
	return keel_is_ours(ibctx->device) ? 0 : EOPNOTSUPP;
}

int keeldv_query_pd(struct ibv_pd *pd, struct keeldv_pd_attr *attr)
{
	int ret;

	if (!pd || !attr)
		return EINVAL;
	ret = check_context(pd->context);
	if (ret)
		return ret;

	attr->domain = to_kpd(pd)->domain;
	attr->kind = (enum keeldv_pd_kind)to_kpd(pd)->kind;
	return 0;
}

int keeldv_query_dm(struct ibv_dm *dm, struct keeldv_dm_attr *attr)
{
	struct keel_uapi_dm_info info;
	int ret;

	if (!dm || !attr)
		return EINVAL;
	ret = check_context(dm->context);
	if (ret)
		return ret;

	ret = keel_cmd_query_dm(dm->context, to_kdm(dm)->vdm.handle, &info);
	if (ret)
		return ret;

	attr->start = info.start;
	attr->length = info.length;
	return 0;
}

void *keeldv_dm_map(struct ibv_dm *dm)
{
	void *map;
	int ret;

	if (!dm) {
		errno = EINVAL;
		return NULL;
	}
	ret = check_context(dm->context);
	if (!ret)
		ret = keel_dm_map(to_kdm(dm), &map);
	if (ret) {
		errno = ret;
		return NULL;
	}
	return map;
}

static int query_holders(struct ibv_context *ibctx,
			 const struct keel_holders_of *of, uint32_t handle,
			 struct keeldv_holder *list, uint32_t *count)
{
	if (!count || (*count && !list))
		return EINVAL;

	/* The kernel may write fewer holders than it counts, even with room. */
	if (list)
		memset(list, 0, *count * sizeof(*list));
	return keel_cmd_holders(ibctx, of, handle,
				(struct keel_uapi_holder *)list, *count, count,
				0);
}

int keeldv_pd_holders(struct ibv_pd *pd, struct keeldv_holder *list,
		      uint32_t *count)
{
	int ret;

	if (!pd)
		return EINVAL;
	ret = check_context(pd->context);
	if (ret)
		return ret;

	return query_holders(pd->context, &keel_holders_of_pd, pd->handle,
			     list, count);
}

int keeldv_td_holders(struct ibv_td *td, struct keeldv_holder *list,
		      uint32_t *count)
{
	int ret;

	if (!td)
		return EINVAL;
	ret = check_context(td->context);
	if (ret)
		return ret;

	return query_holders(td->context, &keel_holders_of_td,
			     to_ktd(td)->handle, list, count);
}

int keeldv_dm_holders(struct ibv_dm *dm, struct keeldv_holder *list,
		      uint32_t *count)
{
	int ret;

	if (!dm)
		return EINVAL;
	ret = check_context(dm->context);
	if (ret)
		return ret;

	return query_holders(dm->context, &keel_holders_of_dm,
			     to_kdm(dm)->vdm.handle, list, count);
}

const char *keeldv_kind_str(enum keeldv_kind kind)
{
	return keel_kind_str(kind);
}
