// SPDX-License-Identifier: GPL-2.0
/*
 * Steps for device memory, memory regions, windows and address handles.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define PAGE		4096
#define ALL_ACCESS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
			 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | \
			 IBV_ACCESS_MW_BIND)
#define REMOTE_CHANGES	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* --- device memory -------------------------------------------------------- */

/* CONTEXT LENGTH ALIGN HOW */
void op_alloc_dm(const uint32_t *a)
{
	struct ibv_alloc_dm_attr attr = {
		.length = 1 + a[1] % (3 * PAGE), .log_align_req = a[2] % 14,
	};
	int ctx = a[0] % CONTEXTS, want = 0;
	struct ibv_dm *p;
	struct obj *o;

	if (!obj_has_room(K_DM)) {
		idle();
		return;
	}
	switch (a[3] % 24) {
	case 0:
		attr.length = 0;
		want = EINVAL;
		break;
	case 1:
		attr.length = 1ULL << 40;
		want = ENOMEM;
		break;
	case 2:
		attr.log_align_req = 50;
		want = EINVAL;
		break;
	case 3:
		attr.comp_mask = 1;
		want = EINVAL;
		break;
	}
	errno = 0;
	p = ibv_alloc_dm(world.ctx[ctx], &attr);
	if (!expect_ptr("ibv_alloc_dm()", p, want))
		return;
	o = obj_new_handle(K_DM, ctx, p->handle);
	o->dm.p = p;
	o->dm.length = attr.length;
	/* Device memory is zero at allocation. */
	o->dm.want = calloc(1, attr.length);
}

/* DM */
void op_free_dm(const uint32_t *a)
{
	struct obj *dm = obj_pick(K_DM, a[0]);

	if (!dm)
		idle();
	else if (expect("ibv_free_dm()", ibv_free_dm(dm->dm.p),
			obj_holders(dm) ? EBUSY : 0))
		obj_end(dm);
}

/* An import of a buffer works as long as the buffer has its handle. */
static struct ibv_dm *dm_name(const struct obj *dm, uint32_t n)
{
	struct obj *import = obj_pick(K_IMPORT, n);

	return n % 3 == 0 && import && import->import.of == K_DM &&
	       import->import.target == dm ? import->import.p : dm->dm.p;
}

/* DM OFFSET LENGTH HOW */
void op_copy_dm(const uint32_t *a)
{
	struct obj *dm = obj_pick(K_DM, a[0]);
	struct dice d = dice_of(a[1], a[2]);
	uint64_t off, len;
	uint8_t buf[512];
	uint32_t i;
	bool to;

	if (!dm) {
		idle();
		return;
	}
	off = a[3] % 7 ? a[1] % dm->dm.length : a[1] % (2 * PAGE);
	len = a[2] % sizeof(buf);
	if (off < dm->dm.length && len > dm->dm.length - off && a[3] % 7)
		len = dm->dm.length - off;
	to = a[3] & 1;
	for (i = 0; i < sizeof(buf); i++)
		buf[i] = dice_roll(&d, 256);
	if (!expect(to ? "ibv_memcpy_to_dm()" : "ibv_memcpy_from_dm()",
		    to ? ibv_memcpy_to_dm(dm_name(dm, a[3]), off, buf, len) :
			 ibv_memcpy_from_dm(buf, dm_name(dm, a[3]), off, len),
		    off > dm->dm.length || len > dm->dm.length - off ?
		    EINVAL : 0))
		return;
	if (to)
		memcpy(dm->dm.want + off, buf, len);
	else if (memcmp(dm->dm.want + off, buf, len))
		diverge("ibv_memcpy_from_dm(): the bytes differ");
	bytes_compare();
}

/* --- memory regions ------------------------------------------------------- */

/* Mostly all rights. */
static unsigned int roll_access(struct dice *d)
{
	static const unsigned int bits[] = {
		IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ,
		IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC,
		IBV_ACCESS_MW_BIND,
	};
	unsigned int access = ALL_ACCESS;
	int i;

	if (dice_chance(d, 2, 3))
		return access;
	for (i = 0; i < COUNT(bits); i++)
		if (dice_chance(d, 1, 4))
			access &= ~bits[i];
	return access;
}

/* Remote changes need local ones. */
static bool access_ok(unsigned int access)
{
	return !(access & REMOTE_CHANGES) || access & IBV_ACCESS_LOCAL_WRITE;
}

static uint64_t roll_length(struct dice *d)
{
	switch (dice_roll(d, 8)) {
	case 0:
		return 1 + dice_roll(d, 64);
	case 1:
		return 3 * PAGE + dice_roll(d, PAGE);
	default:
		return 256 + dice_roll(d, 2 * PAGE);
	}
}

static void set_mr(struct obj *o, const struct ibv_mr *p, unsigned int access)
{
	o->mr.key = p->lkey;
	o->mr.access = access;
	o->mr.odp = access & IBV_ACCESS_ON_DEMAND;
	if (p->lkey != p->rkey)
		diverge("lkey 0x%x and rkey 0x%x differ", p->lkey, p->rkey);
}

/* PD OFFSET DETAILS HOW */
void op_reg_mr(const uint32_t *a)
{
	struct dice d = dice_of(a[2], a[3]);
	unsigned int access = roll_access(&d);
	uint64_t off = a[1] % ARENA, len = roll_length(&d), iova;
	uint8_t *addr = arena + off;
	struct pd_ref ref;
	struct ibv_mr *p;
	struct obj *o;
	int want;

	if (!obj_has_room(K_MR) || !pd_pick(a[0], &ref)) {
		idle();
		return;
	}
	if (len > ARENA - off)
		len = ARENA - off;
	iova = (uintptr_t)addr;
	if (dice_chance(&d, 1, 8))
		access |= IBV_ACCESS_ON_DEMAND;
	if (dice_chance(&d, 1, 20))
		len = 0;
	if (dice_chance(&d, 1, 8))
		iova = (1 + dice_roll(&d, 100)) * (uint64_t)PAGE + off % PAGE;
	want = access_ok(access) ? ref.err : EINVAL;
	if (!want && dice_chance(&d, 1, 30) && len) {
		/* Nothing is mapped there. */
		addr = (uint8_t *)(uintptr_t)(64 * PAGE + off % PAGE);
		access &= ~IBV_ACCESS_ON_DEMAND;
		want = EFAULT;
	}
	errno = 0;
	p = ibv_reg_mr_iova(ref.p, addr, len, iova, access);
	if (!expect_ptr("ibv_reg_mr()", p, want))
		return;
	o = obj_new_handle(K_MR, ref.ctx, p->handle);
	o->mr.p = p;
	o->mr.iova = iova;
	o->mr.length = len;
	o->mr.mem.off = off;
	set_mr(o, p, access);
	obj_hold(o, ref.pd);
	say("mr %lu: key 0x%x, %lu bytes at %lu", (unsigned long)o->born,
	    o->mr.key, (unsigned long)len, (unsigned long)off);
}

/* DM PD OFFSET DETAILS */
void op_reg_dm_mr(const uint32_t *a)
{
	struct obj *dm = obj_pick(K_DM, a[0]), *o;
	struct dice d = dice_of(a[2], a[3]);
	unsigned int access = roll_access(&d);
	uint64_t off, len;
	struct pd_ref ref;
	struct ibv_mr *p;
	int want;

	if (!dm || !obj_has_room(K_DM_MR) || !pd_pick(a[1], &ref)) {
		idle();
		return;
	}
	off = dice_chance(&d, 1, 2) ? 0 : a[2] % dm->dm.length;
	len = dice_chance(&d, 1, 10) ? dice_roll(&d, 3 * PAGE) :
				       dm->dm.length - off;
	if (!dice_chance(&d, 1, 12))
		access |= IBV_ACCESS_ZERO_BASED;
	want = ref.err;
	if (!(access & IBV_ACCESS_ZERO_BASED) || !access_ok(access) ||
	    len > dm->dm.length - off || dm->ctx != ref.ctx)
		want = EINVAL;
	errno = 0;
	p = ibv_reg_dm_mr(ref.p, dm->dm.p, off, len, access);
	if (!expect_ptr("ibv_reg_dm_mr()", p, want))
		return;
	o = obj_new_handle(K_DM_MR, ref.ctx, p->handle);
	o->mr.p = p;
	o->mr.length = len;
	o->mr.mem.dm = dm;
	o->mr.mem.off = off;
	set_mr(o, p, access);
	obj_hold(o, ref.pd);
	obj_hold(o, dm);
}

/* A region is busy if a window of the same file is bound to it, by a QP of this file. */
static bool has_windows(const struct obj *mr)
{
	int i;

	for (i = 0; i < world.n[K_MW]; i++)
		if (world.live[K_MW][i]->mw.mr == mr && world.live[K_MW][i]->mw.ours)
			return true;
	return false;
}

/* Other windows lose their region. */
static void unbind_all(const struct obj *mr)
{
	int i;

	for (i = 0; i < world.n[K_MW]; i++)
		if (world.live[K_MW][i]->mw.mr == mr)
			window_unbind(world.live[K_MW][i]);
}

static struct obj *any_mr(uint32_t n)
{
	return obj_pick(n % 4 ? K_MR : K_DM_MR, n / 4);
}

/* MR */
void op_dereg_mr(const uint32_t *a)
{
	struct obj *mr = any_mr(a[0]);

	if (!mr || wire_uses(mr->mr.key)) {
		idle();
		return;
	}
	say("mr %lu, key 0x%x", (unsigned long)mr->born, mr->mr.key);
	if (!expect("ibv_dereg_mr()", ibv_dereg_mr(mr->mr.p),
		    has_windows(mr) ? EBUSY : 0))
		return;
	unbind_all(mr);
	obj_end(mr);
}

struct change {
	int flags;
	struct pd_ref pd;
	uint64_t off, len;
	unsigned int access;
};

static int rereg_errno(const struct obj *mr, const struct change *c)
{
	unsigned int access = c->flags & IBV_REREG_MR_CHANGE_ACCESS ?
			      c->access : mr->mr.access;

	if (!c->flags || (c->flags & IBV_REREG_MR_CHANGE_TRANSLATION &&
			  !c->len))
		return EINVAL;
	if (c->flags & IBV_REREG_MR_CHANGE_PD && c->pd.ctx != mr->ctx)
		return EINVAL;
	if (!access_ok(access) || mr->kind == K_DM_MR)
		return EINVAL;
	if (c->flags & IBV_REREG_MR_CHANGE_PD && c->pd.err)
		return c->pd.err;
	return has_windows(mr) ? EBUSY : 0;
}

/* The region is a new object with the same key. */
static void reregister(struct obj *mr, const struct change *c)
{
	if (c->flags & IBV_REREG_MR_CHANGE_PD)
		mr->holds[0] = c->pd.pd;
	if (c->flags & IBV_REREG_MR_CHANGE_ACCESS) {
		mr->mr.access = c->access;
		mr->mr.odp = c->access & IBV_ACCESS_ON_DEMAND;
	}
	if (c->flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->mr.mem.off = c->off;
		mr->mr.length = c->len;
		mr->mr.iova = (uintptr_t)arena + c->off;
	}
	unbind_all(mr);
	mr->born = ++world.births;
	mr->id = 0;
	if (mr->mr.p->lkey != mr->mr.key || mr->mr.p->rkey != mr->mr.key)
		diverge("ibv_rereg_mr(): the key has changed");
}

/* MR PD OFFSET DETAILS */
void op_rereg_mr(const uint32_t *a)
{
	struct obj *mr = any_mr(a[0]);
	struct dice d = dice_of(a[2], a[3]);
	struct change c = { 0 };
	int ret;

	if (!mr || wire_uses(mr->mr.key) ||
	    !(pd_pick_in(mr->ctx, a[1], &c.pd) || pd_pick(a[1], &c.pd))) {
		idle();
		return;
	}
	if (dice_chance(&d, 1, 10))
		pd_pick(a[1], &c.pd);
	c.flags = dice_roll(&d, 8);
	c.access = c.flags & IBV_REREG_MR_CHANGE_ACCESS ? roll_access(&d) : 0;
	if (c.access && dice_chance(&d, 1, 8))
		c.access |= IBV_ACCESS_ON_DEMAND;
	c.off = a[2] % ARENA;
	c.len = roll_length(&d);
	if (c.len > ARENA - c.off)
		c.len = ARENA - c.off;
	say("mr %lu, key 0x%x, flags %d, access 0x%x", (unsigned long)mr->born,
	    mr->mr.key, c.flags, c.access);
	errno = 0;
	ret = ibv_rereg_mr(mr->mr.p, c.flags, c.pd.p, arena + c.off, c.len,
			   c.access);
	if (expect("ibv_rereg_mr()", ret ? errno ? errno : -1 : 0,
		   rereg_errno(mr, &c)))
		reregister(mr, &c);
}

/* --- windows -------------------------------------------------------------- */

/* PD TYPE */
void op_alloc_mw(const uint32_t *a)
{
	struct pd_ref ref;
	struct ibv_mw *p;
	struct obj *o;

	if (!obj_has_room(K_MW) || !pd_pick(a[0], &ref)) {
		idle();
		return;
	}
	errno = 0;
	p = ibv_alloc_mw(ref.p, a[1] % 3 ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
	if (!expect_ptr("ibv_alloc_mw()", p, ref.err))
		return;
	o = obj_new_handle(K_MW, ref.ctx, p->handle);
	o->mw.p = p;
	o->mw.key = p->rkey;
	obj_hold(o, ref.pd);
}

/* MW */
void op_dealloc_mw(const uint32_t *a)
{
	struct obj *mw = obj_pick(K_MW, a[0]);

	if (!mw || wire_uses(mw->mw.key))
		idle();
	else if (expect("ibv_dealloc_mw()", ibv_dealloc_mw(mw->mw.p), 0))
		obj_end(mw);
}

/* --- address handles ------------------------------------------------------ */

/* PD HOW */
void op_create_ah(const uint32_t *a)
{
	struct ibv_ah_attr attr = {
		.is_global = a[1] % 12 != 11, .port_num = 1,
		.grh.dgid = world.gid,
	};
	struct pd_ref ref;
	struct ibv_ah *p;
	struct obj *o;

	if (!obj_has_room(K_AH) || !pd_pick(a[0], &ref)) {
		idle();
		return;
	}
	errno = 0;
	p = ibv_create_ah(ref.p, &attr);
	if (!expect_ptr("ibv_create_ah()", p, ref.err ? ref.err :
			attr.is_global ? 0 : EINVAL))
		return;
	o = obj_new_handle(K_AH, ref.ctx, p->handle);
	o->ah.p = p;
	o->ah.domain = ref.pd->pd.domain;
	obj_hold(o, ref.pd);
}

/* AH */
void op_destroy_ah(const uint32_t *a)
{
	struct obj *ah = obj_pick(K_AH, a[0]);

	if (!ah)
		idle();
	else if (expect("ibv_destroy_ah()", ibv_destroy_ah(ah->ah.p), 0))
		obj_end(ah);
}

/* OFFSET LENGTH: the application writes to its own memory. */
void op_scribble(const uint32_t *a)
{
	struct dice d = dice_of(a[2], a[3]);
	uint32_t len = a[1] % 512;

	bytes_write(a[0] % (ARENA - len), len, &d);
	result->good++;
}
