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

/* The public names stand on their own, but say the same as the contract's. */
#define SAME_KIND(name)                                                        \
	static_assert((int)KEELDV_KIND_##name == (int)KEEL_UAPI_KIND_##name,   \
		      #name " differs")
SAME_KIND(DOMAIN);
SAME_KIND(PD);
SAME_KIND(PARENT);
SAME_KIND(TD);
SAME_KIND(XRCD);
SAME_KIND(SHPD);
SAME_KIND(DM);
SAME_KIND(MR);
SAME_KIND(DM_MR);
SAME_KIND(MW);
SAME_KIND(AH);
SAME_KIND(CQ);
SAME_KIND(SRQ);
SAME_KIND(QP);

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

#define SAME_WHY(name)                                                         \
	static_assert((int)KEELDV_WHY_##name == (int)KEEL_WHY_##name,          \
		      #name " differs")
SAME_WHY(NONE);
SAME_WHY(OPCODE);
SAME_WHY(SGES);
SAME_WHY(LENGTH);
SAME_WHY(KEY);
SAME_WHY(DOMAIN);
SAME_WHY(ACCESS);
SAME_WHY(RANGE);
SAME_WHY(FAULT);
SAME_WHY(AH);
SAME_WHY(PEER);
SAME_WHY(NOT_READY);
SAME_WHY(QP_ACCESS);
SAME_WHY(DEPTH);
SAME_WHY(ALIGN);
SAME_WHY(SRQ);
SAME_WHY(WINDOW);
SAME_WHY(FLUSH);
SAME_WHY(RING);
SAME_WHY(PLACEMENT);
SAME_WHY(RESERVED);

/* The kernel fills in the program's list itself. */
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

/* As <rdma/keel-queue.h> describes them. */
static const char *const reasons[] = {
	[KEELDV_WHY_NONE] = "nothing is wrong",
	[KEELDV_WHY_OPCODE] = "the QP's type cannot do that",
	[KEELDV_WHY_SGES] = "more SGEs or inline data than the QP has",
	[KEELDV_WHY_LENGTH] = "too long, not 8 bytes for an atomic, or 0 for a bind",
	[KEELDV_WHY_KEY] = "there is no such key",
	[KEELDV_WHY_DOMAIN] = "the key is of another protection domain",
	[KEELDV_WHY_ACCESS] = "the key does not give that right",
	[KEELDV_WHY_RANGE] = "beyond the memory of the key",
	[KEELDV_WHY_FAULT] = "the memory was unmapped, or may not be written",
	[KEELDV_WHY_AH] = "no such address handle, or of another domain",
	[KEELDV_WHY_PEER] = "no peer is connected to this QP",
	[KEELDV_WHY_NOT_READY] = "the peer has posted no receive",
	[KEELDV_WHY_QP_ACCESS] = "the peer's QP does not allow it",
	[KEELDV_WHY_DEPTH] = "no read, atomic or flush is allowed, here or at the peer",
	[KEELDV_WHY_ALIGN] = "the address is not a multiple of 8",
	[KEELDV_WHY_SRQ] = "no such SRQ, or of another XRC domain",
	[KEELDV_WHY_WINDOW] = "the window or region cannot be used so, or now",
	[KEELDV_WHY_FLUSH] = "the QP is in an error state",
	[KEELDV_WHY_RING] = "the ring is not one, or the CQ is in error",
	[KEELDV_WHY_PLACEMENT] = "no such type or level of a flush",
	[KEELDV_WHY_RESERVED] = "what must be 0 in the work request is not",
	[KEELDV_WHY_PSN] = "sq_psn is not the rq_psn that the peer was given",
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

	/* The kernel may write fewer than it counts, even with room for all. */
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
