// SPDX-License-Identifier: GPL-2.0
/*
 * Exported device memory is in use while its buffer is freed, its MR is
 * deregistered or its function is unbound.
 */
#include <pthread.h>
#include <stdatomic.h>

#include <infiniband/keeldv.h>

#include "dev.h"
#include "export.h"
#include "peer.h"
#include "tree.h"

#define DRIVER	"/sys/bus/pci/drivers/keel/"
#define PARAM	"/sys/module/keel/parameters/dmabuf_export"

/*
 * RDMA writes through a dma-buf until the dma-buf is revoked or the device
 * removed.
 */
struct writer {
	struct link l;
	struct ibv_mr *mr;
	atomic_ulong done;
	enum ibv_wc_status last;
};

static void *write_on(void *arg)
{
	struct writer *w = arg;
	struct ibv_send_wr *wr, *bad;
	struct ibv_wc wc;
	int n;

	do {
		wr = send_wr(IBV_WR_RDMA_WRITE, 1, in_user(SIZE - PAGE));
		wr->wr.rdma.remote_addr = IOVA;
		wr->wr.rdma.rkey = w->mr->rkey;
		if (ibv_post_send(w->l.qp[0], wr, &bad))
			return NULL;
		do {
			n = ibv_poll_cq(w->l.cq[0], 1, &wc);
		} while (!n);
		if (n != 1)
			return NULL;
		w->last = wc.status;
		w->done++;
	} while (!w->last);
	return NULL;
}

TEST_SLOW(in_use, "DM-6,PD-3", "50 times, freeing a buffer ends RDMA writes through its dma-buf in error, and the next buffer's bytes stay", 120)
{
	struct writer w;
	struct ibv_dm *dm;
	pthread_t thread;
	int i, fd;

	set_up();
	memset(user, 'w', SIZE);
	for (i = 0; i < 50; i++) {
		dm = dm_new();
		fd = export(dm);
		w = (struct writer){ .l = link_new(pd, pd, IBV_QPT_RC),
				     .mr = reg(fd) };
		CHECK_OK(pthread_create(&thread, NULL, write_on, &w));
		while (w.done < 3)
			sched_yield();
		CHECK_OK(ibv_free_dm(dm));
		/* The MR still holds the dma-buf. */
		SYS(close(fd));
		if (i % 2)
			CHECK_OK(pthread_join(thread, NULL));
		dm = dm_new();
		if (i % 2 == 0)
			CHECK_OK(pthread_join(thread, NULL));
		CHECK_EQ(w.last, IBV_WC_REM_ACCESS_ERR);
		check_dm(dm, 0, 'd', SIZE);
		CHECK_OK(ibv_dereg_mr(w.mr));
		CHECK_OK(ibv_free_dm(dm));
		link_free(&w.l);
	}
	CHECK_EQ(tree_count(KEEL0, "dm"), 1);
	CHECK_EQ(tree_count(KEEL0, "mr"), 1);
}

static void *dereg(void *arg)
{
	CHECK_OK(ibv_dereg_mr(arg));
	return NULL;
}

TEST_SLOW(both, "PD-3", "200 times, freeing a buffer and deregistering its dma-buf's MR at the same time succeed and leave nothing behind", 120)
{
	pthread_t thread;
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	int i, fd;

	set_up();
	for (i = 0; i < 200; i++) {
		dm = dm_new();
		fd = export(dm);
		mr = reg(fd);
		CHECK_OK(pthread_create(&thread, NULL, dereg, mr));
		CHECK_OK(ibv_free_dm(dm));
		CHECK_OK(pthread_join(thread, NULL));
		SYS(close(fd));
	}
	CHECK_EQ(tree_count(KEEL0, "dm"), 1);
	CHECK_EQ(tree_count(KEEL0, "mr"), 1);
}

static atomic_bool done;

static void *export_on(void *arg)
{
	uint64_t pgoff = *(uint64_t *)arg;
	int ret, fd;

	while (!done) {
		ret = try_export(pd->context->cmd_fd, pgoff, &fd);
		if (ret != EINVAL && ret != EIO)
			CHECK_OK(ret);
		if (!ret)
			SYS(close(fd));
	}
	return NULL;
}

TEST_SLOW(races, "DEV-4,PD-3", "300 times, exporting a buffer while another thread frees it succeeds or fails with EINVAL or EIO, and leaves nothing behind", 120)
{
	struct keeldv_dm_attr attr[2] = {};
	pthread_t thread[2];
	struct ibv_dm *dm;
	uint64_t pgoff;
	int i;

	set_up();
	dm = dm_new();
	CHECK_OK(keeldv_query_dm(dm, &attr[0]));
	pgoff = pgoff_of(dm);
	for (i = 0; i < 2; i++)
		CHECK_OK(pthread_create(&thread[i], NULL, export_on, &pgoff));
	for (i = 0; i < 300; i++) {
		usleep(i % 4 * 50);
		CHECK_OK(ibv_free_dm(dm));
		dm = dm_new();
		pgoff_of(dm);
	}
	done = true;
	for (i = 0; i < 2; i++)
		CHECK_OK(pthread_join(thread[i], NULL));
	CHECK_OK(ibv_free_dm(dm));
	CHECK_EQ(tree_count(KEEL0, "dm"), 1);
	CHECK_OK(keeldv_query_dm(dm_new(), &attr[1]));
	CHECK_EQ(attr[1].start, attr[0].start);
}

/* Export, import and use a buffer until the device is removed. */
static void use_until_gone(struct peer *parent)
{
	struct writer w;
	pthread_t thread;
	int fd;

	set_up();
	fd = export(dm_new());
	w = (struct writer){ .l = link_new(pd, pd, IBV_QPT_RC),
			     .mr = reg(fd) };
	CHECK_OK(pthread_create(&thread, NULL, write_on, &w));
	while (w.done < 3)
		sched_yield();
	peer_put_fd(parent, fd);
	peer_wait(parent);
	CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, fd, RIGHTS), EIO);
	/* The completion that the thread waits for will not come. */
	_exit(0);
}

/*
 * Wait until no dma-buf is left: the kernel releases a dma-buf some time after
 * its last file is closed.
 */
static void check_no_bufs(void)
{
	int i;

	for (i = 0; i < 500; i++) {
		if (!t_shell_status("grep -q '^Total 0 objects' "
				    "/sys/kernel/debug/dma_buf/bufinfo"))
			return;
		usleep(10000);
	}
	FAIL("got %s, want no dma-buf",
	     t_shell("tail -n 1 /sys/kernel/debug/dma_buf/bufinfo"));
}

static void wait_for_device(void)
{
	int i;

	for (i = 0; i < 600 && !dev_exists(KEEL0); i++)
		usleep(100000);
	CHECK(dev_exists(KEEL0));
}

/* Unbind the function from its driver and bind it again. */
static void rebind(void)
{
	free(t_shell("f=$(basename $(readlink -f "
		     "/sys/class/infiniband/" KEEL0 "/device)) && "
		     "echo $f > " DRIVER "unbind && echo $f > " DRIVER "bind"));
	wait_for_device();
}

TEST_SLOW(off, "DEV-4", "without dmabuf_export=1, a bound function refuses an export with EPROTONOSUPPORT", 60)
{
	static const char * const value[] = { "N", "Y" };
	int i, fd, ret;

	for (i = 0; i < 2; i++) {
		CHECK_OK(t_write_file(PARAM, value[i]));
		rebind();
		set_up();
		ret = try_export(pd->context->cmd_fd, pgoff_of(dm_new()), &fd);
		CHECK_RET(ret, i ? 0 : EPROTONOSUPPORT);
		if (!ret)
			SYS(close(fd));
		CHECK_OK(ibv_close_device(pd->context));
	}
}

TEST_SLOW(unbound, "DEV-3,PD-3", "10 times, unbinding a function under RDMA writes through a dma-buf returns, revokes the dma-buf, and the device comes back", 300)
{
	struct peer p;
	int i, fd;

	for (i = 0; i < 10; i++) {
		peer_start(&p, use_until_gone);
		fd = peer_get_fd(&p);
		rebind();
		set_up();
		CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, fd, RIGHTS),
			   ENODEV);
		CHECK_EQ(tree_count(KEEL0, "mr"), 1);
		CHECK_OK(ibv_close_device(pd->context));
		SYS(close(fd));
		peer_tell(&p);
		peer_end(&p);
		check_no_bufs();
	}
}
