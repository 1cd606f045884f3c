// SPDX-License-Identifier: GPL-2.0
/*
 * dma-bufs as memory: which ranges of which dma-bufs keel maps, and that it drops what
 * it took. The exporter counts mappings and accesses, and can refuse them.
 */
#include <kunit/test.h>
#include <linux/dma-buf.h>
#include <linux/err.h>
#include <linux/fcntl.h>
#include <linux/fs.h>
#include <linux/iosys-map.h>
#include <linux/limits.h>

#include "compat.h"
#include "keel_copy.h"

#define BYTES	(2 * PAGE_SIZE)

/**
 * struct map_case - a call of keel_dmabuf_map()
 * @desc: of the case
 * @mode: of the file of the dma-buf
 * @iomem: the exporter maps I/O space
 * @begin: 0, or the error of an access that begins
 * @end: 0, or the error of an access that ends
 * @offset: first byte
 * @length: number of bytes
 * @write: the bytes will be written
 * @ret: the result
 */
struct map_case {
	const char *desc;
	int mode;
	bool iomem;
	int begin;
	int end;
	u64 offset;
	u64 length;
	bool write;
	int ret;
};

static const struct map_case map_cases[] = {
	{ "all, to write", O_RDWR, .length = BYTES, .write = true },
	{ "all, to read", O_RDWR, .length = BYTES },
	{ "the last byte, to write", O_RDWR, .offset = BYTES - 1, .length = 1,
	  .write = true },
	{ "a read-only file, to read", O_RDONLY, .length = BYTES },
	{ "a read-only file, to write", O_RDONLY, .length = BYTES, .write = true,
	  .ret = -EACCES },
	{ "a write-only file, to write", O_WRONLY, .length = BYTES, .write = true,
	  .ret = -EACCES },
	{ "a write-only file, to read", O_WRONLY, .length = BYTES, .ret = -EACCES },
	{ "no bytes", O_RDWR, .ret = -EINVAL },
	{ "no bytes, at the end", O_RDWR, .offset = BYTES, .ret = -EINVAL },
	{ "a byte at the end", O_RDWR, .offset = BYTES, .length = 1, .ret = -EINVAL },
	{ "a byte behind the end", O_RDWR, .offset = BYTES + 1, .length = 1,
	  .ret = -EINVAL },
	{ "a byte too many", O_RDWR, .length = BYTES + 1, .ret = -EINVAL },
	{ "a byte too far", O_RDWR, .offset = 1, .length = BYTES, .ret = -EINVAL },
	{ "a range that wraps", O_RDWR, .offset = 1, .length = U64_MAX, .ret = -EINVAL },
	{ "an offset that wraps", O_RDWR, .offset = U64_MAX, .length = 2,
	  .ret = -EINVAL },
	{ "an empty range of a write-only file", O_WRONLY, .ret = -EINVAL },
	{ "I/O space", O_RDWR, .iomem = true, .length = BYTES, .ret = -EOPNOTSUPP },
	{ "an exporter that refuses access", O_RDWR, .begin = -ENXIO, .length = BYTES,
	  .ret = -ENXIO },
	{ "an exporter that loses access", O_RDWR, .end = -EIO, .length = BYTES,
	  .ret = -EIO },
};
KUNIT_ARRAY_PARAM_DESC(map, map_cases, desc);

/**
 * struct exporter - a dma-buf, its mappings and its accesses
 * @c: what the exporter does
 * @dmabuf: the dma-buf
 * @buf: its bytes
 * @maps: mappings that exist
 * @began: accesses that began
 * @open: accesses that have not ended
 * @dir: direction of the last access
 */
struct exporter {
	const struct map_case *c;
	struct dma_buf *dmabuf;
	u8 buf[BYTES];
	int maps;
	int began;
	int open;
	enum dma_data_direction dir;
};

static int exporter_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct exporter *e = dmabuf->priv;

	if (e->c->iomem)
		iosys_map_set_vaddr_iomem(map, (void __force __iomem *)e->buf);
	else
		iosys_map_set_vaddr(map, e->buf);
	e->maps++;
	return 0;
}

static void exporter_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct exporter *e = dmabuf->priv;

	e->maps--;
}

static int exporter_begin(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	struct exporter *e = dmabuf->priv;

	if (e->c->begin)
		return e->c->begin;
	e->began++;
	e->open++;
	e->dir = dir;
	return 0;
}

static int exporter_end(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	struct exporter *e = dmabuf->priv;

	e->open--;
	return e->c->end;
}

static struct sg_table *exporter_map(struct dma_buf_attachment *attach,
				     enum dma_data_direction dir)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static void exporter_unmap(struct dma_buf_attachment *attach,
			   struct sg_table *sgt, enum dma_data_direction dir)
{
}

static void exporter_release(struct dma_buf *dmabuf)
{
}

static const struct dma_buf_ops exporter_ops = {
	.begin_cpu_access = exporter_begin,
	.end_cpu_access = exporter_end,
	.map_dma_buf = exporter_map,
	.unmap_dma_buf = exporter_unmap,
	.release = exporter_release,
	.vmap = exporter_vmap,
	.vunmap = exporter_vunmap,
};

static int dmabuf_map_init(struct kunit *test)
{
	struct exporter *e = kunit_kzalloc(test, sizeof(*e), GFP_KERNEL);
	DEFINE_DMA_BUF_EXPORT_INFO(info);

	if (!e)
		return -ENOMEM;
	e->c = test->param_value;
	info.ops = &exporter_ops;
	info.size = BYTES;
	info.flags = e->c->mode;
	info.priv = e;
	e->dmabuf = dma_buf_export(&info);
	if (IS_ERR(e->dmabuf))
		return PTR_ERR(e->dmabuf);
	test->priv = e;
	return 0;
}

static void dmabuf_map_exit(struct kunit *test)
{
	struct exporter *e = test->priv;

	if (e)
		dma_buf_put(e->dmabuf);
}

/* A mapped dma-buf: the memory is that of the exporter, and keel has one reference. */
static void mapped(struct kunit *test, struct exporter *e, const struct keel_mem *mem)
{
	const struct map_case *c = e->c;

	KUNIT_EXPECT_EQ(test, KEEL_MEM_DMABUF, mem->type);
	KUNIT_EXPECT_PTR_EQ(test, e->dmabuf, mem->dmabuf);
	KUNIT_EXPECT_EQ(test, (uintptr_t)e->buf + c->offset, mem->start);
	KUNIT_EXPECT_EQ(test, 1, e->maps);
	KUNIT_EXPECT_EQ(test, 2, file_count(e->dmabuf->file));
	/* The first access is of all kinds that the file allows. */
	KUNIT_EXPECT_EQ(test, 1, e->began);
	KUNIT_EXPECT_EQ(test, c->mode == O_RDWR ? DMA_BIDIRECTIONAL : DMA_FROM_DEVICE,
			e->dir);
}

/* PDM-3, DEV-4: keel maps the range, or refuses it and has nothing of the dma-buf. */
static void pdm_3_dev_4_dmabuf_map(struct kunit *test)
{
	struct exporter *e = test->priv;
	const struct map_case *c = e->c;
	struct keel_mem mem = {};
	int ret;

	/* On success, this reference passes to @mem. */
	get_dma_buf(e->dmabuf);
	ret = keel_dmabuf_map(&mem, e->dmabuf, c->offset, c->length, c->write);
	KUNIT_EXPECT_EQ(test, c->ret, ret);
	KUNIT_EXPECT_EQ(test, 0, e->open);
	if (ret) {
		KUNIT_EXPECT_NULL(test, mem.dmabuf);
		dma_buf_put(e->dmabuf);
	} else {
		mapped(test, e, &mem);
		keel_dmabuf_unmap(&mem, c->offset);
	}
	KUNIT_EXPECT_EQ(test, 0, e->maps);
	KUNIT_EXPECT_EQ(test, 1, file_count(e->dmabuf->file));
}

static struct kunit_case dmabuf_map_cases[] = {
	KUNIT_CASE_PARAM(pdm_3_dev_4_dmabuf_map, map_gen_params),
	{}
};

static struct kunit_suite dmabuf_map_suite = {
	.name = "keel_dmabuf_map",
	.init = dmabuf_map_init,
	.exit = dmabuf_map_exit,
	.test_cases = dmabuf_map_cases,
};
kunit_test_suite(dmabuf_map_suite);
