/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ib_uverbs exports device memory behind a BAR as a dma-buf, which the tests
 * register again. libibverbs has no call for the export, so the tests call the
 * ioctl.
 */
#ifndef EXPORT_H
#define EXPORT_H

#include "domain.h"
#include "qp.h"
#include "raw.h"
#include "t.h"

/* Values of rdma/ib_user_ioctl_cmds.h in Linux 7.2. */
#define OBJECT_DMABUF		18
#define METHOD_DMABUF_ALLOC	0
#define ATTR_DMABUF_HANDLE	0
#define ATTR_DMABUF_PGOFF	1

#define PAGE	4096
#define PAGES	4
#define SIZE	(PAGES * PAGE)
/* The remote address of the first byte of the second page. */
#define IOVA	0x700000001000ULL
#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |	\
		 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static struct ibv_pd *pd, *parent_pd;
static struct ibv_mr *mine;
static unsigned char user[SIZE] __attribute__((aligned(PAGE)));

static inline void set_up(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 5 * PAGE };

	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	parent_pd = parent_new(pd, NULL);
	/* No buffer of these tests starts at the start of the BAR. */
	MUST(ibv_alloc_dm(pd->context, &attr));
	mine = MUST(ibv_reg_mr(pd, user, SIZE, RIGHTS));
}

static inline struct ibv_dm *dm_new(void)
{
	struct ibv_alloc_dm_attr attr = { .length = SIZE };
	struct ibv_dm *dm = MUST(ibv_alloc_dm(pd->context, &attr));
	char bytes[SIZE];

	memset(bytes, 'd', SIZE);
	CHECK_OK(ibv_memcpy_to_dm(dm, 0, bytes, SIZE));
	return dm;
}

static inline void check_dm(struct ibv_dm *dm, uint64_t off, int byte,
			    size_t len)
{
	char bytes[SIZE];

	CHECK_OK(ibv_memcpy_from_dm(bytes, dm, off, len));
	CHECK_ALL(bytes, byte, len);
}

/* Return 0 or errno; *fd is the dma-buf. */
static inline int try_export(int cmd_fd, uint64_t pgoff, int *fd)
{
	struct ib_uverbs_attr *attr;
	struct raw_cmd cmd;
	int ret;

	raw_init(&cmd, OBJECT_DMABUF, METHOD_DMABUF_ALLOC);
	attr = raw_new(&cmd, ATTR_DMABUF_HANDLE);
	raw_in(&cmd, ATTR_DMABUF_PGOFF, &pgoff, sizeof(pgoff));
	ret = raw_run(cmd_fd, &cmd);
	*fd = ret ? -1 : (int)attr->data;
	return ret;
}

static inline uint64_t pgoff_of(struct ibv_dm *dm)
{
	struct keel_uapi_dm_map map;

	CHECK_OK(raw_dm_map(dm->context->cmd_fd, dm->handle, 0, &map));
	CHECK_EQ(map.length, SIZE);
	return map.mmap_offset / PAGE;
}

static inline int export(struct ibv_dm *dm)
{
	int fd;

	CHECK_OK(try_export(dm->context->cmd_fd, pgoff_of(dm), &fd));
	return fd;
}

/* Register all pages but the first, through the parent domain. */
static inline struct ibv_mr *reg(int fd)
{
	return MUST(ibv_reg_dmabuf_mr(parent_pd, PAGE, SIZE - PAGE, IOVA, fd,
				      RIGHTS));
}

static inline struct mem in_user(uint32_t len)
{
	return (struct mem){ user, len, mine->lkey };
}

#endif /* EXPORT_H */
