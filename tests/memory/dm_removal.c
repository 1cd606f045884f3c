// SPDX-License-Identifier: GPL-2.0
/*
 * Mappings of device memory that are being moved or copied at the moment when
 * the device goes.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <infiniband/keeldv.h>

#include "dev.h"
#include "raw.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096UL
#define PAGES	256UL
#define LENGTH	(PAGES * PAGE)

/* Destroying these takes a while, and the mappings go last. */
#define OBJECTS		4000
#define CHILDREN	32

void t_after(void)
{
	dev_del();
}

static void *reserve(void)
{
	void *p = mmap(NULL, LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static sigjmp_buf no_page;

static void on_sigbus(int sig)
{
	siglongjmp(no_page, 1);
}

/*
 * How many pages of a mapping can still be reached when the device has gone.
 * The core would put an ordinary page in where one is missing; not in a mapping
 * that was moved since then: there it is SIGBUS.
 */
static int reached(void *start)
{
	volatile unsigned char *p = mremap(start, LENGTH, LENGTH,
					   MREMAP_MAYMOVE | MREMAP_FIXED,
					   reserve());
	struct sigaction act = { .sa_handler = on_sigbus };
	volatile int n = 0;
	volatile size_t i;

	if (p == MAP_FAILED)
		return -1;
	sigaction(SIGBUS, &act, NULL);
	for (i = 0; i < PAGES; i++) {
		if (sigsetjmp(no_page, 1))
			continue;
		(void)p[i * PAGE];
		n++;
	}
	return n;
}

/* A mapped buffer on the second device, and much to destroy before it. */
static void *mapped(void)
{
	struct ibv_alloc_dm_attr attr = { .length = LENGTH };
	struct keel_uapi_dm_map map = {};
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_dm *dm;
	void *p;
	int i;

	dev_add();
	ctx = dev_open(KEEL1);
	pd = MUST(ibv_alloc_pd(ctx));
	dm = MUST(ibv_alloc_dm(ctx, &attr));
	CHECK_OK(raw_dm_map(ctx->cmd_fd, dm->handle, 0, &map));
	CHECK_EQ(map.length, LENGTH);
	p = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, ctx->cmd_fd,
		 map.mmap_offset);
	CHECK(p != MAP_FAILED);
	memset(p, 0xdd, LENGTH);
	for (i = 0; i < OBJECTS; i++)
		MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	return p;
}

/*
 * The device goes in a process of its own. It is made before any that inherits
 * the mapping: nothing of it may stay open in those.
 */
static pid_t remove_device(void)
{
	pid_t pid = fork();

	SYS(pid);
	if (!pid) {
		execlp("rdma", "rdma", "link", "delete", KEEL1, NULL);
		_exit(127);
	}
	return pid;
}

static bool removed(pid_t pid)
{
	int status;
	pid_t ended = waitpid(pid, &status, WNOHANG);

	SYS(ended);
	if (!ended)
		return false;
	CHECK_EQ(status, 0);
	return true;
}

/* Two processes that race for a window: the checkers move it out of reach. */
#define WINDOW	"the checkers make the removal too slow to race with"

/* Of any driver's mapping that has no pages any more and is moved or copied. */
#define WARNS	"this kernel for x86 warns of mappings that lost their pages"

TEST_CASE(moved, "DM-6", "a mapping that mremap() moves while the device goes reaches no page afterwards",
	  .not_debug = WINDOW, .not_pat = WARNS)
{
	void *p = mapped(), *from = p, *to = reserve();
	pid_t pid = remove_device();
	int moves = 0;

	while (!removed(pid)) {
		void *old = from;

		p = mremap(from, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED,
			   to);
		CHECK(p == to);
		from = to;
		/* The place that it left becomes the next target. */
		to = mmap(old, LENGTH, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		CHECK(to == old);
		moves++;
	}
	printf("# moved %d times\n", moves);
	CHECK(moves > 1);
	CHECK_EQ(reached(from), 0);
}

/* A child looks at what it was forked with when the device has gone. */
static pid_t forked(void *p, int wait_fd)
{
	pid_t pid = fork();
	char c;

	SYS(pid);
	if (pid)
		return pid;
	if (read(wait_fd, &c, 1) < 0)
		_exit(254);
	_exit(reached(p) ? 1 : 0);
}

TEST_CASE(copied, "DM-6", "a mapping that fork() copies while the device goes reaches no page afterwards, in either",
	  .not_debug = WINDOW, .not_pat = WARNS)
{
	int n = 0, bad = 0, status, i, fds[2];
	pid_t child[CHILDREN];
	void *p = mapped();
	pid_t pid;

	SYS(pipe2(fds, O_CLOEXEC));
	pid = remove_device();
	while (!removed(pid))
		if (n < CHILDREN)
			child[n++] = forked(p, fds[0]);
	CHECK_EQ(reached(p), 0);
	/* One byte each, and nobody reads another one's. */
	for (i = 0; i < n; i++)
		CHECK_EQ(write(fds[1], "!", 1), 1);
	for (i = 0; i < n; i++) {
		CHECK_EQ(waitpid(child[i], &status, 0), child[i]);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
		bad += WEXITSTATUS(status);
	}
	printf("# %d children\n", n);
	CHECK(n > 0);
	CHECK_EQ(bad, 0);
}
