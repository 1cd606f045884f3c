// SPDX-License-Identifier: GPL-2.0
/*
 * Steps for PDs, thread domains, parent domains, XRC domains, shared PDs, imported
 * handles, and handles of objects that were destroyed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "model.h"

/* --- PDs ------------------------------------------------------------------ */

static struct obj *new_pd(struct ibv_pd *p, int ctx, struct obj *domain)
{
	struct obj *o = obj_new_handle(K_PD, ctx, p->handle);

	o->pd.p = p;
	o->pd.domain = domain;
	obj_hold(o, domain);
	return o;
}

/* CONTEXT */
void op_alloc_pd(const uint32_t *a)
{
	int ctx = a[0] % CONTEXTS;
	struct ibv_pd *p;

	if (!obj_has_room(K_PD) || !obj_has_room(K_DOMAIN)) {
		idle();
		return;
	}
	errno = 0;
	p = ibv_alloc_pd(world.ctx[ctx]);
	if (expect_ptr("ibv_alloc_pd()", p, 0))
		new_pd(p, ctx, obj_new(K_DOMAIN, ctx));
}

static bool has_cqs(const struct obj *parent)
{
	int i;

	for (i = 0; i < world.n[K_CQ]; i++)
		if (world.live[K_CQ][i]->cq.parent == parent)
			return true;
	return false;
}

/* The handle of a shared domain and the domain end with the last instance. */
static void leave_domain(struct obj *domain)
{
	int i;

	for (i = 0; i < world.n[K_PD]; i++)
		if (world.live[K_PD][i]->pd.domain == domain)
			return;
	for (i = 0; i < world.n[K_SHPD]; i++)
		if (world.live[K_SHPD][i]->holds[0] == domain) {
			obj_end(world.live[K_SHPD][i]);
			break;
		}
	obj_end(domain);
}

/* The list of holders must have all holders, and their number. */
static void check_holders(struct obj *pd)
{
	struct keeldv_holder list[4 * MAX_LIVE];
	uint32_t n, want = obj_holders(pd);
	int ret, ms;

	/* A kernel thread may still use an object that was destroyed. */
	for (ms = 0; ms < 2000; ms++) {
		n = COUNT(list);
		ret = keeldv_pd_holders(pd->pd.p, list, &n);
		if (!ret && n == want)
			return;
		usleep(1000);
	}
	diverge("keeldv_pd_holders(): got %s and %u holders, want %u",
		errname(ret), n, want);
}

/* PD KIND */
void op_dealloc_pd(const uint32_t *a)
{
	struct obj *pd = obj_pick(a[1] % 5 < 2 ? K_PARENT : K_PD, a[0]);
	struct obj *domain;
	int holders;

	if (!pd) {
		idle();
		return;
	}
	domain = pd->pd.domain;
	holders = obj_holders(pd);
	check_holders(pd);
	say("pd %lu of kind %d", (unsigned long)pd->born, pd->kind);
	if (!expect("ibv_dealloc_pd()", ibv_dealloc_pd(pd->pd.p),
		    holders || has_cqs(pd) ? EBUSY : 0))
		return;
	obj_end(pd);
	if (pd->kind == K_PD)
		leave_domain(domain);
}

/* PD TD HOW */
void op_alloc_parent(const uint32_t *a)
{
	struct ibv_parent_domain_init_attr attr = { 0 };
	struct obj *td = a[2] % 3 ? obj_pick(K_TD, a[1]) : NULL, *o;
	struct pd_ref ref;
	struct ibv_pd *p;
	int want = 0;

	if (!obj_has_room(K_PARENT) || !pd_pick(a[0], &ref)) {
		idle();
		return;
	}
	attr.pd = a[2] % 31 == 30 ? NULL : ref.p;
	if (td)
		attr.td = td->td.p;
	if (a[2] % 29 == 28)
		attr.comp_mask = 1U << 20;
	if (!attr.pd || attr.comp_mask || (td && td->ctx != ref.ctx))
		want = EINVAL;
	else if (ref.err)
		want = ref.err;
	else if (ref.pd->kind == K_PARENT)
		want = EINVAL;
	/* The library remembers the kind of an imported PD. */
	if (ref.import && ref.import->import.target->kind == K_PARENT)
		want = EINVAL;
	errno = 0;
	p = ibv_alloc_parent_domain(world.ctx[ref.ctx], &attr);
	if (!expect_ptr("ibv_alloc_parent_domain()", p, want))
		return;
	o = obj_new_handle(K_PARENT, ref.ctx, p->handle);
	o->pd.p = p;
	o->pd.domain = ref.pd->pd.domain;
	obj_hold(o, ref.pd);
	obj_hold(o, td);
}

/* --- thread domains ------------------------------------------------------- */

/* CONTEXT HOW */
void op_alloc_td(const uint32_t *a)
{
	struct ibv_td_init_attr attr = { .comp_mask = a[1] % 9 == 8 };
	int ctx = a[0] % CONTEXTS;
	struct ibv_td *p;

	if (!obj_has_room(K_TD)) {
		idle();
		return;
	}
	errno = 0;
	p = ibv_alloc_td(world.ctx[ctx], &attr);
	if (expect_ptr("ibv_alloc_td()", p, attr.comp_mask ? EINVAL : 0))
		obj_new_handle(K_TD, ctx, UINT32_MAX)->td.p = p;
}

/* TD */
void op_dealloc_td(const uint32_t *a)
{
	struct obj *td = obj_pick(K_TD, a[0]);

	if (!td)
		idle();
	else if (expect("ibv_dealloc_td()", ibv_dealloc_td(td->td.p),
			obj_holders(td) ? EBUSY : 0))
		obj_end(td);
}

/* --- XRC domains ---------------------------------------------------------- */

#define INODES		3

/* Two files of each inode. */
static int open_inode(int inode, uint32_t which)
{
	static int fds[INODES][2];
	char path[64];
	int i;

	for (i = 0; i < 2 && !fds[inode][i]; i++) {
		snprintf(path, sizeof(path), "/tmp/keel-model-%d-%d", getpid(),
			 inode);
		fds[inode][i] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (i)
			unlink(path);
	}
	return fds[inode][which % 2];
}

static struct obj *xdom_of(int inode)
{
	int i;

	for (i = 0; i < world.n[K_XDOM]; i++)
		if (world.live[K_XDOM][i]->xdom.inode == inode)
			return world.live[K_XDOM][i];
	return NULL;
}

static int xrcd_errno(int inode, bool closed, int oflags)
{
	if (inode < 0)
		return oflags & O_CREAT ? 0 : EINVAL;
	if (closed)
		return EBADF;
	if (!xdom_of(inode))
		return oflags & O_CREAT ? 0 : EAGAIN;
	return oflags & O_EXCL ? EINVAL : 0;
}

/* CONTEXT INODE FLAGS FILE */
void op_open_xrcd(const uint32_t *a)
{
	static const int flags[] = { O_CREAT, O_CREAT, O_CREAT, 0,
				     O_CREAT | O_EXCL, O_EXCL };
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.oflags = flags[a[2] % COUNT(flags)],
	};
	int ctx = a[0] % CONTEXTS, inode = (int)(a[1] % (INODES + 1)) - 1;
	bool closed = a[3] % 17 == 16;
	struct ibv_xrcd *p;
	struct obj *o;

	if (!obj_has_room(K_XRCD) || !obj_has_room(K_XDOM)) {
		idle();
		return;
	}
	attr.fd = inode < 0 ? -1 : closed ? 999 : open_inode(inode, a[3]);
	errno = 0;
	p = ibv_open_xrcd(world.ctx[ctx], &attr);
	if (!expect_ptr("ibv_open_xrcd()", p,
			xrcd_errno(inode, closed, attr.oflags)))
		return;
	o = obj_new_handle(K_XRCD, ctx, UINT32_MAX);
	o->xrcd.p = p;
	o->xrcd.dom = inode < 0 ? NULL : xdom_of(inode);
	if (!o->xrcd.dom) {
		o->xrcd.dom = obj_new(K_XDOM, ctx);
		o->xrcd.dom->xdom.inode = inode;
	}
}

/* SRQs and QPs keep the handle that they were created with. */
static bool xrcd_in_use(const struct obj *xrcd)
{
	static const enum kind kinds[] = { K_SRQ, K_QP };
	int i, k;

	for (k = 0; k < COUNT(kinds); k++)
		for (i = 0; i < world.n[kinds[k]]; i++)
			if (world.live[kinds[k]][i]->via == xrcd)
				return true;
	return false;
}

/* XRCD */
void op_close_xrcd(const uint32_t *a)
{
	struct obj *xrcd = obj_pick(K_XRCD, a[0]);
	int i;

	if (!xrcd) {
		idle();
		return;
	}
	if (!expect("ibv_close_xrcd()", ibv_close_xrcd(xrcd->xrcd.p),
		    xrcd_in_use(xrcd) ? EBUSY : 0))
		return;
	obj_end(xrcd);
	for (i = 0; i < world.n[K_XRCD]; i++)
		if (world.live[K_XRCD][i]->xrcd.dom == xrcd->xrcd.dom)
			return;
	obj_end(xrcd->xrcd.dom);
}

/* --- shared PDs ----------------------------------------------------------- */

/* PD KEY */
void op_alloc_shpd(const uint32_t *a)
{
	struct ibv_shpd shpd, *got;
	struct pd_ref ref;
	struct obj *o;
	int i, want;

	if (!obj_has_room(K_SHPD) || !pd_pick(a[0], &ref)) {
		idle();
		return;
	}
	want = ref.err;
	if (!want && (ref.pd->kind == K_PARENT || ref.pd->pd.joined))
		want = EINVAL;
	for (i = 0; !want && i < world.n[K_SHPD]; i++)
		if (world.live[K_SHPD][i]->holds[0] == ref.pd->pd.domain)
			want = EINVAL;
	errno = 0;
	got = ibv_alloc_shpd(ref.p, a[1], &shpd);
	if (!expect_ptr("ibv_alloc_shpd()", got, want))
		return;
	o = obj_new(K_SHPD, ref.ctx);
	o->shpd.h = shpd;
	o->shpd.key = a[1];
	obj_hold(o, ref.pd->pd.domain);
}

/* CONTEXT SHPD HOW */
void op_share_pd(const uint32_t *a)
{
	struct obj *shpd = obj_pick(K_SHPD, a[1]), *o;
	int ctx = a[0] % CONTEXTS;
	struct ibv_shpd h;
	struct ibv_pd *p;
	bool wrong;

	if (!shpd || !obj_has_room(K_PD)) {
		idle();
		return;
	}
	h = shpd->shpd.h;
	wrong = a[2] % 5 == 0;
	if (a[2] % 10 == 5)
		h.handle ^= 1U << a[2] % 32;
	errno = 0;
	p = ibv_share_pd(world.ctx[ctx], &h, a[2] % 10 ? shpd->shpd.key :
			 shpd->shpd.key ^ 1ULL << 40);
	if (!expect_ptr("ibv_share_pd()", p, wrong ? EACCES : 0))
		return;
	o = new_pd(p, ctx, shpd->holds[0]);
	o->pd.joined = true;
}

/* --- imports -------------------------------------------------------------- */

static const enum kind import_kinds[] = { K_PD, K_MR, K_DM };

static bool is_of(const struct obj *o, enum kind kind)
{
	return o->kind == kind || (kind == K_PD && o->kind == K_PARENT) ||
	       (kind == K_MR && o->kind == K_DM_MR);
}

static void *import(enum kind kind, uint32_t handle)
{
	struct ibv_context *ctx = world.ctx[2];
	struct pd_ref ref;

	if (kind == K_PD)
		return ibv_import_pd(ctx, handle);
	if (kind == K_DM)
		return ibv_import_dm(ctx, handle);
	return pd_pick_in(2, 0, &ref) ? ibv_import_mr(ref.p, handle) : NULL;
}

static void check_import(const struct obj *o, const struct obj *target)
{
	const struct ibv_mr *mr = o->import.p;

	if (o->import.of == K_MR &&
	    (mr->rkey != target->mr.key || mr->length != target->mr.length))
		diverge("ibv_import_mr(): got key 0x%x and %lu bytes, want 0x%x and %lu",
			mr->rkey, (unsigned long)mr->length, target->mr.key,
			(unsigned long)target->mr.length);
}

/* KIND OBJECT HOW */
void op_import(const uint32_t *a)
{
	enum kind kind = import_kinds[a[0] % 3];
	struct obj *target = obj_pick_in(kind, 0, a[1]), *o, *now;
	uint32_t handle = target && a[2] % 4 ? target->handle :
					       handle_stale(a[1]);
	struct pd_ref ref;
	void *p;

	if (!obj_has_room(K_IMPORT) || (kind == K_MR && !pd_pick_in(2, 0, &ref))) {
		idle();
		return;
	}
	now = obj_by_handle(0, handle);
	errno = 0;
	p = import(kind, handle);
	say("import kind %d, handle %u", kind, handle);
	if (!expect_ptr("import", p, !now ? ENOENT : is_of(now, kind) ? 0 :
						     EINVAL))
		return;
	o = obj_new(K_IMPORT, 2);
	o->handle = handle;
	o->import.of = kind;
	o->import.p = p;
	o->import.target = now;
	check_import(o, now);
}

/* IMPORT */
void op_unimport(const uint32_t *a)
{
	struct obj *o = obj_pick(K_IMPORT, a[0]), *target;

	if (!o) {
		idle();
		return;
	}
	target = o->import.target;
	if (o->import.of == K_PD) {
		/* A CQ has no PD in the kernel: its parent domain stays. */
		ibv_unimport_pd(o->import.p);
	} else if (o->import.of == K_MR) {
		ibv_unimport_mr(o->import.p);
	} else {
		ibv_unimport_dm(o->import.p);
	}
	say("unimport of %lu", (unsigned long)target->born);
	result->good++;
	obj_end(o);
}

/* --- stale handles -------------------------------------------------------- */

static const struct {
	enum kind kind;
	uint16_t object, method, attr;
} destroys[] = {
	{ K_PD, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY,
	  UVERBS_ATTR_DESTROY_PD_HANDLE },
	{ K_MR, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY,
	  UVERBS_ATTR_DESTROY_MR_HANDLE },
	{ K_MW, UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY,
	  UVERBS_ATTR_DESTROY_MW_HANDLE },
	{ K_AH, UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY,
	  UVERBS_ATTR_DESTROY_AH_HANDLE },
	{ K_XRCD, UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY,
	  UVERBS_ATTR_DESTROY_XRCD_HANDLE },
	{ K_DM, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE,
	  UVERBS_ATTR_FREE_DM_HANDLE },
};

static int destroy(int fd, int i, uint32_t handle)
{
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attr;
	} cmd = {
		.hdr = {
			.length = sizeof(cmd), .object_id = destroys[i].object,
			.method_id = destroys[i].method, .num_attrs = 1,
			.driver_id = KEELDV_DRIVER_ID,
		},
		.attr = {
			.attr_id = destroys[i].attr, .data = handle,
			.flags = UVERBS_ATTR_F_MANDATORY,
		},
	};

	return ioctl(fd, RDMA_VERBS_IOCTL, &cmd) ? errno : 0;
}

/* KIND HANDLE CONTEXT: destroy an object by a handle that is not one of its kind. */
void op_stale(const uint32_t *a)
{
	int i = a[0] % COUNT(destroys), ctx = a[2] % CONTEXTS;
	uint32_t handle = handle_stale(a[1]);
	struct obj *now = obj_by_handle(file_of(ctx), handle);

	if (now && is_of(now, destroys[i].kind)) {
		idle();
		return;
	}
	say("destroy kind %d, handle %u", destroys[i].kind, handle);
	expect("destroy by a stale handle",
	       destroy(world.ctx[ctx]->cmd_fd, i, handle), now ? EINVAL : ENOENT);
	/* The refusal is the success of this step. */
	result->refused--;
	result->good++;
}
