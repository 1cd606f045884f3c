// SPDX-License-Identifier: GPL-2.0
/*
 * A mapping of device memory that fork() or mremap() copies during device
 * removal keeps its page table entries: the process still reads the pages of
 * the device, which the kernel has freed.
 *
 * rdma_umap_open() must zap the new mapping if device removal is in progress.
 * It zaps before fork() and mremap() write the page table entries, and stops
 * tracking the mapping.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/keeldv.h>
#include <infiniband/verbs.h>

#define DEVICE		"keel1"
#define LENGTH		(256 * 4096UL)
/* ib_uverbs destroys these objects before it zaps the mappings. */
#define OBJECTS		4000
#define CHILDREN	1000
#define BYTE		0xdd

#define DIE(what) do { perror(what); exit(2); } while (0)

static void shell(const char *command)
{
	if (system(command))
		DIE(command);
}

static struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int i;

	for (i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), DEVICE))
			return ibv_open_device(list[i]);
	return NULL;
}

/* Map a buffer of a new device. */
static unsigned char *map_device(void)
{
	struct ibv_alloc_dm_attr attr = { .length = LENGTH };
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_dm *dm;
	void *p;
	int i;

	shell("ip link add bug0 type dummy && ip link set bug0 up && "
	      "rdma link add " DEVICE " type keel netdev bug0");
	ctx = open_device();
	pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	dm = pd ? ibv_alloc_dm(ctx, &attr) : NULL;
	p = dm ? keeldv_dm_map(dm) : NULL;
	if (!p)
		DIE(DEVICE);
	memset(p, BYTE, LENGTH);
	for (i = 0; i < OBJECTS; i++)
		if (!ibv_alloc_mw(pd, IBV_MW_TYPE_1))
			DIE("ibv_alloc_mw");
	return p;
}

static sigjmp_buf no_page;

static void on_sigbus(int sig)
{
	siglongjmp(no_page, 1);
}

/* Return how many pages still have the bytes of the device. */
static int count_pages(volatile unsigned char *p)
{
	volatile size_t i;
	volatile int n = 0;

	signal(SIGBUS, on_sigbus);
	for (i = 0; i < LENGTH; i += 4096) {
		if (sigsetjmp(no_page, 1))
			continue;
		if (p[i] == BYTE)
			n++;
	}
	return n;
}

static pid_t start_removal(void)
{
	pid_t pid = fork();

	if (pid < 0)
		DIE("fork");
	if (!pid) {
		execlp("rdma", "rdma", "link", "delete", DEVICE, NULL);
		_exit(127);
	}
	return pid;
}

static int removed(pid_t pid)
{
	int status;

	if (!waitpid(pid, &status, WNOHANG))
		return 0;
	if (status)
		DIE("rdma link delete");
	shell("ip link delete bug0");
	return 1;
}

/* Return how many children of the removal still read the device's pages. */
static int by_fork(void)
{
	int go[2], n = 0, bad = 0, status, i;
	static pid_t child[CHILDREN];
	unsigned char *p;
	pid_t remover;
	char c;

	/* The remover must not inherit the mapping. */
	if (pipe2(go, O_CLOEXEC))
		DIE("pipe");
	p = map_device();
	remover = start_removal();
	while (!removed(remover)) {
		if (n == CHILDREN)
			continue;
		child[n] = fork();
		if (!child[n]) {
			close(go[1]);
			/* End of file: the device is removed. */
			if (read(go[0], &c, 1))
				_exit(2);
			_exit(count_pages(p) > 0);
		}
		if (child[n] > 0)
			n++;
		usleep(2000);
	}
	close(go[1]);
	for (i = 0; i < n; i++) {
		waitpid(child[i], &status, 0);
		bad += WIFEXITED(status) && WEXITSTATUS(status) == 1;
	}
	printf("# fork: %d of %d children read pages of the removed device\n",
	       bad, n);
	return bad;
}

/* Return how many pages can be read after a mapping was moved. */
static int by_mremap(void)
{
	unsigned char *from, *to, *old;
	int n, moves = 0;
	pid_t remover;

	from = map_device();
	to = mmap(NULL, LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	remover = start_removal();
	while (!removed(remover)) {
		old = from;
		from = mremap(old, LENGTH, LENGTH,
			      MREMAP_MAYMOVE | MREMAP_FIXED, to);
		if (from == MAP_FAILED)
			DIE("mremap");
		/* The old address range is the next target. */
		to = mmap(old, LENGTH, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		moves++;
	}
	n = count_pages(from);
	printf("# mremap: %d of %lu pages of the removed device can be read after %d moves\n",
	       n, LENGTH / 4096, moves);
	return n;
}

int main(void)
{
	int bad = by_mremap();

	bad += by_fork();
	if (bad) {
		printf("reproduced: mappings reach pages of a removed device\n");
		return 1;
	}
	printf("not reproduced: no mapping reaches a page of a removed device\n");
	return 0;
}
