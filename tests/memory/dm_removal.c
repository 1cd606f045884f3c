// SPDX-License-Identifier: GPL-2.0
/*
 * Mappings of device memory that a process moves or copies during device
 * removal.
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

/*
 * Destroying these objects takes a while, and the kernel revokes mappings last.
 */
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
 * Return how many pages of a mapping can still be reached after device removal.
 * ib_core would map an ordinary page in place of a missing page, but not in a
 * mapping that was moved since then: there the access raises SIGBUS.
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

/*
 * Map a buffer of the second device, and create many objects that are destroyed
 * before the mapping is revoked.
 */
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
 * A separate process removes the device. The test forks this process before all
 * children that inherit the mapping, so that they hold no file of it.
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

/*
 * Two processes race in a short window, which the checkers move out of reach.
 */
#define WINDOW	"the checkers make the removal too slow to race with"

/*
 * x86 warns when a mapping that lost its pages is moved or copied, with any
 * driver.
 */
#define WARNS	"this kernel for x86 warns of mappings that lost their pages"

TEST_CASE(moved, "DM-6", "a mapping that mremap() moves during device removal reaches no page afterwards",
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
		/* Reserve the old address range as the next target. */
		to = mmap(old, LENGTH, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		CHECK(to == old);
		moves++;
	}
	printf("# moved %d times\n", moves);
	CHECK(moves > 1);
	CHECK_EQ(reached(from), 0);
}

/* The child checks the inherited mapping after device removal. */
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

TEST_CASE(copied, "DM-6", "a mapping that fork() copies during device removal reaches no page afterwards, in parent and child",
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
	/* Each child reads one byte, and no child reads the byte of another. */
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
