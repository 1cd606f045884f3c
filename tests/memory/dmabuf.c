// SPDX-License-Identifier: GPL-2.0
/*
 * MRs of dma-bufs. udmabuf creates a dma-buf from pages of a memfd; the system
 * heap creates dma-bufs that can be read-only.
 */
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "buf.h"
#include "domain.h"
#include "peer.h"
#include "qp.h"
#include "t.h"
#include "tree.h"

/* The remote address of the first byte of the third page. */
#define IOVA	0x700000000000ULL
#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |	\
		 IBV_ACCESS_REMOTE_WRITE | BUF_ATOMIC)

static char user[SIZE] __attribute__((aligned(PAGE)));

static int heap_new(int mode)
{
	struct dma_heap_allocation_data data = {
		.len = SIZE, .fd_flags = mode | O_CLOEXEC,
	};
	int heap = SYS(open("/dev/dma_heap/system", O_RDONLY | O_CLOEXEC));

	SYS(ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &data));
	close(heap);
	return data.fd;
}

/* Register the third and fourth page. */
static struct ibv_mr *reg(struct ibv_pd *pd, const struct buf *b, int access)
{
	return MUST(ibv_reg_dmabuf_mr(pd, 2 * PAGE, 2 * PAGE, IOVA, b->fd,
				      access));
}

TEST_DMABUF(known, "PDM-3", "tools list an MR of a dma-buf, registered through a PD or its parent domain, with its length and type until dereg")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_pd *any[] = { pd, parent_new(pd, NULL) };
	struct buf b = buf_new();
	struct ibv_mr *mr;
	struct tree tree;
	char *text;
	int i;

	for (i = 0; i < 2; i++) {
		mr = reg(any[i], &b, RIGHTS);
		CHECK(mr->pd == any[i]);
		/* libibverbs fills these members. */
		CHECK_EQ((uintptr_t)mr->addr, 2 * PAGE);
		CHECK_EQ(mr->length, 2 * PAGE);
		CHECK(mr->lkey != 0);
		tree_read(KEEL0, &tree);
		CHECK_EQ(tree_value(tree_only(&tree, "mr"), "length"),
			 2 * PAGE);
		CHECK_EQ(tree_value(tree_only(&tree, "mr"), "key"), mr->lkey);
		tree_free(&tree);
		text = t_shell("rdma -dd resource show mr | tr '\n' ' '");
		CHECK(strstr(text, "drv_memory dmabuf"));
		free(text);
		CHECK_OK(ibv_dereg_mr(mr));
		CHECK_EQ(tree_count(KEEL0, "mr"), 0);
	}
	CHECK_OK(ibv_dealloc_pd(any[1]));
	CHECK_OK(ibv_dealloc_pd(pd));
}

/*
 * Check that 100 bytes in the middle of the two pages have this value, and that
 * no other byte changed.
 */
static void check_middle(const struct buf *b, char byte)
{
	CHECK_ALL(buf_page(b, 0), 'b', PAGE);
	CHECK_ALL(buf_page(b, 1), 'b', PAGE);
	CHECK_ALL(buf_page(b, 2), 'b', PAGE - 50);
	CHECK_ALL(buf_page(b, 2) + PAGE - 50, byte, 50);
	CHECK_ALL(buf_page(b, 3), byte, 50);
	CHECK_ALL(buf_page(b, 3) + 50, 'b', PAGE - 50);
}

static void check_add(struct link *l, struct mem to, struct ibv_mr *mr,
		      const struct buf *b)
{
	uint64_t word = 41;

	to.len = 8;
	memcpy(buf_page(b, 3) + 64, &word, 8);
	post_add(l->qp[0], 3, to, IOVA + PAGE + 64, mr->rkey, 1000);
	CHECK_WC(l->cq[0], 3, IBV_WC_SUCCESS);
	CHECK_MEM(user, &word, 8);
	word = 1041;
	CHECK_MEM(buf_page(b, 3) + 64, &word, 8);
}

/* The dma-buf is remote memory: write, read back, add if possible. */
static void check_remote(struct link *l, struct ibv_mr *mine,
			 struct ibv_mr *mr, const struct buf *b)
{
	struct mem mem = MEM(mine);

	memset(b->p, 'b', SIZE);
	memset(user, 'u', SIZE);
	mem.len = 100;
	post_rdma(l->qp[0], IBV_WR_RDMA_WRITE, 1, mem, IOVA + PAGE - 50,
		  mr->rkey);
	CHECK_WC(l->cq[0], 1, IBV_WC_SUCCESS);
	check_middle(b, 'u');
	memset(buf_page(b, 3), 'r', 50);
	post_rdma(l->qp[0], IBV_WR_RDMA_READ, 2, mem, IOVA + PAGE - 49,
		  mr->rkey);
	CHECK_WC(l->cq[0], 2, IBV_WC_SUCCESS);
	CHECK_ALL(user, 'u', 49);
	CHECK_ALL(user + 49, 'r', 50);
	CHECK_ALL(user + 99, 'b', 1);
	CHECK_ALL(user + 100, 'u', SIZE - 100);
	if (BUF_ATOMIC)
		check_add(l, mem, mr, b);
}

/*
 * The dma-buf is local memory of both QPs: the requester gathers, the responder
 * scatters.
 */
static void check_local(struct link *l, struct ibv_mr *mr, const struct buf *b)
{
	struct mem from = { (void *)(IOVA + PAGE - 50), 100, mr->lkey };
	struct mem to = { (void *)(IOVA + 7), 100, mr->lkey };

	memset(b->p, 'b', SIZE);
	memset(buf_page(b, 2) + PAGE - 50, 'l', 50);
	memset(buf_page(b, 3), 'm', 50);
	post_recv(l->qp[1], 5, to);
	post_send(l->qp[0], 6, from);
	CHECK_WC(l->cq[0], 6, IBV_WC_SUCCESS);
	CHECK_EQ(CHECK_WC(l->cq[1], 5, IBV_WC_SUCCESS).byte_len, 100);
	CHECK_ALL(buf_page(b, 2), 'b', 7);
	CHECK_ALL(buf_page(b, 2) + 7, 'l', 50);
	CHECK_ALL(buf_page(b, 2) + 57, 'm', 50);
	CHECK_ALL(buf_page(b, 2) + 107, 'b', PAGE - 50 - 107);
}

TEST_DMABUF(traffic, "PDM-3", "QPs write, read, send and add to the pages of a dma-buf and no others, by keys of a PD and its parent domain")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_pd *any[] = { pd, parent_new(pd, NULL) };
	struct ibv_mr *mine = MUST(ibv_reg_mr(pd, user, SIZE, RIGHTS));
	struct buf b = buf_new();
	struct ibv_mr *mr;
	struct link l;
	int i, j;

	for (i = 0; i < 2; i++)
		for (j = 0; j < 2; j++) {
			l = link_new(any[1 - j], any[j], IBV_QPT_RC);
			mr = reg(any[i], &b, RIGHTS);
			check_remote(&l, mine, mr, &b);
			check_local(&l, mr, &b);
			CHECK_OK(ibv_dereg_mr(mr));
			link_free(&l);
		}
}

TEST_DMABUF(atomic, "DEV-4,PDM-3", "ibv_reg_dmabuf_mr() with the right for atomics fails with EOPNOTSUPP on arm64, and succeeds on x86")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct buf b = buf_new();
	int access = RIGHTS | IBV_ACCESS_REMOTE_ATOMIC;

	if (BUF_ATOMIC)
		CHECK_OK(ibv_dereg_mr(reg(pd, &b, access)));
	else
		CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, b.fd, access),
			   EOPNOTSUPP);
	CHECK_EQ(tree_count(KEEL0, "mr"), 0);
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST_DMABUF(mapped, "PDM-3", "a user process that maps the dma-buf and brackets access with DMA_BUF_IOCTL_SYNC shares its bytes with QPs")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_mr *mine = MUST(ibv_reg_mr(pd, user, SIZE, RIGHTS));
	struct link l = link_new(pd, pd, IBV_QPT_RC);
	struct dma_buf_sync sync;
	struct buf b = buf_new();
	struct ibv_mr *mr = reg(pd, &b, RIGHTS);
	char *p;

	p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, b.fd, 0);
	CHECK(p != MAP_FAILED);
	memset(user, 'u', SIZE);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 1, MEM(mine), IOVA, mr->rkey);
	/* The message is longer than the MR: the responder wrote nothing. */
	CHECK_WC(l.cq[0], 1, IBV_WC_REM_ACCESS_ERR);
	link_free(&l);
	l = link_new(pd, pd, IBV_QPT_RC);
	CHECK_ALL(p, 'b', SIZE);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 2,
		  (struct mem){ user, 2 * PAGE, mine->lkey }, IOVA, mr->rkey);
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	sync.flags = DMA_BUF_SYNC_START | DMA_BUF_SYNC_RW;
	SYS(ioctl(b.fd, DMA_BUF_IOCTL_SYNC, &sync));
	CHECK_ALL(p, 'b', 2 * PAGE);
	CHECK_ALL(p + 2 * PAGE, 'u', 2 * PAGE);
	memset(p + 2 * PAGE, 'p', PAGE);
	sync.flags = DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW;
	SYS(ioctl(b.fd, DMA_BUF_IOCTL_SYNC, &sync));
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 3,
		  (struct mem){ user, 2 * PAGE, mine->lkey }, IOVA, mr->rkey);
	CHECK_WC(l.cq[0], 3, IBV_WC_SUCCESS);
	CHECK_ALL(user, 'p', PAGE);
	CHECK_ALL(user + PAGE, 'u', SIZE - PAGE);
}

TEST_DMABUF(domains, "PD-4,PDM-3", "a dma-buf's key is refused in another domain and after dereg, as lkey and as rkey, and no byte moves")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_pd *other = parent_new(MUST(ibv_alloc_pd(pd->context)),
					  NULL);
	struct ibv_mr *mine = MUST(ibv_reg_mr(pd, user, SIZE, RIGHTS));
	struct buf b = buf_new();
	struct ibv_mr *alien = reg(other, &b, RIGHTS), *gone;
	struct link l = link_new(pd, pd, IBV_QPT_RC);
	uint32_t keys[2] = { alien->rkey };
	int i;

	gone = reg(pd, &b, RIGHTS);
	keys[1] = gone->rkey;
	CHECK_OK(ibv_dereg_mr(gone));
	memset(user, 'u', SIZE);
	for (i = 0; i < 2; i++) {
		post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 1,
			  (struct mem){ user, 8, mine->lkey }, IOVA, keys[i]);
		CHECK_WC(l.cq[0], 1, IBV_WC_REM_ACCESS_ERR);
		link_free(&l);
		l = link_new(pd, pd, IBV_QPT_RC);
		post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 2,
			  (struct mem){ (void *)IOVA, 8, keys[i] },
			  (uintptr_t)user, mine->rkey);
		CHECK_WC(l.cq[0], 2, IBV_WC_LOC_PROT_ERR);
		link_free(&l);
		l = link_new(pd, pd, IBV_QPT_RC);
	}
	CHECK_ALL(b.p, 'b', SIZE);
	CHECK_ALL(user, 'u', SIZE);
}

TEST_DMABUF(ranges, "DEV-4,PDM-3", "ibv_reg_dmabuf_mr() refuses empty, outside and wrapped ranges (EINVAL), then holds no dma-buf, and takes all of it or its last byte")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct buf b = buf_new();
	static const struct {
		uint64_t offset, length, iova;
	} bad[] = {
		{ 0, 0, 0 },
		{ 0, SIZE + 1, 0 },
		{ PAGE, SIZE, 0 },
		{ SIZE, 1, 0 },
		{ SIZE, 0, 0 },
		{ SIZE + PAGE, PAGE, 0 },
		{ ~0ULL - PAGE + 1, PAGE, 0 },
		{ ~0ULL - PAGE + 1, 2 * PAGE, 0 },
		{ PAGE, ~0ULL - PAGE + 1, 0 },
		{ PAGE, ~0ULL, 0 },
		/* The last byte must have an address, too. */
		{ 0, 2 * PAGE, ~0ULL - PAGE + 1 },
		/* The kernel requires the same offset in the page. */
		{ 0, PAGE, 1 },
		{ 1, PAGE, 0 },
	};
	size_t i;

	/* Buffers of an earlier test may be released late; this test has one. */
	buf_check_count(1);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		CHECK_NULL(ibv_reg_dmabuf_mr(pd, bad[i].offset, bad[i].length,
					     bad[i].iova, b.fd, 0), EINVAL);
	CHECK_EQ(tree_count(KEEL0, "mr"), 0);
	CHECK_OK(ibv_dereg_mr(MUST(ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, b.fd,
						     RIGHTS))));
	CHECK_OK(ibv_dereg_mr(MUST(ibv_reg_dmabuf_mr(pd, SIZE - 1, 1,
						     IOVA + PAGE - 1, b.fd,
						     RIGHTS))));
	CHECK_OK(ibv_dereg_mr(MUST(ibv_reg_dmabuf_mr(pd, 0, PAGE,
						     ~0ULL - PAGE + 1, b.fd,
						     0))));
	buf_close(&b);
	buf_check_count(0);
}

TEST_DMABUF(no_dmabuf, "DEV-4,PDM-3", "ibv_reg_dmabuf_mr() refuses a closed descriptor with EBADF, a file that is no dma-buf with EINVAL, and closes neither")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	int null = SYS(open("/dev/null", O_RDWR | O_CLOEXEC));
	struct buf b = buf_new();
	int wrong[] = { null, b.memfd, pd->context->cmd_fd, STDOUT_FILENO };
	int i;

	for (i = 0; i < 4; i++) {
		CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, wrong[i], 0),
			   EINVAL);
		SYS(fcntl(wrong[i], F_GETFD));
	}
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, -1, 0), EBADF);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, 1 << 30, 0), EBADF);
	close(b.fd);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, b.fd, 0), EBADF);
	CHECK_EQ(tree_count(KEEL0, "mr"), 0);
}

TEST_DMABUF(rights, "DEV-4,PDM-3", "ibv_reg_dmabuf_mr() refuses invalid access flags, and a key without the right can neither write nor read")
{
	static const int bad[] = {
		IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC,
		IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND,
		IBV_ACCESS_ZERO_BASED, IBV_ACCESS_HUGETLB,
	};
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_mr *mine = MUST(ibv_reg_mr(pd, user, SIZE, RIGHTS));
	struct link l = link_new(pd, pd, IBV_QPT_RC);
	struct buf b = buf_new();
	struct ibv_mr *mr;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		CHECK(!ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, b.fd, bad[i]));
		if (errno != EINVAL && errno != EOPNOTSUPP)
			FAIL("rights 0x%x: got %s, want EINVAL or EOPNOTSUPP",
			     bad[i], t_errname(errno));
	}
	mr = reg(pd, &b, IBV_ACCESS_REMOTE_READ);
	memset(user, 'u', SIZE);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 1,
		  (struct mem){ user, 8, mine->lkey }, IOVA, mr->rkey);
	CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
	CHECK_ALL(user, 'b', 8);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 2,
		  (struct mem){ user + 8, 8, mine->lkey }, IOVA, mr->rkey);
	CHECK_WC(l.cq[0], 2, IBV_WC_REM_ACCESS_ERR);
	CHECK_ALL(b.p, 'b', SIZE);
	link_free(&l);
	l = link_new(pd, pd, IBV_QPT_RC);
	CHECK_OK(ibv_dereg_mr(mr));
	mr = reg(pd, &b, IBV_ACCESS_LOCAL_WRITE);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 3,
		  (struct mem){ user + 8, 8, mine->lkey }, IOVA, mr->rkey);
	CHECK_WC(l.cq[0], 3, IBV_WC_REM_ACCESS_ERR);
	CHECK_ALL(user + 8, 'u', SIZE - 8);
}

TEST_CASE(read_only, "DEV-4,PDM-3", "a read-only dma-buf is readable and not registered for writing (EACCES), a write-only dma-buf is not registered",
	  .not_uml = "which has no dma-buf heaps", .not_kernel = "6.1.",
	  .not_kernel_why = "which has no dma-buf heaps",
	  .not_arm64 = "whose kernel has no dma-buf heaps")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_mr *mine = MUST(ibv_reg_mr(pd, user, SIZE, RIGHTS));
	struct link l = link_new(pd, pd, IBV_QPT_RC);
	int ro = heap_new(O_RDONLY), rw = heap_new(O_RDWR);
	int wo = heap_new(O_WRONLY);
	struct ibv_mr *mr;

	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, ro, RIGHTS), EACCES);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, ro,
				     IBV_ACCESS_LOCAL_WRITE), EACCES);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, wo, RIGHTS), EACCES);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, wo, 0), EACCES);
	mr = MUST(ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, ro,
				    IBV_ACCESS_REMOTE_READ));
	memset(user, 'u', SIZE);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 1,
		  (struct mem){ user, 64, mine->lkey }, 8, mr->rkey);
	CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
	CHECK_ALL(user, 0, 64);
	CHECK_ALL(user + 64, 'u', SIZE - 64);
	mr = MUST(ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, rw, RIGHTS));
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 2,
		  (struct mem){ user + 64, 64, mine->lkey }, 8, mr->rkey);
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 3,
		  (struct mem){ user, 64, mine->lkey }, 40, mr->rkey);
	CHECK_WC(l.cq[0], 3, IBV_WC_SUCCESS);
	CHECK_ALL(user, 'u', 32);
	CHECK_ALL(user + 32, 0, 32);
}

TEST_DMABUF(closed, "PDM-3", "an MR keeps its dma-buf usable after its files and mappings are closed, and the last dereg frees the dma-buf")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_mr *mine = MUST(ibv_reg_mr(pd, user, SIZE, RIGHTS));
	struct link l = link_new(pd, pd, IBV_QPT_RC);
	long before = buf_count();
	struct buf b = buf_new();
	struct ibv_mr *mr[2] = { reg(pd, &b, RIGHTS), reg(pd, &b, RIGHTS) };
	int i;

	CHECK_EQ(buf_count(), before + 1);
	buf_close(&b);
	for (i = 0; i < 2; i++) {
		memset(user, 'u' + i, SIZE);
		post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 1,
			  (struct mem){ user, 64, mine->lkey }, IOVA,
			  mr[i]->rkey);
		CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
		post_rdma(l.qp[0], IBV_WR_RDMA_READ, 2,
			  (struct mem){ user, PAGE, mine->lkey }, IOVA + 32,
			  mr[i]->rkey);
		CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
		CHECK_ALL(user, 'u' + i, 32);
		CHECK_ALL(user + 32, 'b', PAGE - 32);
		buf_check_count(before + 1);
		CHECK_OK(ibv_dereg_mr(mr[i]));
	}
	buf_check_count(before);
}

TEST_DMABUF(rereg, "DEV-4,PDM-3", "ibv_rereg_mr() of a dma-buf's MR fails with EINVAL and changes nothing")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_pd *other = MUST(ibv_alloc_pd(pd->context));
	struct link l = link_new(pd, pd, IBV_QPT_RC);
	struct buf b = buf_new();
	struct ibv_mr *mr = reg(pd, &b, RIGHTS);

	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0));
	CHECK_EQ(errno, EINVAL);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0));
	CHECK_EQ(errno, EINVAL);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, user,
			   SIZE, 0));
	CHECK_EQ(errno, EINVAL);
	check_local(&l, mr, &b);
}

#define MANY	50

static void leave_mrs(struct peer *parent)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct buf b;
	int i;

	pd = parent_new(pd, NULL);
	for (i = 0; i < MANY; i++) {
		b = buf_new();
		reg(pd, &b, RIGHTS);
		close(b.memfd);
		close(b.fd);
	}
	peer_tell(parent);
	pause();
}

TEST_DMABUF(killed, "PD-3,PDM-3", "the kernel frees the dma-bufs that only the MRs of a killed process held")
{
	struct peer p;

	/* Those of an earlier test may be released late. */
	buf_check_count(0);
	peer_start(&p, leave_mrs);
	peer_wait(&p);
	CHECK_EQ(tree_count(KEEL0, "mr"), MANY);
	CHECK_EQ(buf_count(), MANY);
	peer_kill(&p, SIGKILL);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	buf_check_count(0);
}
