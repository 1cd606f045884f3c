// SPDX-License-Identifier: GPL-2.0
/*
 * Mapping device memory: KEEL_METHOD_DM_MAP and mmap() on the uverbs file.
 *
 * A buffer is mapped in physically contiguous extents, with one mmap entry of
 * ib_core for each. ib_core tracks the mappings. It zaps them at device
 * removal, and calls keel_mmap_free() when an entry is removed and its last
 * mapping is closed. Until then, the entry's reference on the buffer keeps its
 * pages from being allocated again. mmap() maps the whole extent: a page
 * fault comes after a zap only, and ib_core handles it.
 *
 * A small buffer is mapped with its page, which other buffers of its context share.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <rdma/uverbs_std_types.h>

#include "keel.h"
#include "keel_dm.h"
#include "keel_removal.h"

#define KEEL_STATE_PGOFF	(KEEL_STATE_OFFSET >> PAGE_SHIFT)

/**
 * struct keel_dm_map - a contiguous extent of a buffer with an mmap offset
 * @entry: the mmap entry of ib_core
 * @node: in &keel_dm.maps
 * @dm: the buffer, with a reference
 * @seg: the extent
 */
struct keel_dm_map {
	struct rdma_user_mmap_entry entry;
	struct list_head node;
	struct keel_dm *dm;
	struct keel_aperture_seg seg;
};

static struct keel_dm_map *keel_dm_map_find(struct keel_dm *dm, u64 at)
	__must_hold(&dm->lock)
{
	struct keel_dm_map *map;

	lockdep_assert_held(&dm->lock);
	list_for_each_entry(map, &dm->maps, node)
		if (at >= map->seg.start && at - map->seg.start < map->seg.len)
			return map;
	return NULL;
}

/* Get the map of the extent at offset @off, and create it on first use. */
static struct keel_dm_map *keel_dm_map_get(struct keel_dm *dm,
					   struct ib_ucontext *context, u64 off)
	__must_hold(&dm->lock)
{
	u32 skip = offset_in_page(dm->start);
	struct keel_dm_map *map;
	int ret;

	lockdep_assert_held(&dm->lock);
	map = keel_dm_map_find(dm, dm->start + off);
	if (map)
		return map;
	map = kzalloc_obj(*map, GFP_KERNEL_ACCOUNT);
	if (!map)
		return ERR_PTR(-ENOMEM);
	map->dm = dm;
	/* From the start of the page, which the buffer may share. */
	keel_aperture_segment(dm->ap, dm->start - skip, dm->length + skip, off + skip,
			      &map->seg);
	/* The first page is the state page of removal.c. */
	ret = rdma_user_mmap_entry_insert_range(context, &map->entry,
						map->seg.len,
						KEEL_STATE_PGOFF + 1, U32_MAX);
	if (ret) {
		kfree(map);
		return ERR_PTR(ret);
	}
	keel_obj_get(&dm->obj);
	list_add(&map->node, &dm->maps);
	return map;
}

/**
 * keel_dm_map_seg() - get the extent of the aperture that an mmap entry maps
 * @entry: the mmap entry; the caller has a reference
 */
const struct keel_aperture_seg *
keel_dm_map_seg(struct rdma_user_mmap_entry *entry)
{
	return &container_of(entry, struct keel_dm_map, entry)->seg;
}

/**
 * keel_dm_unmap() - prevent new mappings of a buffer
 * @dm: the buffer, whose uobject is being destroyed
 *
 * Existing mappings and the bytes behind them stay until the process unmaps
 * them or exits. No importer uses an export of the buffer when this returns.
 *
 * Context: may sleep, until all importers have unmapped it.
 */
void keel_dm_unmap(struct keel_dm *dm)
{
	struct keel_dm_map *map, *next;
	LIST_HEAD(maps);

	/* Removing an entry may free it, and drop the buffer. */
	scoped_guard(mutex, &dm->lock)
		list_splice_init(&dm->maps, &maps);
	list_for_each_entry_safe(map, next, &maps, node) {
		list_del_init(&map->node);
		rdma_user_mmap_entry_remove(&map->entry);
	}
}

static int keel_mmap(struct ib_ucontext *context, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *entry;
	struct keel_dm_map *map;
	int ret;

	if (vma->vm_pgoff == KEEL_STATE_PGOFF)
		return keel_state_mmap(to_kdev(context->device), vma);
	/* Fails for private mappings, unknown offsets and any other length. */
	entry = rdma_user_mmap_entry_get(context, vma);
	if (!entry)
		return -EINVAL;
	map = container_of(entry, struct keel_dm_map, entry);
	/* A context has one file, so the value never changes. */
	WRITE_ONCE(to_kctx(context)->mapping, vma->vm_file->f_mapping);
	ret = rdma_user_mmap_io(context, vma, map->seg.pfn, map->seg.len,
				map->dm->ap->ops->prot(vma->vm_page_prot),
				entry);
	/* The vma now has its own reference. */
	rdma_user_mmap_entry_put(entry);
	return ret;
}

static void keel_mmap_free(struct rdma_user_mmap_entry *entry)
{
	struct keel_dm_map *map = container_of(entry, struct keel_dm_map, entry);

	keel_obj_put(&map->dm->obj);
	kfree(map);
}

/* Without the attribute, the caller would use the bytes of other buffers. */
static int keel_dm_map_respond_skip(struct uverbs_attr_bundle *attrs,
				    const struct keel_dm *dm, u32 skip)
{
	if (!uverbs_attr_is_valid(attrs, KEEL_ATTR_DM_MAP_SKIP))
		return dm->page ? -EOPNOTSUPP : 0;
	return uverbs_copy_to(attrs, KEEL_ATTR_DM_MAP_SKIP, &skip, sizeof(skip));
}

static_assert(sizeof(struct keel_uapi_dm_map) == 32);

static int UVERBS_HANDLER(KEEL_METHOD_DM_MAP)(struct uverbs_attr_bundle *attrs)
{
	struct ib_dm *ibdm = uverbs_attr_get_obj(attrs,
						 KEEL_ATTR_DM_MAP_HANDLE);
	struct keel_uapi_dm_map resp = {};
	struct keel_dm *dm = to_kdm(ibdm);
	u32 skip = offset_in_page(dm->start);
	struct keel_dm_map *map;
	u64 off;
	int ret;

	ret = uverbs_copy_from(&off, attrs, KEEL_ATTR_DM_MAP_OFFSET);
	if (ret)
		return ret;
	if (off >= dm->length)
		return -EINVAL;
	ret = keel_dm_map_respond_skip(attrs, dm, skip);
	if (ret)
		return ret;
	scoped_guard(mutex, &dm->lock) {
		map = keel_dm_map_get(dm, attrs->context, off);
		if (IS_ERR(map))
			return PTR_ERR(map);
		/* Only destroy removes it: the uobject lock excludes that. */
		resp.mmap_offset = rdma_user_mmap_get_offset(&map->entry);
		resp.length = map->seg.len;
		resp.start = map->seg.start + skip - dm->start;
	}
	return uverbs_copy_to_struct_or_zero(attrs, KEEL_ATTR_DM_MAP_RESP,
					     &resp, sizeof(resp));
}

DECLARE_UVERBS_NAMED_METHOD(
	KEEL_METHOD_DM_MAP,
	UVERBS_ATTR_IDR(KEEL_ATTR_DM_MAP_HANDLE, UVERBS_OBJECT_DM,
			UVERBS_ACCESS_READ, UA_MANDATORY),
	UVERBS_ATTR_PTR_IN(KEEL_ATTR_DM_MAP_OFFSET, UVERBS_ATTR_TYPE(u64),
			   UA_MANDATORY),
	UVERBS_ATTR_PTR_OUT(KEEL_ATTR_DM_MAP_RESP,
			    UVERBS_ATTR_STRUCT(struct keel_uapi_dm_map,
					       reserved),
			    UA_MANDATORY),
	UVERBS_ATTR_PTR_OUT(KEEL_ATTR_DM_MAP_SKIP, UVERBS_ATTR_TYPE(u32),
			    UA_OPTIONAL));

ADD_UVERBS_METHODS(keel_dm_map_methods, UVERBS_OBJECT_DM,
		   &UVERBS_METHOD(KEEL_METHOD_DM_MAP));

const struct uapi_definition keel_dm_map_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DM, &keel_dm_map_methods),
	{},
};

const struct ib_device_ops keel_dm_map_ops = {
	.mmap = keel_mmap,
	.mmap_free = keel_mmap_free,
};
