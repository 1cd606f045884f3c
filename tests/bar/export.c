// SPDX-License-Identifier: GPL-2.0
/*
 * Device memory behind a BAR is exported as a dma-buf and registered again:
 * which accesses are permitted, for which processes, and until when.
 *
 * The guest has two functions: keel0 is the first.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include <infiniband/keeldv.h>

#include "export.h"
#include "peer.h"
#include "tree.h"

/* The device of the second function, and a device with kernel memory. */
#define OTHER	"keel1"
#define KERNEL	"keel2"

TEST(values, "DM-4,DM-5,PDM-3", "RDMA through a buffer's dma-buf reads the buffer's bytes, and writes and adds to them and to no others")
{
	uint64_t word = 41;
	struct ibv_dm *dm, *next;
	struct ibv_mr *mr;
	struct link l;

	set_up();
	l = link_new(pd, pd, IBV_QPT_RC);
	dm = dm_new();
	next = dm_new();
	mr = reg(export(dm));
	CHECK_OK(ibv_memcpy_to_dm(dm, 2 * PAGE - 5, "by memcpy", 9));
	memset(user, 'u', SIZE);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 1, in_user(20),
		  IOVA + PAGE - 10, mr->rkey);
	CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
	CHECK_MEM(user, "dddddby memcpydddddduu", 22);

	memset(user, 'w', SIZE);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 2, in_user(PAGE),
		  IOVA + 2 * PAGE, mr->rkey);
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	check_dm(dm, 3 * PAGE, 'w', PAGE);
	check_dm(dm, 0, 'd', PAGE);
	CHECK_OK(ibv_memcpy_to_dm(dm, PAGE + 64, &word, 8));
	post_add(l.qp[0], 3, in_user(8), IOVA + 64, mr->rkey, 1000);
	CHECK_WC(l.cq[0], 3, IBV_WC_SUCCESS);
	CHECK_MEM(user, &word, 8);
	CHECK_OK(ibv_memcpy_from_dm(&word, dm, PAGE + 64, 8));
	CHECK_EQ(word, 1041);
	check_dm(next, 0, 'd', SIZE);
}

/* 100 bytes of the MR. */
static struct mem in_buf(const struct ibv_mr *mr, uint64_t off)
{
	return (struct mem){ (void *)(IOVA + off), 100, mr->lkey };
}

TEST(local, "DM-5,PDM-3", "keys of an exported buffer work as lkeys, and a mapping of the buffer sees the bytes")
{
	unsigned char *map;
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	struct link l;

	set_up();
	l = link_new(pd, pd, IBV_QPT_RC);
	dm = dm_new();
	mr = reg(export(dm));
	map = MUST(keeldv_dm_map(dm));
	memset(map + PAGE, 'm', 100);
	/*
	 * Make the stores visible to other processors: see device-memory.rst.
	 */
	atomic_thread_fence(memory_order_seq_cst);
	post_recv(l.qp[1], 1, in_buf(mr, PAGE));
	post_send(l.qp[0], 2, in_buf(mr, 0));
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	CHECK_WC(l.cq[1], 1, IBV_WC_SUCCESS);
	CHECK_ALL(map + 2 * PAGE, 'm', 100);
	CHECK_ALL(map + 2 * PAGE + 100, 'd', PAGE - 100);
	CHECK_ALL(map, 'd', PAGE);
}

TEST(file, "PDM-3", "an exported dma-buf has the buffer's size, is read-only, cannot be mapped, and its MR is listed as a dma-buf's")
{
	struct tree tree;
	struct ibv_mr *mr;
	char *text;
	int fd;

	set_up();
	fd = export(dm_new());
	CHECK_EQ(SYS(lseek(fd, 0, SEEK_END)), SIZE);
	CHECK_EQ(SYS(fcntl(fd, F_GETFL)) & O_ACCMODE, O_RDONLY);
	CHECK_EQ(SYS(fcntl(fd, F_GETFD)), FD_CLOEXEC);
	CHECK(mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
	CHECK_EQ(errno, EINVAL);
	CHECK_OK(ibv_dereg_mr(mine));
	mr = reg(fd);
	tree_read(KEEL0, &tree);
	CHECK_EQ(tree_value(tree_only(&tree, "mr"), "length"), SIZE - PAGE);
	CHECK_EQ(tree_value(tree_only(&tree, "mr"), "key"), mr->lkey);
	CHECK(!strstr(tree_only(&tree, "mr")->text, "revoked"));
	tree_free(&tree);
	text = t_shell("rdma -dd resource show mr | tr '\n' ' '");
	CHECK(strstr(text, "drv_memory dmabuf"));
	free(text);
	CHECK_RET(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0) ?
		  errno : 0, EINVAL);
	CHECK_OK(ibv_dereg_mr(mr));
	CHECK_EQ(tree_count(KEEL0, "mr"), 0);
}

TEST(small, "DM-6,PDM-3", "an exported buffer of 64 bytes is a page that has no other buffer in it, before or after the export")
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct keel_uapi_dm_map map;
	struct keeldv_dm_attr info[3];
	struct ibv_dm *dm[3];
	int i, fd;

	set_up();
	for (i = 0; i < 3; i++) {
		dm[i] = MUST(ibv_alloc_dm(pd->context, &attr));
		CHECK_OK(keeldv_query_dm(dm[i], &info[i]));
		CHECK_EQ(info[i].start % PAGE, 0);
		if (i == 1) {
			CHECK_OK(raw_dm_map(pd->context->cmd_fd, dm[1]->handle, 0, &map));
			CHECK_OK(try_export(pd->context->cmd_fd, map.mmap_offset / PAGE, &fd));
			CHECK_EQ(SYS(lseek(fd, 0, SEEK_END)), PAGE);
		}
	}
	CHECK(info[0].start != info[1].start);
	CHECK(info[0].start != info[2].start);
	CHECK(info[1].start != info[2].start);
}

TEST(rights, "DEV-4,PDM-3", "keys of an exported dma-buf have the requested rights, and ranges outside the dma-buf are refused")
{
	static const struct {
		uint64_t offset, length;
	} bad[] = {
		{ 0, 0 }, { 0, SIZE + 1 }, { SIZE, PAGE }, { PAGE, SIZE },
		{ ~0ULL - PAGE + 1, 2 * PAGE },
	};
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	struct link l;
	size_t i;
	int fd;

	set_up();
	l = link_new(pd, pd, IBV_QPT_RC);
	dm = dm_new();
	fd = export(dm);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		CHECK_NULL(ibv_reg_dmabuf_mr(pd, bad[i].offset, bad[i].length,
					     0, fd, RIGHTS), EINVAL);
	mr = MUST(ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, fd,
				    IBV_ACCESS_REMOTE_READ));
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 1, in_user(SIZE), 0, mr->rkey);
	CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
	CHECK_ALL(user, 'd', SIZE);
	memset(user, 'u', SIZE);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 2, in_user(8), 0, mr->rkey);
	CHECK_WC(l.cq[0], 2, IBV_WC_REM_ACCESS_ERR);
	check_dm(dm, 0, 'd', SIZE);
}

TEST(refused, "DEV-4", "only the mmap offset of an existing buffer can be exported")
{
	struct ibv_dm *dm;
	uint64_t bad[6];
	int i, fd;

	set_up();
	dm = dm_new();
	bad[0] = pgoff_of(dm);
	bad[1] = bad[0] + 1;
	bad[2] = KEEL_STATE_OFFSET / PAGE;
	bad[3] = 1ULL << 32 | bad[0];
	bad[4] = ~0ULL;
	bad[5] = 1ULL << 63;
	CHECK_OK(ibv_free_dm(dm));
	for (i = 0; i < 6; i++)
		CHECK_RET(try_export(pd->context->cmd_fd, bad[i], &fd), EINVAL);
	CHECK_EQ(tree_count(KEEL0, "dm"), 1);
}

/* Check that a write and a read by the MR's keys fail. */
static void check_revoked(struct ibv_mr *mr)
{
	struct link l = link_new(pd, pd, IBV_QPT_RC);

	memset(user, 'r', SIZE);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 1, in_user(64), IOVA, mr->rkey);
	CHECK_WC(l.cq[0], 1, IBV_WC_REM_ACCESS_ERR);
	link_free(&l);
	l = link_new(pd, pd, IBV_QPT_RC);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 2, in_user(64), IOVA, mr->rkey);
	CHECK_WC(l.cq[0], 2, IBV_WC_REM_ACCESS_ERR);
	link_free(&l);
	l = link_new(pd, pd, IBV_QPT_RC);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 3,
		  (struct mem){ (void *)IOVA, 64, mr->lkey },
		  (uintptr_t)user, mine->rkey);
	CHECK_WC(l.cq[0], 3, IBV_WC_LOC_PROT_ERR);
	CHECK_ALL(user, 'r', SIZE);
	link_free(&l);
}

TEST(freed, "DM-6,PD-3,PDM-3", "after a twice exported buffer is freed, its keys fail, registration fails, and its pages stay reserved until the last close")
{
	struct keeldv_dm_attr before = {}, after = {};
	struct ibv_mr *mr[3];
	struct ibv_dm *dm;
	struct tree tree;
	int fd[2], i;

	set_up();
	dm = dm_new();
	CHECK_OK(keeldv_query_dm(dm, &before));
	for (i = 0; i < 2; i++)
		mr[i] = reg(fd[i] = export(dm));
	mr[2] = reg(fd[1]);
	CHECK(fd[0] != fd[1]);
	CHECK_OK(ibv_free_dm(dm));
	for (i = 0; i < 3; i++)
		check_revoked(mr[i]);
	for (i = 0; i < 2; i++)
		CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, fd[i], RIGHTS),
			   ENODEV);
	tree_read(KEEL0, &tree);
	for (i = 0; i < tree.count; i++)
		if (!strcmp(tree.objs[i].kind, "mr") &&
		    tree_value(&tree.objs[i], "key") != mine->lkey)
			CHECK(strstr(tree.objs[i].text, "revoked"));
	tree_free(&tree);
	CHECK_EQ(tree_count(KEEL0, "dm"), 2);
	dm = dm_new();
	CHECK_OK(keeldv_query_dm(dm, &after));
	CHECK(after.start >= before.start + SIZE ||
	      after.start + SIZE <= before.start);
	CHECK_OK(ibv_free_dm(dm));
	for (i = 0; i < 3; i++)
		CHECK_OK(ibv_dereg_mr(mr[i]));
	CHECK_EQ(tree_count(KEEL0, "dm"), 2);
	for (i = 0; i < 2; i++)
		SYS(close(fd[i]));
	CHECK_EQ(tree_count(KEEL0, "dm"), 1);
	CHECK_OK(keeldv_query_dm(dm_new(), &after));
	CHECK_EQ(after.start, before.start);
}

/* Export a buffer, then free it when the parent asks, unless killed before. */
static void owner(struct peer *parent)
{
	struct ibv_dm *dm;

	set_up();
	dm = dm_new();
	CHECK_OK(ibv_memcpy_to_dm(dm, PAGE, "from the owner", 14));
	peer_put_fd(parent, export(dm));
	peer_wait(parent);
	check_dm(dm, 2 * PAGE, 'w', PAGE);
	peer_tell(parent);
	peer_wait(parent);
	CHECK_OK(ibv_free_dm(dm));
	peer_tell(parent);
	pause();
}

static void with_owner(bool killed)
{
	struct ibv_mr *mr;
	struct link l;
	struct peer p;
	int fd;

	peer_start(&p, owner);
	fd = peer_get_fd(&p);
	set_up();
	l = link_new(pd, pd, IBV_QPT_RC);
	mr = reg(fd);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 1, in_user(14), IOVA, mr->rkey);
	CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
	CHECK_MEM(user, "from the owner", 14);
	memset(user, 'w', PAGE);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 2, in_user(PAGE), IOVA + PAGE,
		  mr->rkey);
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	peer_tell(&p);
	peer_wait(&p);
	if (!killed) {
		peer_tell(&p);
		peer_wait(&p);
	}
	peer_kill(&p, SIGKILL);
	check_revoked(mr);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, fd, RIGHTS), ENODEV);
	/* An open dma-buf file holds no object of a context that ended. */
	CHECK_EQ(tree_count(KEEL0, "dm"), 1);
	CHECK_OK(ibv_dereg_mr(mr));
	SYS(close(fd));
}

TEST(shared, "PDM-3,PD-3", "a process that got the dma-buf from another reads and writes the buffer until its owner frees the buffer")
{
	with_owner(false);
}

TEST(killed, "PDM-3,PD-3", "after the death of a buffer's owner, a process with the dma-buf cannot use the buffer, and no object of the owner is left")
{
	with_owner(true);
}

TEST(elsewhere, "DEV-4", "kernel memory cannot be exported (EPROTONOSUPPORT), and another device refuses the dma-buf (EOPNOTSUPP)")
{
	static const char * const others[] = { OTHER, KERNEL };
	struct ibv_alloc_dm_attr attr = { .length = SIZE };
	struct keel_uapi_dm_map map;
	struct ibv_pd *other;
	struct ibv_dm *dm;
	int i, fd, no;

	t_shell_status("ip link add keeltest2 type dummy");
	CHECK_OK(t_shell_status("rdma link add " KERNEL " type keel netdev keeltest2"));
	set_up();
	fd = export(dm_new());
	for (i = 0; i < 2; i++) {
		other = MUST(ibv_alloc_pd(dev_open(others[i])));
		CHECK_NULL(ibv_reg_dmabuf_mr(other, 0, SIZE, 0, fd, RIGHTS),
			   EOPNOTSUPP);
	}
	dm = MUST(ibv_alloc_dm(other->context, &attr));
	CHECK_OK(raw_dm_map(other->context->cmd_fd, dm->handle, 0, &map));
	CHECK_RET(try_export(other->context->cmd_fd, map.mmap_offset / PAGE,
			     &no), EPROTONOSUPPORT);
	/* The second function's memory can be exported, as another dma-buf. */
	other = MUST(ibv_alloc_pd(dev_open(OTHER)));
	dm = MUST(ibv_alloc_dm(other->context, &attr));
	CHECK_OK(try_export(other->context->cmd_fd, pgoff_of(dm), &no));
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, no, RIGHTS), EOPNOTSUPP);
	CHECK_OK(ibv_dereg_mr(MUST(ibv_reg_dmabuf_mr(other, 0, SIZE, 0, no,
						     RIGHTS))));
}

/* Clean up after "elsewhere", even if it failed. */
void t_after(void)
{
	t_shell_status("rdma link delete " KERNEL " 2>/dev/null");
	t_shell_status("ip link delete keeltest2 2>/dev/null");
}
