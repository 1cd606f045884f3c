// SPDX-License-Identifier: GPL-2.0
/*
 * dma-bufs of ib_uverbs (UVERBS_METHOD_DMABUF_ALLOC). keel0 is a device behind a
 * BAR, with dmabuf_export=1.
 *
 * leak   If the last file of a dma-buf is closed after its context ended, its
 *        uobject and the uverbs file leak.
 * race   If the last file is closed while its context is being destroyed,
 *        the cleanup of the context uses the freed dma-buf. "slab_debug=P" on
 *        the kernel's command line poisons it. The kernel crashes.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/keel-abi.h>
#include <rdma/rdma_user_ioctl.h>
#include <rdma/rdma_user_ioctl_cmds.h>

/* Values of rdma/ib_user_ioctl_cmds.h in Linux 7.2. */
#define OBJECT_DMABUF		18
#define METHOD_DMABUF_ALLOC	0
#define ATTR_DMABUF_HANDLE	0
#define ATTR_DMABUF_PGOFF	1

#define SIZE		4096
#define LEAKS		500
#define RACES		250
#define OBJECTS		8000
#define ROUNDS		5
#define READ_ALL	3

/* The file descriptors of the dma-bufs in the process that has the context. */
static int *shared;

#define DIE(what) do { perror(what); exit(2); } while (0)

struct command {
	struct ib_uverbs_ioctl_hdr hdr;
	struct ib_uverbs_attr attrs[3];
};

static void run(int fd, struct command *c, int object, int method, int attrs)
{
	int i;

	c->hdr.length = sizeof(c->hdr) + attrs * sizeof(c->attrs[0]);
	c->hdr.object_id = object;
	c->hdr.method_id = method;
	c->hdr.num_attrs = attrs;
	c->hdr.driver_id = KEEL_DRIVER_ID;
	for (i = 0; i < attrs; i++)
		c->attrs[i].flags = UVERBS_ATTR_F_MANDATORY;
	if (ioctl(fd, RDMA_VERBS_IOCTL, c))
		DIE("RDMA_VERBS_IOCTL");
}

static struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;

	if (!ctx)
		DIE("ibv_open_device");
	ibv_free_device_list(list);
	return ctx;
}

/* Export a new buffer. */
static int new_dmabuf(struct ibv_context *ctx)
{
	struct ibv_alloc_dm_attr attr = { .length = SIZE };
	struct ibv_dm *dm = ibv_alloc_dm(ctx, &attr);
	struct command map_dm = {}, export = {};
	struct keel_uapi_dm_map map = {};

	if (!dm)
		DIE("ibv_alloc_dm");
	map_dm.attrs[0] = (struct ib_uverbs_attr){
		.attr_id = KEEL_ATTR_DM_MAP_HANDLE, .data = dm->handle };
	map_dm.attrs[1] = (struct ib_uverbs_attr){
		.attr_id = KEEL_ATTR_DM_MAP_OFFSET, .len = 8 };
	map_dm.attrs[2] = (struct ib_uverbs_attr){
		.attr_id = KEEL_ATTR_DM_MAP_RESP, .len = sizeof(map),
		.data = (uintptr_t)&map };
	run(ctx->cmd_fd, &map_dm, UVERBS_OBJECT_DM, KEEL_METHOD_DM_MAP, 3);
	export.attrs[0].attr_id = ATTR_DMABUF_HANDLE;
	export.attrs[1] = (struct ib_uverbs_attr){
		.attr_id = ATTR_DMABUF_PGOFF, .len = 8,
		.data = map.mmap_offset / 4096 };
	run(ctx->cmd_fd, &export, OBJECT_DMABUF, METHOD_DMABUF_ALLOC, 2);
	return export.attrs[0].data;
}

/* Return the number of allocated objects of all sizes up to 4 KiB. */
static long objects(void)
{
	long sum = 0, n;
	char line[400];
	FILE *f;

	/* Files and grace periods end later. */
	sleep(3);
	f = fopen("/proc/slabinfo", "r");
	if (!f)
		DIE("/proc/slabinfo");
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "kmalloc-%*s %ld", &n) == 1)
			sum += n;
	fclose(f);
	return sum;
}

/* Return how many objects stay allocated, for each dma-buf of a context. */
static double stay(int context_first)
{
	long before = objects();
	struct ibv_context *ctx;
	int i, fd;

	for (i = 0; i < LEAKS; i++) {
		ctx = open_device();
		fd = new_dmabuf(ctx);
		if (!context_first)
			close(fd);
		ibv_close_device(ctx);
		if (context_first)
			close(fd);
	}
	return (double)(objects() - before) / LEAKS;
}

static int leaks(void)
{
	double usual, late;

	/* The first round fills caches. */
	stay(0);
	usual = stay(0);
	late = stay(1);
	printf("# leak: %.2f objects stay for each dma-buf, %.2f if its context ends first\n",
	       usual, late);
	return late > usual + 2;
}

/* Return whether the kernel crashed in this function. */
static int crashed(const char *function)
{
	static char log[4 << 20];
	int n = klogctl(READ_ALL, log, sizeof(log) - 1);

	if (n < 0)
		DIE("klogctl");
	log[n] = '\0';
	return strstr(log, "Oops") && strstr(log, function);
}

/* A process that crashed in the kernel may never end. */
static int await_crash(pid_t pid, const char *function, int seconds)
{
	int i;

	for (i = 0; i < seconds && !crashed(function); i++) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			break;
		sleep(1);
	}
	return crashed(function);
}

static int ready[2], taken[2], go[2];

static void tell(int *pipe_fd)
{
	if (write(pipe_fd[1], "!", 1) != 1)
		DIE("write");
}

static void await(int *pipe_fd)
{
	char c;

	if (read(pipe_fd[0], &c, 1) != 1)
		DIE("read");
}

/*
 * Create dma-bufs, and objects that ib_uverbs destroys before them, because it
 * destroys the newest object first. The context ends with this process.
 */
static void run_owner(void)
{
	struct ibv_context *ctx = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	int i;

	for (i = 0; i < RACES; i++)
		shared[i] = new_dmabuf(ctx);
	for (i = 0; i < OBJECTS; i++)
		if (!ibv_alloc_mw(pd, IBV_MW_TYPE_1))
			DIE("ibv_alloc_mw");
	tell(ready);
	await(taken);
	for (i = 0; i < RACES; i++)
		close(shared[i]);
	tell(go);
	_exit(0);
}

/* Close the last files of dma-bufs while their context is being destroyed. */
static int race(void)
{
	static int fd[RACES];
	int i, pidfd;
	pid_t owner;

	if (pipe(ready) || pipe(taken) || pipe(go))
		DIE("pipe");
	owner = fork();
	if (!owner)
		run_owner();
	await(ready);
	pidfd = syscall(SYS_pidfd_open, owner, 0);
	for (i = 0; i < RACES; i++) {
		fd[i] = syscall(SYS_pidfd_getfd, pidfd, shared[i], 0);
		if (fd[i] < 0)
			DIE("pidfd_getfd");
	}
	tell(taken);
	await(go);
	for (i = 0; i < RACES; i++) {
		close(fd[i]);
		usleep(100);
	}
	return await_crash(owner, "uverbs_dmabuf_fd_destroy_uobj", 10);
}

int main(void)
{
	int leaked, raced = 0, i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	shared = mmap(NULL, RACES * sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		DIE("mmap");
	leaked = leaks();
	for (i = 0; i < ROUNDS && !raced; i++)
		raced = race();
	printf("# race: %s\n", raced ? "the cleanup used a freed dma-buf" :
	       "no crash");
	if (leaked || raced) {
		printf("reproduced:%s%s\n", leaked ? " leak" : "",
		       raced ? " race" : "");
		return 1;
	}
	printf("not reproduced: dma-bufs are freed once, and not used afterwards\n");
	return 0;
}
