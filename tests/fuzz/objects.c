// SPDX-License-Identifier: GPL-2.0
/*
 * Calls for domains, device memory, regions and windows.
 */
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "world.h"

#define RIGHTS		0x1f	/* local write to window bind */
#define ZERO_BASED	0x20
#define ON_DEMAND	0x40
#define FLUSHES		0x100	/* flush, global visibility */
/* Rights that are granted together, most of them all rights. */
static const uint32_t rights[] = {
	RIGHTS | FLUSHES, RIGHTS, RIGHTS | ZERO_BASED, RIGHTS | FLUSHES,
	0, 1, 5, 0x13,
};

static struct obj *alloc_pd(const struct keel_uapi_alloc_pd_req *req)
{
	struct ib_uverbs_alloc_pd core = {};
	struct ib_uverbs_alloc_pd_resp resp;
	struct keel_uapi_pd_info info = {};
	struct cmd cmd = {
		.m = req->kind ? M_PD_JOIN : M_ALLOC_PD,
		.command = IB_USER_VERBS_CMD_ALLOC_PD, CORE_IN(&core),
		CORE_OUT(&resp), DRIVER_IN(req), DRIVER_OUT(&info),
	};
	struct obj *pd;

	if (cmd_run(&cmd))
		return NULL;
	pd = obj_add(K_PD, resp.pd_handle, info.domain);
	pd->type = req->kind;
	return pd;
}

/* pd HOW SHARE: plain, or an instance of a shared one. */
static void op_pd(const uint8_t *a)
{
	struct keel_uapi_alloc_pd_req req = {};
	struct obj *share = obj_pick(K_SHPD, a[1]);

	if (a[0] % 3 == 2 && share) {
		req.kind = KEEL_UAPI_PD_SHARED;
		req.shpd_handle = share->handle;
		req.share_key = share->len;
	}
	alloc_pd(&req);
}

static struct obj *mr_add(const struct obj *pd, uint32_t handle, uint32_t key,
			  uint32_t access, uint64_t addr, uint64_t len)
{
	struct obj *mr = obj_add(K_MR, handle, pd->domain);

	mr->num = key;
	mr->access = access;
	mr->addr = addr;
	mr->len = len;
	return mr;
}

static struct obj *reg_mr(struct obj *pd, uint64_t addr, uint64_t len,
			  uint32_t access, bool implicit)
{
	struct ib_uverbs_reg_mr core = {
		.start = addr, .length = len, .hca_va = addr,
		.pd_handle = pd->handle, .access_flags = access,
	};
	struct ib_uverbs_reg_mr_resp resp;
	struct cmd cmd = {
		.m = access & ON_DEMAND ? M_REG_ODP_MR : M_REG_MR,
		.command = IB_USER_VERBS_CMD_REG_MR, CORE_IN(&core),
		CORE_OUT(&resp),
	};

	if (access & ZERO_BASED)
		core.hca_va = addr % PAGE;
	if (implicit) {
		core.start = 0;
		core.hca_va = 0;
		core.length = ~0ULL;
	}
	if (cmd_run(&cmd))
		return NULL;
	return mr_add(pd, resp.mr_handle, resp.lkey, access,
		      access & ZERO_BASED ? 0 : addr, len);
}

/* The method is newer than the headers of Debian 13. */
enum {
	METHOD_REG_MR = UVERBS_METHOD_REG_DMABUF_MR + 1,
	REG_MR_HANDLE = 0, REG_MR_PD = 1, REG_MR_IOVA = 3, REG_MR_ADDR = 4,
	REG_MR_LENGTH = 5, REG_MR_ACCESS = 6, REG_MR_LKEY = 9, REG_MR_RKEY = 10,
};

static void reg_mr_ioctl(struct obj *pd, uint64_t addr, uint64_t len,
			 uint32_t access)
{
	uint64_t iova = access & ZERO_BASED ? addr % PAGE : addr;
	uint32_t handle, lkey, rkey;

	if (!cmd_method(M_MR_REG, UVERBS_OBJECT_MR, METHOD_REG_MR,
			ATTRS(NEW(REG_MR_HANDLE, &handle),
			      OBJ(REG_MR_PD, pd->handle),
			      IN(REG_MR_IOVA, &iova), IN(REG_MR_ADDR, &addr),
			      IN(REG_MR_LENGTH, &len), IN(REG_MR_ACCESS, &access),
			      OUT(REG_MR_LKEY, &lkey), OUT(REG_MR_RKEY, &rkey))))
		mr_add(pd, handle, lkey, access,
		       access & ZERO_BASED ? 0 : addr, len);
}

static struct obj *need_mr(void)
{
	struct obj *pd = obj_need(K_PD, 0);

	return pd ? reg_mr(pd, data_at(0), 16 * PAGE, RIGHTS, false) : NULL;
}

struct obj *mr_need(uint32_t domain, uint32_t access, uint8_t sel)
{
	struct obj *mr = mr_pick(domain, access, sel), *pds = w.objs[K_PD];
	int i;

	for (i = 0; i < SLOTS && !mr; i++)
		if (pds[i].live && pds[i].domain == domain)
			mr = reg_mr(&pds[i], data_at(i), 16 * PAGE,
				    RIGHTS | FLUSHES, false);
	return mr;
}

struct obj *obj_need(enum kind kind, uint8_t sel)
{
	static const struct keel_uapi_alloc_pd_req plain;
	struct obj *obj = obj_pick(kind, sel);

	if (obj)
		return obj;
	switch (kind) {
	case K_PD:
		return alloc_pd(&plain);
	case K_MR:
		return need_mr();
	default:
		return NULL;
	}
}

/* share PD KEY */
static void op_share(const uint8_t *a)
{
	struct obj *pd = obj_need(K_PD, a[0]), *share;
	uint64_t key = a[1];
	uint32_t handle;

	if (!pd || cmd_method(M_PD_SHARE, UVERBS_OBJECT_PD, KEEL_METHOD_PD_SHARE,
			      ATTRS(OBJ(KEEL_ATTR_PD_SHARE_HANDLE, pd->handle),
				    IN(KEEL_ATTR_PD_SHARE_KEY, &key),
				    OUT(KEEL_ATTR_PD_SHARE_RESP_SHPD, &handle))))
		return;
	share = obj_add(K_SHPD, handle, 0);
	share->len = key;
}

/* parent PD TD HOW: a parent domain, with or without a TD. */
static void op_parent(const uint8_t *a)
{
	struct obj *pd = obj_need(K_PD, a[0]), *new;
	struct obj *td = a[2] % 2 ? obj_pick(K_TD, a[1]) : NULL;
	struct keel_uapi_pd_info info;
	uint32_t handle;

	if (!pd || cmd_method(M_PD_ALLOC_PARENT, UVERBS_OBJECT_PD,
			      KEEL_METHOD_PD_ALLOC_PARENT,
			      ATTRS(NEW(KEEL_ATTR_PD_ALLOC_PARENT_HANDLE, &handle),
				    OBJ(KEEL_ATTR_PD_ALLOC_PARENT_PD, pd->handle),
				    OBJ_IF(td, KEEL_ATTR_PD_ALLOC_PARENT_TD),
				    OUT(KEEL_ATTR_PD_ALLOC_PARENT_RESP, &info))))
		return;
	new = obj_add(K_PD, handle, info.domain);
	new->type = KEEL_UAPI_PD_PARENT;
}

/* td */
static void op_td(const uint8_t *a)
{
	uint32_t handle;

	if (!cmd_method(M_TD_ALLOC, KEEL_OBJECT_TD, KEEL_METHOD_TD_ALLOC,
			ATTRS(NEW(KEEL_ATTR_TD_ALLOC_HANDLE, &handle))))
		obj_add(K_TD, handle, 0);
}

/* dm SIZE ALIGN: small ones with ALIGN from 64 on share a page; from 192 on, flags are wrong */
static void op_dm(const uint8_t *a)
{
	uint64_t len = a[0] % 4 == 3 ? a[0] * 7 + 1 : (a[0] % 16 + 1) * PAGE;
	uint32_t align = a[1] % 22, handle;
	static const uint32_t flags_of[] = { 0, 1, 1, 2 };
	const uint32_t *flags = &flags_of[a[1] / 64];

	if (!cmd_method(M_DM_ALLOC, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC,
			ATTRS(NEW(UVERBS_ATTR_ALLOC_DM_HANDLE, &handle),
			      IN(KEEL_ATTR_DM_ALLOC_FLAGS, flags),
			      IN(UVERBS_ATTR_ALLOC_DM_LENGTH, &len),
			      IN(UVERBS_ATTR_ALLOC_DM_ALIGNMENT, &align))))
		obj_add(K_DM, handle, 0)->len = len;
}

/* dm_map DM OFFSET PROT: get an extent, map it and touch it. */
static void op_dm_map(const uint8_t *a)
{
	static const int prots[] = {
		PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ,
		PROT_NONE, PROT_READ | PROT_EXEC,
	};
	struct obj *dm = obj_pick(K_DM, a[0]);
	int prot = prots[a[2] % 5];
	struct keel_uapi_dm_map map;
	uint64_t offset = a[1] * 64;
	uint32_t skip;
	void *p;

	if (!dm || cmd_method(M_DM_MAP, UVERBS_OBJECT_DM, KEEL_METHOD_DM_MAP,
			      ATTRS(OBJ(KEEL_ATTR_DM_MAP_HANDLE, dm->handle),
				    IN(KEEL_ATTR_DM_MAP_OFFSET, &offset),
				    OUT(KEEL_ATTR_DM_MAP_RESP, &map),
				    OUT(KEEL_ATTR_DM_MAP_SKIP, &skip))))
		return;
	/* Sometimes another length or offset. */
	if (a[3] % 8 == 7)
		map.length += PAGE;
	if (a[3] % 8 == 6)
		map.mmap_offset += PAGE;
	p = mmap(NULL, map.length, prot, a[3] % 8 == 5 ? MAP_PRIVATE : MAP_SHARED,
		 cmd_fd(), map.mmap_offset);
	cmd_count(M_MMAP_DM, p != MAP_FAILED);
	if (p == MAP_FAILED)
		return;
	if (prot & PROT_WRITE)
		memset(p, a[4], map.length);
	map_add(p, map.length);
}

/* dm_mr PD DM OFFSET LENGTH RIGHTS */
static void op_dm_mr(const uint8_t *a)
{
	struct obj *pd = obj_need(K_PD, a[0]), *dm = obj_pick(K_DM, a[1]);
	uint32_t access = rights[a[4] % 8] | ZERO_BASED, handle, lkey, rkey;
	uint64_t offset, len, size;

	if (!pd || !dm)
		return;
	size = __atomic_load_n(&dm->len, __ATOMIC_RELAXED);
	if (!size)
		return;
	offset = a[2] * 8 % size;
	len = a[3] ? (a[3] * 64) % (size - offset) + 1 : size - offset;
	if (!cmd_method(M_REG_DM_MR, UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG,
			ATTRS(NEW(UVERBS_ATTR_REG_DM_MR_HANDLE, &handle),
			      IN(UVERBS_ATTR_REG_DM_MR_OFFSET, &offset),
			      IN(UVERBS_ATTR_REG_DM_MR_LENGTH, &len),
			      OBJ(UVERBS_ATTR_REG_DM_MR_PD_HANDLE, pd->handle),
			      IN(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, &access),
			      OBJ(UVERBS_ATTR_REG_DM_MR_DM_HANDLE, dm->handle),
			      OUT(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, &lkey),
			      OUT(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, &rkey))))
		mr_add(pd, handle, lkey, access, 0, len);
}

/* mr PD KIND PAGE PAGES RIGHTS SHIFT */
static void op_mr(const uint8_t *a)
{
	struct obj *pd = obj_need(K_PD, a[0]);
	uint32_t access = rights[a[4] % 8];
	uint64_t addr = data_at(a[2]), len = data_len(a[2], a[3]);

	if (!pd)
		return;
	/* Not all start and end at a page. */
	addr += a[5] & 0x3f;
	len -= a[5];
	if (a[1] % 3 == 1)
		access = (access | ON_DEMAND) & ~0x10;
	if (a[1] % 8 == 5)
		reg_mr_ioctl(pd, addr, len, access);
	else
		reg_mr(pd, addr, len, access, a[1] % 16 == 4);
}

/* A dma-buf of memory of the fuzzer. */
static int udmabuf(uint64_t size)
{
	int mem = memfd_create("fuzz", MFD_ALLOW_SEALING), dev, fd = -1;
	struct udmabuf_create create = { .memfd = mem, .size = size };

	dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	if (mem >= 0 && dev >= 0 && !ftruncate(mem, size) &&
	    !fcntl(mem, F_ADD_SEALS, F_SEAL_SHRINK))
		fd = ioctl(dev, UDMABUF_CREATE, &create);
	close(mem);
	close(dev);
	return fd;
}

/* dmabuf_mr PD OFFSET LENGTH RIGHTS */
static void op_dmabuf_mr(const uint8_t *a)
{
	uint64_t offset = a[1] * 16, iova = a[2] * 0x10000 + offset, len;
	uint32_t access = rights[a[3] % 8] & RIGHTS & ~0x10, handle, lkey, rkey;
	struct obj *pd = obj_need(K_PD, a[0]);
	int fd;

	if (!pd)
		return;
	fd = udmabuf(4 * PAGE);
	if (fd < 0)
		return;
	len = 4 * PAGE - offset - a[2];
	if (!cmd_method(M_REG_DMABUF_MR, UVERBS_OBJECT_MR,
			UVERBS_METHOD_REG_DMABUF_MR,
			ATTRS(NEW(UVERBS_ATTR_REG_DMABUF_MR_HANDLE, &handle),
			      OBJ(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, pd->handle),
			      IN(UVERBS_ATTR_REG_DMABUF_MR_OFFSET, &offset),
			      IN(UVERBS_ATTR_REG_DMABUF_MR_LENGTH, &len),
			      IN(UVERBS_ATTR_REG_DMABUF_MR_IOVA, &iova),
			      IN(UVERBS_ATTR_REG_DMABUF_MR_FD, &fd),
			      IN(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, &access),
			      OUT(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, &lkey),
			      OUT(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, &rkey))))
		mr_add(pd, handle, lkey, access, iova, len);
	close(fd);
}

/* rereg MR FLAGS PAGE PAGES RIGHTS PD */
static void op_rereg(const uint8_t *a)
{
	struct obj *mr = obj_need(K_MR, a[0]), *pd = obj_need(K_PD, a[5]);
	struct ib_uverbs_rereg_mr core = {
		.flags = a[1] % 7 + 1, .start = data_at(a[2]),
		.length = data_len(a[2], a[3]), .hca_va = data_at(a[2]),
		.access_flags = rights[a[4] % 8] & ~ZERO_BASED,
	};
	struct ib_uverbs_rereg_mr_resp resp;
	struct cmd cmd = {
		CMD(REREG_MR), CORE_IN(&core), CORE_OUT(&resp),
	};

	if (!mr || !pd)
		return;
	core.mr_handle = mr->handle;
	core.pd_handle = pd->handle;
	if (cmd_run(&cmd))
		return;
	mr->num = resp.lkey;
	if (core.flags & 1) {
		mr->addr = core.hca_va;
		mr->len = core.length;
	}
	if (core.flags & 2)
		mr->domain = pd->domain;
	if (core.flags & 4)
		mr->access = core.access_flags;
}

/* mw PD TYPE */
static void op_mw(const uint8_t *a)
{
	struct obj *pd = obj_need(K_PD, a[0]), *mw;
	struct ib_uverbs_alloc_mw core = { .mw_type = a[1] % 2 + 1 };
	struct ib_uverbs_alloc_mw_resp resp;
	struct cmd cmd = {
		CMD(ALLOC_MW), CORE_IN(&core), CORE_OUT(&resp),
	};

	if (!pd)
		return;
	core.pd_handle = pd->handle;
	if (cmd_run(&cmd))
		return;
	mw = obj_add(K_MW, resp.mw_handle, pd->domain);
	mw->num = resp.rkey;
	mw->type = core.mw_type;
}

/* xrcd HOW FLAGS: with or without an inode. */
static void op_xrcd(const uint8_t *a)
{
	struct ib_uverbs_open_xrcd core = { .fd = -1, .oflags = O_CREAT };
	struct ib_uverbs_open_xrcd_resp resp;
	struct cmd cmd = {
		CMD(OPEN_XRCD), CORE_IN(&core), CORE_OUT(&resp),
	};
	int fd = -1;

	if (a[0] % 2) {
		fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
		core.fd = fd;
		core.oflags = a[1] % 8 == 7 ? O_CREAT | O_EXCL :
			      a[1] % 8 == 6 ? 0 : O_CREAT;
	}
	if (!cmd_run(&cmd))
		obj_add(K_XRCD, resp.xrcd_handle, 0);
	if (fd >= 0)
		close(fd);
}

const struct op object_ops[] = {
	{ "pd", op_pd, 3 }, { "share", op_share, 2 }, { "parent", op_parent, 3 },
	{ "td", op_td, 1 }, { "dm", op_dm, 2 }, { "dm_map", op_dm_map, 2 },
	{ "dm_mr", op_dm_mr, 3 }, { "mr", op_mr, 6 },
	{ "dmabuf_mr", op_dmabuf_mr, 2 }, { "rereg", op_rereg, 3 },
	{ "mw", op_mw, 3 }, { "xrcd", op_xrcd, 2 },
};

const int object_ops_count = sizeof(object_ops) / sizeof(*object_ops);
