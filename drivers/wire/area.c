// SPDX-License-Identifier: GPL-2.0
/*
 * Memory for chunks: data that is too long for a frame. Each side of a connection has some that
 * the other side writes to by RDMA writes, and as much for what it writes itself. It is made
 * of parts that an allocator usually has although memory is fragmented, and mapped in one piece.
 */
#include <linux/highmem.h>
#include <linux/random.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "keel_cast.h"
#include "keel_conn.h"

static void keel_area_free(struct keel_area *area)
{
	int i;

	vunmap(area->data);
	for (i = 0; i < KEEL_AREA_PARTS; i++)
		free_pages((unsigned long)area->parts[i], get_order(KEEL_PART));
}

static int keel_area_join(struct keel_area *area, struct page **pages)
{
	/* There is one attempt for each connection: try hard. */
	gfp_t gfp = GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN | __GFP_RETRY_MAYFAIL;
	int i, n = 0;
	u32 off;

	for (i = 0; i < KEEL_AREA_PARTS; i++) {
		area->parts[i] = (void *)__get_free_pages(gfp, get_order(KEEL_PART));
		if (!area->parts[i])
			return -ENOMEM;
		for (off = 0; off < KEEL_PART; off += PAGE_SIZE)
			pages[n++] = virt_to_page(area->parts[i] + off);
	}
	area->data = vmap(pages, n, VM_MAP, PAGE_KERNEL);
	return area->data ? 0 : -ENOMEM;
}

static int keel_area_map(struct keel_lower *lower, struct keel_area *area,
			 enum dma_data_direction dir)
{
	u64 dma;
	int i;

	for (i = 0; i < KEEL_AREA_PARTS; i++) {
		dma = ib_dma_map_single(lower->ib, area->parts[i], KEEL_PART, dir);
		if (ib_dma_mapping_error(lower->ib, dma))
			return -EIO;
		area->dma[i] = dma;
	}
	return 0;
}

static void keel_area_unmap(struct keel_lower *lower, struct keel_area *area,
			    enum dma_data_direction dir)
{
	int i;

	for (i = 0; i < KEEL_AREA_PARTS; i++)
		if (area->dma[i])
			ib_dma_unmap_single(lower->ib, area->dma[i], KEEL_PART, dir);
}

static int keel_area_make(struct keel_lower *lower, struct keel_area *area,
			  enum dma_data_direction dir)
{
	struct page **pages = kmalloc_array(KEEL_CHUNKS * KEEL_CHUNK_DATA / PAGE_SIZE,
					    sizeof(*pages), GFP_KERNEL);
	int ret;

	if (!pages)
		return -ENOMEM;
	ret = keel_area_join(area, pages);
	kfree(pages);
	return ret ?: keel_area_map(lower, area, dir);
}

/*
 * Let @chunks->mr be an MR of all parts that the other side writes to. Its key and its address are
 * random: they tell nothing of this host.
 */
static int keel_chunks_mr(struct ib_pd *pd, struct keel_chunks *chunks)
{
	u32 npages = KEEL_CHUNKS * KEEL_CHUNK_DATA / PAGE_SIZE;
	struct scatterlist *sg = kmalloc_array(KEEL_AREA_PARTS, sizeof(*sg), GFP_KERNEL);
	struct ib_mr *mr;
	int i, n;

	if (!sg)
		return -ENOMEM;
	sg_init_table(sg, KEEL_AREA_PARTS);
	for (i = 0; i < KEEL_AREA_PARTS; i++) {
		sg_set_buf(&sg[i], chunks->recv.parts[i], KEEL_PART);
		sg_dma_address(&sg[i]) = chunks->recv.dma[i];
		sg_dma_len(&sg[i]) = KEEL_PART;
	}
	mr = ib_alloc_mr(pd, IB_MR_TYPE_MEM_REG, npages);
	if (IS_ERR(mr)) {
		kfree(sg);
		return PTR_ERR(mr);
	}
	chunks->mr = mr;
	n = ib_map_mr_sg(mr, sg, KEEL_AREA_PARTS, NULL, PAGE_SIZE);
	kfree(sg);
	if (n != KEEL_AREA_PARTS)
		return -EIO;
	ib_update_fast_reg_key(mr, get_random_u8());
	mr->iova = (get_random_u64() >> 1 & PAGE_MASK) | (mr->iova & ~PAGE_MASK);
	return 0;
}

static bool keel_lower_has_chunks(const struct keel_lower *lower)
{
	const struct ib_device_attr *attrs = &lower->ib->attrs;

	BUILD_BUG_ON(KEEL_PART > KEEL_CHUNK_DATA);
	return !READ_ONCE(lower->no_chunks) &&
	       attrs->device_cap_flags & IB_DEVICE_MEM_MGT_EXTENSIONS &&
	       attrs->max_send_sge >= KEEL_CHUNK_PARTS &&
	       attrs->max_fast_reg_page_list_len >= KEEL_CHUNKS * KEEL_CHUNK_DATA / PAGE_SIZE;
}

/**
 * keel_chunks_new() - make the chunks of a connection
 * @conn: the connection
 *
 * Context: may sleep.
 * Return: the chunks, for keel_chunks_unmap() and then keel_chunks_free(); or NULL.
 */
struct keel_chunks *keel_chunks_new(struct keel_conn *conn)
{
	struct keel_lower *lower = conn->lower;
	struct keel_chunks *chunks;

	if (!keel_lower_has_chunks(lower))
		return NULL;
	chunks = kzalloc_obj(*chunks, GFP_KERNEL);
	if (!chunks)
		return NULL;
	if (!keel_area_make(lower, &chunks->send, DMA_TO_DEVICE) &&
	    !keel_area_make(lower, &chunks->recv, DMA_FROM_DEVICE) &&
	    !keel_chunks_mr(conn->pd, chunks))
		return chunks;
	keel_chunks_unmap(lower, chunks);
	keel_chunks_free(chunks);
	return NULL;
}

/**
 * keel_chunks_unmap() - take chunks away from a lower device
 * @lower: the device, which has no QP any more that could use them
 * @chunks: the chunks, or NULL
 *
 * Context: may sleep.
 */
void keel_chunks_unmap(struct keel_lower *lower, struct keel_chunks *chunks)
{
	if (!chunks)
		return;
	if (chunks->mr)
		ib_dereg_mr(chunks->mr);
	keel_area_unmap(lower, &chunks->send, DMA_TO_DEVICE);
	keel_area_unmap(lower, &chunks->recv, DMA_FROM_DEVICE);
}

static void keel_chunks_work(struct work_struct *work)
{
	struct keel_chunks *chunks = container_of(work, struct keel_chunks, work);

	keel_area_free(&chunks->send);
	keel_area_free(&chunks->recv);
	kfree(chunks);
}

/**
 * keel_chunks_free() - free the memory of chunks
 * @chunks: the chunks after keel_chunks_unmap(), or NULL
 *
 * A work does it: the last reference on a connection may be dropped without preemption.
 *
 * Context: any but interrupts.
 */
void keel_chunks_free(struct keel_chunks *chunks)
{
	if (!chunks)
		return;
	INIT_WORK(&chunks->work, keel_chunks_work);
	keel_wire_run(&chunks->work);
}

/**
 * keel_chunks_post() - let the other side of a connection write to chunks
 * @chunks: the chunks, with &keel_chunks.reg_cqe
 * @qp: QP of the connection, ready to send
 *
 * The other side cannot before it knows the rkey, which is sent after this request.
 *
 * Context: any but interrupts.
 * Return: 0 or a negative errno.
 */
int keel_chunks_post(struct keel_chunks *chunks, struct ib_qp *qp)
{
	struct ib_reg_wr wr = {
		.wr.wr_cqe = &chunks->reg_cqe,
		.wr.opcode = IB_WR_REG_MR,
		.mr = chunks->mr,
		.key = chunks->mr->rkey,
		.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE,
	};

	return ib_post_send(qp, &wr.wr, NULL);
}

/**
 * keel_chunk_data() - where a chunk is
 * @area: the chunks of one direction
 * @chunk: the chunk, counted from 1
 *
 * Return: its address.
 */
void *keel_chunk_data(const struct keel_area *area, u32 chunk)
{
	return area->data + (chunk - 1) * KEEL_CHUNK_DATA;
}

/**
 * keel_chunk_to_device() - let the lower device read a chunk
 * @lower: the device
 * @area: of the chunk
 * @chunk: the chunk, counted from 1
 * @len: bytes that were written to it
 *
 * Context: any.
 */
void keel_chunk_to_device(struct keel_lower *lower, const struct keel_area *area, u32 chunk,
			  u32 len)
{
	u32 i, first = (chunk - 1) * KEEL_CHUNK_PARTS;

	flush_kernel_vmap_range(keel_chunk_data(area, chunk), len);
	for (i = 0; i * KEEL_PART < len; i++)
		ib_dma_sync_single_for_device(lower->ib, area->dma[first + i], KEEL_PART,
					      DMA_TO_DEVICE);
}

/**
 * keel_chunk_to_cpu() - read a chunk that the lower device has written
 * @lower: the device
 * @area: of the chunk
 * @chunk: the chunk, counted from 1
 * @len: bytes that are to be read
 *
 * Context: any.
 */
void keel_chunk_to_cpu(struct keel_lower *lower, const struct keel_area *area, u32 chunk,
		       u32 len)
{
	u32 i, first = (chunk - 1) * KEEL_CHUNK_PARTS;

	for (i = 0; i * KEEL_PART < len; i++)
		ib_dma_sync_single_for_cpu(lower->ib, area->dma[first + i], KEEL_PART,
					   DMA_FROM_DEVICE);
	invalidate_kernel_vmap_range(keel_chunk_data(area, chunk), len);
}
