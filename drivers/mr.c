// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions: ibv_reg_mr() and ibv_reg_dm_mr(). Either pins what it opens
 * for as long as anybody has a reference: the pages of the program, or the
 * buffer of device memory.
 */
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "keel.h"

/**
 * struct keel_mr - a memory region
 * @obj: the object; holds the PD, and the buffer if it is of device memory
 * @key: its lkey and rkey, which are one
 * @umem: pinned pages of user memory, or NULL
 * @dm: buffer of device memory, or NULL
 * @dm_offset: first byte of it that belongs to the region
 */
struct keel_mr {
	struct keel_obj obj;
	struct keel_key key;
	struct ib_umem *umem;
	struct keel_dm *dm;
	u64 dm_offset;
};

struct keel_ib_mr {
	struct ib_mr ib;
	struct keel_mr *mr;
};

static struct keel_mr *to_kmr(struct ib_mr *ib)
{
	return container_of(ib, struct keel_ib_mr, ib)->mr;
}

static void keel_mr_release(struct keel_obj *obj)
{
	struct keel_mr *mr = container_of(obj, struct keel_mr, obj);

	if (mr->umem)
		ib_umem_release(mr->umem);
	kfree_rcu(mr, obj.rcu);
}

static void keel_mr_describe(const struct keel_obj *obj, struct seq_file *m)
{
	const struct keel_mr *mr = container_of(obj, struct keel_mr, obj);

	seq_printf(m, " key 0x%08x length %llu", mr->key.key, mr->key.length);
}

static const struct keel_obj_ops keel_mr_obj_ops = {
	.describe = keel_mr_describe,
	.release = keel_mr_release,
};

/*
 * Give a complete region its number, its key and its struct ib_mr. Takes @mr
 * over: on failure it is freed with all it owns.
 */
static struct ib_mr *keel_mr_publish(struct keel_dev *kdev, struct keel_pd *pd,
				     struct keel_mr *mr)
{
	struct keel_ib_mr *ibmr = kzalloc_obj(*ibmr);
	int ret = -ENOMEM;

	if (!ibmr)
		goto err_mr;
	mr->key.domain = pd->domain->obj.id;
	mr->key.obj = &mr->obj;
	ret = keel_obj_add(&kdev->reg, &mr->obj, mr->dm ? KEEL_DM_MR : KEEL_MR,
			   &keel_mr_obj_ops, &pd->obj,
			   mr->dm ? &mr->dm->obj : NULL);
	if (ret)
		goto err_mr;
	ret = keel_key_insert(&kdev->keys, &mr->key);
	if (ret) {
		keel_obj_close(&mr->obj);
		goto err_ibmr;
	}
	ibmr->mr = mr;
	ibmr->ib.lkey = mr->key.key;
	ibmr->ib.rkey = mr->key.key;
	ibmr->ib.iova = mr->key.iova;
	ibmr->ib.length = mr->key.length;
	return &ibmr->ib;

err_mr:
	if (mr->umem)
		ib_umem_release(mr->umem);
	kfree(mr);
err_ibmr:
	kfree(ibmr);
	return ERR_PTR(ret);
}

static struct ib_mr *keel_reg_user_mr(struct ib_pd *ibpd, u64 start,
				      u64 length, u64 iova, int access,
				      KEEL_DMAH_PARAM struct ib_udata *udata)
{
	struct keel_dev *kdev = to_kdev(ibpd->device);
	struct keel_mr *mr;
	int ret;

	if (KEEL_DMAH_SET)
		return ERR_PTR(-EOPNOTSUPP);
	ret = ib_no_udata_io(udata);
	if (ret)
		return ERR_PTR(ret);
	/* Programs count from iova: the last byte must have an address too. */
	if (length > kdev->ib.attrs.max_mr_size ||
	    (length && iova + (length - 1) < iova))
		return ERR_PTR(-EINVAL);
	mr = kzalloc_obj(*mr);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->key.access = access;
	mr->key.iova = iova;
	mr->key.length = length;
	mr->umem = ib_umem_get_va(&kdev->ib, start, length, access);
	if (IS_ERR(mr->umem)) {
		ret = PTR_ERR(mr->umem);
		kfree(mr);
		return ERR_PTR(ret);
	}
	return keel_mr_publish(kdev, to_kpd(ibpd), mr);
}

static struct ib_mr *keel_reg_dm_mr(struct ib_pd *ibpd, struct ib_dm *ibdm,
				    struct ib_dm_mr_attr *attr,
				    struct uverbs_attr_bundle *attrs)
{
	struct keel_dev *kdev = to_kdev(ibpd->device);
	struct keel_dm *dm = to_kdm(ibdm);
	struct keel_mr *mr;

	/* The core has checked this against its own copy of the length. */
	if (attr->offset > dm->length || attr->length > dm->length - attr->offset)
		return ERR_PTR(-EINVAL);
	mr = kzalloc_obj(*mr);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->key.access = attr->access_flags;
	mr->key.length = attr->length;
	mr->dm = dm;
	mr->dm_offset = attr->offset;
	return keel_mr_publish(kdev, to_kpd(ibpd), mr);
}

static int keel_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct keel_dev *kdev = to_kdev(ibmr->device);
	struct keel_ib_mr *wrap = container_of(ibmr, struct keel_ib_mr, ib);

	/* From here on the key opens nothing, though users may be about. */
	keel_key_remove(&kdev->keys, &wrap->mr->key);
	keel_obj_close(&wrap->mr->obj);
	kfree(wrap);
	return 0;
}

static int keel_fill_res_mr_entry(struct sk_buff *msg, struct ib_mr *ibmr)
{
	const struct keel_mr *mr = to_kmr(ibmr);
	struct nlattr *table;

	table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (!table)
		return -EMSGSIZE;
	if (rdma_nl_put_driver_u32(msg, "id", mr->obj.id) ||
	    rdma_nl_put_driver_u32(msg, "domain", mr->key.domain) ||
	    rdma_nl_put_driver_string(msg, "memory", mr->dm ? "dm" : "user")) {
		nla_nest_cancel(msg, table);
		return -EMSGSIZE;
	}
	nla_nest_end(msg, table);
	return 0;
}

const struct ib_device_ops keel_mr_ops = {
	.dereg_mr = keel_dereg_mr,
	.fill_res_mr_entry = keel_fill_res_mr_entry,
	.reg_dm_mr = keel_reg_dm_mr,
	.reg_user_mr = keel_reg_user_mr,
};
