/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Device memory: buffers, and their mapping in the process.
 *
 * The provider maps the whole buffer at its first access. The buffer stays
 * mapped until it is freed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <util/udma_barrier.h>

#include "keel.h"

int keel_cmd_query_dm(struct ibv_context *ibctx, uint32_t handle,
		      struct keel_uapi_dm_info *info)
{
	DECLARE_COMMAND_BUFFER(cmdb, UVERBS_OBJECT_DM, KEEL_METHOD_DM_QUERY, 2);

	fill_attr_in_obj(cmdb, KEEL_ATTR_DM_QUERY_HANDLE, handle);
	fill_attr_out_ptr(cmdb, KEEL_ATTR_DM_QUERY_RESP, info);

	return execute_ioctl(ibctx, cmdb);
}

static int keel_cmd_map_dm(struct keel_dm *dm, uint64_t offset,
			   struct keel_uapi_dm_map *resp, uint32_t *skip)
{
	DECLARE_COMMAND_BUFFER(cmdb, UVERBS_OBJECT_DM, KEEL_METHOD_DM_MAP, 4);

	fill_attr_in_obj(cmdb, KEEL_ATTR_DM_MAP_HANDLE, dm->vdm.handle);
	fill_attr_in_uint64(cmdb, KEEL_ATTR_DM_MAP_OFFSET, offset);
	fill_attr_out_ptr(cmdb, KEEL_ATTR_DM_MAP_RESP, resp);
	/* An older module knows no buffers that share a page. */
	attr_optional(fill_attr_out_ptr(cmdb, KEEL_ATTR_DM_MAP_SKIP, skip));

	return execute_ioctl(dm->vdm.dm.context, cmdb);
}

/*
 * Returns the page-aligned length of the mapping, or 0 if size_t overflows. A buffer that
 * shares its page does not cross the end of it.
 */
static size_t map_size(const struct keel_dm *dm)
{
	uint64_t page = sysconf(_SC_PAGESIZE);

	if (dm->length > SIZE_MAX - (page - 1))
		return 0;
	return (dm->length + page - 1) & ~(page - 1);
}

/* Map the extent at @offset into [@base, @base + @size) and advance @offset. */
static int map_extent(struct keel_dm *dm, char *base, size_t size,
		      size_t *offset)
{
	uint64_t page = sysconf(_SC_PAGESIZE);
	struct keel_uapi_dm_map stretch;
	uint32_t skip = 0;
	void *want, *got;
	int ret;

	ret = keel_cmd_map_dm(dm, *offset, &stretch, &skip);
	if (ret)
		return ret;

	/* Only a buffer that fits behind them in one page. */
	if (skip && (dm->length > page || skip > page - dm->length))
		return EPROTO;
	dm->skip = skip;

	/* MAP_FIXED replaces other mappings: stay inside the reserved range. */
	if (stretch.start != *offset || !stretch.length ||
	    stretch.length > size - *offset)
		return EPROTO;

	want = base + *offset;
	got = mmap(want, stretch.length, PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_FIXED, dm->vdm.dm.context->cmd_fd,
		   stretch.mmap_offset);
	if (got == MAP_FAILED)
		return errno;

	*offset += stretch.length;
	return 0;
}

static int map_buffer(struct keel_dm *dm, void **map)
{
	size_t size = map_size(dm), offset = 0;
	void *base;
	int ret;

	if (!size)
		return ENOMEM;

	/* Extents must be adjacent: reserve the address range first. */
	base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return errno;

	while (offset < size) {
		ret = map_extent(dm, base, size, &offset);
		if (ret) {
			munmap(base, size);
			return ret;
		}
	}

	*map = (char *)base + dm->skip;
	return 0;
}

int keel_dm_map(struct keel_dm *dm, void **map)
{
	int ret = 0;

	*map = atomic_load_explicit(&dm->map, memory_order_acquire);
	if (*map)
		return 0;

	pthread_mutex_lock(&dm->map_lock);
	*map = atomic_load_explicit(&dm->map, memory_order_relaxed);
	if (!*map) {
		ret = map_buffer(dm, map);
		if (!ret)
			atomic_store_explicit(&dm->map, *map,
					      memory_order_release);
	}
	pthread_mutex_unlock(&dm->map_lock);
	return ret;
}

static int check_access(struct keel_dm *dm, uint64_t offset, size_t length)
{
	struct keel_context *ctx = to_kctx(dm->vdm.dm.context);

	if (offset > dm->length || length > dm->length - offset)
		return EINVAL;
	if ((offset | length) & (ctx->dm_access_align - 1))
		return EINVAL;
	return 0;
}

/*
 * At device removal, the kernel replaces every page of the mapping. Copies then
 * succeed without reaching the device. So check before and after a copy.
 */
static int check_gone(const struct keel_dm *dm)
{
	return keel_is_gone(dm->vdm.dm.context) ? EIO : 0;
}

/* Return the address of @offset of the buffer in the mapping. */
static int find_byte(struct keel_dm *dm, uint64_t offset, size_t length,
		     void **byte)
{
	void *map;
	int ret;

	ret = check_access(dm, offset, length);
	if (!ret)
		ret = check_gone(dm);
	if (ret)
		return ret;
	ret = keel_dm_map(dm, &map);
	if (ret)
		return ret;

	*byte = (char *)map + offset;
	return 0;
}

/*
 * The mapping of a BAR is write-combining. Without a barrier, stores may remain
 * in a buffer of the processor, and loads may execute too early.
 */
static int keel_memcpy_to_dm(struct ibv_dm *ibdm, uint64_t offset,
			     const void *host_addr, size_t length)
{
	void *byte;
	int ret;

	ret = find_byte(to_kdm(ibdm), offset, length, &byte);
	if (ret || !length)
		return ret;
	memcpy(byte, host_addr, length);
	mmio_flush_writes();
	/* Removal that check_gone() does not see begins after these stores. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return check_gone(to_kdm(ibdm));
}

static int keel_memcpy_from_dm(void *host_addr, struct ibv_dm *ibdm,
			       uint64_t offset, size_t length)
{
	void *byte;
	int ret;

	ret = find_byte(to_kdm(ibdm), offset, length, &byte);
	if (ret || !length)
		return ret;
	udma_from_device_barrier();
	memcpy(host_addr, byte, length);
	return check_gone(to_kdm(ibdm));
}

static struct keel_dm *new_dm(void)
{
	struct keel_dm *dm;

	dm = calloc(1, sizeof(*dm));
	if (!dm)
		return NULL;

	pthread_mutex_init(&dm->map_lock, NULL);
	dm->vdm.dm.memcpy_to_dm = keel_memcpy_to_dm;
	dm->vdm.dm.memcpy_from_dm = keel_memcpy_from_dm;
	return dm;
}

static void destroy_dm(struct keel_dm *dm)
{
	if (dm->map)
		munmap((char *)dm->map - dm->skip, map_size(dm));
	pthread_mutex_destroy(&dm->map_lock);
	free(dm);
}

struct ibv_dm *keel_alloc_dm(struct ibv_context *ibctx,
			     struct ibv_alloc_dm_attr *attr)
{
	DECLARE_COMMAND_BUFFER(cmdb, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC, 1);
	struct keel_dm *dm;
	int ret;

	if (attr->comp_mask) {
		errno = EINVAL;
		return NULL;
	}

	dm = new_dm();
	if (!dm)
		return NULL;

	/* Each buffer of an older module has pages of its own. */
	attr_optional(fill_attr_in_uint32(cmdb, KEEL_ATTR_DM_ALLOC_FLAGS,
					  KEEL_DM_ALLOC_SHARES_PAGE));
	ret = ibv_cmd_alloc_dm(ibctx, attr, &dm->vdm, cmdb);
	if (ret) {
		destroy_dm(dm);
		errno = ret;
		return NULL;
	}

	dm->length = attr->length;
	return &dm->vdm.dm;
}

/*
 * The kernel frees the buffer first. If it refuses, the buffer and its mapping
 * must stay valid. If it succeeds, the mapping keeps the memory from being
 * allocated again until munmap().
 */
int keel_free_dm(struct ibv_dm *ibdm)
{
	struct keel_dm *dm = to_kdm(ibdm);
	int ret;

	ret = ibv_cmd_free_dm(&dm->vdm);
	if (ret == EBUSY)
		keel_report_busy(ibdm->context, &keel_holders_of_dm,
				 dm->vdm.handle);
	if (ret)
		return ret;

	destroy_dm(dm);
	return 0;
}

struct ibv_dm *keel_import_dm(struct ibv_context *ibctx, uint32_t handle)
{
	struct keel_uapi_dm_info info;
	struct keel_dm *dm;
	int ret;

	ret = keel_cmd_query_dm(ibctx, handle, &info);
	if (ret) {
		errno = ret;
		return NULL;
	}

	dm = new_dm();
	if (!dm)
		return NULL;

	dm->vdm.handle = handle;
	dm->vdm.dm.handle = handle;
	dm->vdm.dm.comp_mask = IBV_DM_MASK_HANDLE;
	dm->vdm.dm.context = ibctx;
	dm->length = info.length;
	return &dm->vdm.dm;
}

void keel_unimport_dm(struct ibv_dm *ibdm)
{
	destroy_dm(to_kdm(ibdm));
}
