// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that exit while a peer copies from their memory: whoever drops the last
 * reference on the memory of a process frees it, and waits for the process's asynchronous
 * I/O. No other thread must do that: here, the I/O is on a file system of the process
 * that does not answer.
 */
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "iso.h"
#include "qp.h"
#include "stall.h"
#include "stall_fuse.h"
#include "t.h"

/* Without keel's care, one of six attempts fails. */
#define ATTEMPTS	40
/* Long enough for most of a copy. */
#define BYTES		(8 << 20)
/* A process whose memory another thread frees is gone sooner. */
#define GONE_MS		150

static void *memory(void)
{
	void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

/* Begin to read a page of the file. The file system answers later. */
static void read_file(void)
{
	static char buf[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));
	static struct iocb cb = {
		.aio_lio_opcode = IOCB_CMD_PREAD,
		.aio_buf = (uintptr_t)buf, .aio_nbytes = sizeof(buf),
	};
	struct iocb *list[] = { &cb };
	aio_context_t aio = 0;

	cb.aio_fildes = SYS(open(STALL_FILE, O_RDONLY | O_DIRECT));
	SYS(syscall(SYS_io_setup, 1, &aio));
	CHECK_EQ(SYS(syscall(SYS_io_submit, aio, 1, list)), 1);
}

static void exits(struct peer *parent)
{
	struct iso_end e;

	iso_open(&e, KEEL0, NULL, ISO_RC);
	e.mr = MUST(ibv_reg_mr(e.pd, memory(), BYTES, ISO_RIGHTS | IBV_ACCESS_ON_DEMAND));
	iso_meet(&e, parent);
	read_file();
	peer_tell(parent);
	peer_wait(parent);
	_exit(0);
}

/* Copy from the memory of the other process until it has exited. */
static void copies(struct peer *parent)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_READ, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_wc wc = {};
	struct iso_end e;
	int n;

	iso_open(&e, KEEL0, NULL, ISO_RC);
	e.mr = MUST(ibv_reg_mr(e.pd, memory(), BYTES, ISO_RIGHTS));
	/* On a busy machine, the memory may take long to be present. */
	e.patient = true;
	iso_meet(&e, parent);
	wr.sg_list = &(struct ibv_sge){ (uintptr_t)e.mr->addr, BYTES, e.mr->lkey };
	wr.wr.rdma.remote_addr = e.peer.addr;
	wr.wr.rdma.rkey = e.peer.rkey;
	for (n = 0; wc.status == IBV_WC_SUCCESS; n++) {
		if (n == 1)
			peer_tell(parent);
		CHECK_OK(ibv_post_send(e.qp, &wr, &bad));
		while (!ibv_poll_cq(e.cq, 1, &wc))
			;
	}
	/* At least one copy was successful. */
	CHECK(n > 1);
	peer_tell(parent);
	pause();
}

static void attempt(int us)
{
	struct stall s;
	struct peer p;

	stall_start(&s, exits);
	peer_start(&p, copies);
	iso_introduce(&s.peer, &p);
	peer_wait(&s.peer);
	peer_wait(&p);
	usleep(us);
	peer_tell(&s.peer);
	/* The peer stops although the process has not exited yet. */
	CHECK_WITHIN(&p, "copy from a process that exits");
	CHECK(!stall_gone(&s, GONE_MS));
	CHECK_EQ(atomic_load(&s.board->waits), 1);
	peer_kill(&p, SIGKILL);
	stall_release(&s);
	CHECK(stall_gone(&s, ISO_MS));
	stall_end(&s);
}

TEST_CASE(last, "ISO-1,ISO-2", "a process that exits while a peer copies from its memory frees the memory itself", .limit = 120, ISO_NEEDS_THREADS)
{
	int i;

	for (i = 0; i < ATTEMPTS; i++)
		attempt(1000 * (i % 7));
}

static struct iso_end shared;
static bool registers_again;
static volatile bool ready;

/* A process that shares the memory and the files of its parent, and outlives it. */
static int heir(void *arg)
{
	struct peer *parent = arg;
	pid_t elder = getppid();

	if (!registers_again)
		shared.mr = MUST(ibv_reg_mr(shared.pd, memory(), BYTES,
					    ISO_RIGHTS | IBV_ACCESS_ON_DEMAND));
	ready = true;
	while (getppid() == elder)
		usleep(1000);
	if (registers_again)
		CHECK_OK(ibv_rereg_mr(shared.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND));
	memset(shared.mr->addr, 'h', BYTES);
	iso_meet(&shared, parent);
	peer_tell(parent);
	peer_wait(parent);
	_exit(0);
}

static void elder(struct peer *parent)
{
	char *stack = memory();

	iso_open(&shared, KEEL0, NULL, ISO_RC);
	/* This process has a worker that provides on-demand memory. */
	shared.mr = MUST(ibv_reg_mr(shared.pd, memory(), BYTES,
				    ISO_RIGHTS | IBV_ACCESS_ON_DEMAND));
	SYS(clone(heir, stack + BYTES, CLONE_VM | CLONE_FILES | SIGCHLD, parent));
	while (!ready)
		usleep(1000);
	_exit(0);
}

/* Copy from the memory of the heir. */
static void copies_once(struct peer *parent)
{
	struct iso_end e;

	iso_open(&e, KEEL0, NULL, ISO_RC);
	e.mr = MUST(ibv_reg_mr(e.pd, memory(), BYTES, ISO_RIGHTS));
	iso_meet(&e, parent);
	peer_wait(parent);
	CHECK_OK(iso_rdma(&e, IBV_WR_RDMA_READ, 1, e.mr));
	CHECK_WC(e.cq, 1, IBV_WC_SUCCESS);
	CHECK_ALL((char *)e.mr->addr, 'h', 64);
	peer_tell(parent);
	pause();
}

static void check_heir(bool again)
{
	struct peer a, p;

	registers_again = again;
	peer_start(&a, elder);
	SYS(waitpid(a.pid, NULL, 0));
	peer_start(&p, copies_once);
	iso_introduce(&a, &p);
	peer_wait(&a);
	peer_tell(&p);
	CHECK_WITHIN(&p, "copy from memory whose first process has exited");
	peer_tell(&a);
	peer_kill(&p, SIGKILL);
}

TEST_CASE(heir, "PD-3,ISO-2", "peers can access on-demand memory that two processes share as long as the one that registered it exists", .limit = 30, ISO_NEEDS_THREADS)
{
	check_heir(false);
}

TEST_CASE(again, "PD-3,ISO-2", "a process can register memory again that another process registered, which shared it and has exited", .limit = 30, ISO_NEEDS_THREADS)
{
	check_heir(true);
}
