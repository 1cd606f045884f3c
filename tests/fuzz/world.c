// SPDX-License-Identifier: GPL-2.0
/*
 * The objects, rings and memory of an input. See world.h.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "world.h"

#define DATA_AT		((void *)0x200000000000UL)
#define RINGS_AT	((void *)0x210000000000UL)
#define MEM_FLAGS	(MAP_ANONYMOUS | MAP_FIXED)

/* Files of an input have this number or a higher one. */
static int first_fd;
struct world w;
uint8_t *data_area;
static uint8_t *rings_area;
uint8_t gids[GIDS][16];
int n_gids;
static char device[64];

static void die(const char *what)
{
	perror(what);
	_exit(2);
}

/* Half of it is shared memory: a child of fork() has the same pages then. */
static void map_data(void)
{
	size_t half = DATA_PAGES / 2 * PAGE;

	data_area = mmap(DATA_AT, half, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MEM_FLAGS, -1, 0);
	if (data_area == MAP_FAILED ||
	    mmap(data_area + half, half, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MEM_FLAGS, -1, 0) == MAP_FAILED)
		die("data");
}

/* Return false if the table ends before this GID. */
static bool read_gid(int index, uint8_t *gid)
{
	static const uint8_t zero[16];
	unsigned int part;
	char path[64];
	FILE *f;
	int i;

	snprintf(path, sizeof(path),
		 "/sys/class/infiniband/keel0/ports/1/gids/%d", index);
	f = fopen(path, "r");
	if (!f)
		return false;
	for (i = 0; i < 16; i += 2) {
		if (fscanf(f, i ? ":%4x" : "%4x", &part) != 1)
			break;
		gid[i] = part >> 8;
		gid[i + 1] = part;
	}
	fclose(f);
	return i == 16 && memcmp(gid, zero, sizeof(zero));
}

static void find_device(void)
{
	FILE *f = popen("grep -lx keel0 /sys/class/infiniband_verbs/*/ibdev | "
			"cut -d / -f 5", "r");
	char name[32] = "";

	if (!f || !fgets(name, sizeof(name), f))
		die("keel0");
	pclose(f);
	name[strcspn(name, "\n")] = 0;
	while (n_gids < GIDS && read_gid(n_gids, gids[n_gids]))
		n_gids++;
	if (!n_gids)
		die("the GIDs");
	snprintf(device, sizeof(device), "/dev/infiniband/%s", name);
}

void world_init(void)
{
	find_device();
	rings_area = mmap(RINGS_AT, RINGS * RING_BYTES, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MEM_FLAGS, -1, 0);
	if (rings_area == MAP_FAILED)
		die("rings");
}

static void get_context(void)
{
	struct ib_uverbs_get_context core = {};
	struct ib_uverbs_get_context_resp resp;
	struct keel_uapi_context_resp drv;
	struct cmd cmd = {
		CMD(GET_CONTEXT), CORE_IN(&core), CORE_OUT(&resp),
		DRIVER_OUT(&drv),
	};

	if (!cmd_run(&cmd))
		w.async_fd = (int)resp.async_fd;
	if (w.async_fd)
		fcntl(w.async_fd, F_SETFL, O_NONBLOCK);
}

/* The same by a method. The file has no asynchronous events then. */
static void get_context_ioctl(void)
{
	struct keel_uapi_context_resp drv;
	uint32_t vectors;
	uint64_t support;

	cmd_method(M_DEVICE_GET_CONTEXT, UVERBS_OBJECT_DEVICE,
		   UVERBS_METHOD_GET_CONTEXT,
		   ATTRS(OUT(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &vectors),
			 OUT(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, &support),
			 OUT(UVERBS_ATTR_UHW_OUT, &drv)));
}

/* Open the device, and get a context. */
static void open_device(bool by_write)
{
	int fd = open(device, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die(device);
	/* All files that outlive an input are open when the first one starts. */
	if (!first_fd)
		first_fd = fd;
	cmd_set_fd(fd);
	if (!by_write) {
		get_context_ioctl();
		return;
	}
	/* Without a context, ioctl() does not accept the command. */
	cmd_via(true);
	get_context();
	cmd_via(false);
}

static void forget_objects(void)
{
	int i;

	for (i = 0; i < KINDS; i++)
		if (i != K_SHPD)
			memset(w.objs[i], 0, sizeof(w.objs[i]));
}

void world_open(void)
{
	memset(&w, 0, sizeof(w));
	memset(sh->posted_as, 0, sizeof(sh->posted_as));
	atomic_store(&sh->wr_ids, 0);
	/* The kernel may read or write beyond a ring whose size had a fault. */
	memset(rings_area, 0, RINGS * RING_BYTES);
	map_data();
	open_device(true);
}

void world_of_child(void)
{
	close(cmd_fd());
	forget_objects();
	open_device(true);
}

/* The first file stays open, with all of its objects. */
void world_reopen(bool by_write, bool use)
{
	int fd = cmd_fd(), async_fd = w.async_fd;

	open_device(by_write);
	if (use) {
		forget_objects();
		return;
	}
	close(cmd_fd());
	if (w.async_fd && w.async_fd != async_fd)
		close(w.async_fd);
	cmd_set_fd(fd);
	w.async_fd = async_fd;
}

void world_close(void)
{
	int i;

	for (i = 0; i < MAPS; i++)
		map_drop(i, false);
	/* Also those of events and dma-bufs. */
	close_range(first_fd, ~0U, 0);
	munmap(data_area, DATA_PAGES * PAGE);
	cmd_set_fd(-1);
}

void map_add(void *p, size_t len)
{
	unsigned int i = atomic_fetch_add(&w.n_maps, 1);

	if (i >= MAPS) {
		munmap(p, len);
		return;
	}
	w.maps[i] = p;
	__atomic_store_n(&w.map_len[i], len, __ATOMIC_RELEASE);
}

/* Only one thread unmaps it: others may have mapped something there since. */
void map_drop(unsigned int i, bool one_page)
{
	size_t len = __atomic_exchange_n(&w.map_len[i], 0, __ATOMIC_ACQ_REL);

	if (!one_page || len <= PAGE) {
		if (len)
			munmap(w.maps[i], len);
		return;
	}
	munmap(w.maps[i], PAGE);
	w.maps[i] = (char *)w.maps[i] + PAGE;
	__atomic_store_n(&w.map_len[i], len - PAGE, __ATOMIC_RELEASE);
}

struct obj *obj_add(enum kind kind, uint32_t handle, uint32_t domain)
{
	unsigned int i = atomic_fetch_add(&w.next[kind], 1) % SLOTS;
	struct obj *obj = &w.objs[kind][i];

	memset(obj, 0, sizeof(*obj));
	obj->handle = handle;
	obj->domain = domain;
	obj->live = true;
	return obj;
}

struct obj *obj_pick(enum kind kind, uint8_t sel)
{
	struct obj *objs = w.objs[kind], *live[SLOTS];
	int i, n = 0;

	if (sel >= STALE)
		return &objs[sel % SLOTS];
	for (i = 0; i < SLOTS; i++)
		if (objs[i].live)
			live[n++] = &objs[i];
	return n ? live[sel % n] : NULL;
}

struct obj *mr_pick(uint32_t domain, uint32_t access, uint8_t sel)
{
	struct obj *objs = w.objs[K_MR], *good[SLOTS];
	int i, n = 0;

	if (sel >= STALE)
		return &objs[sel % SLOTS];
	for (i = 0; i < SLOTS; i++)
		if (objs[i].live && objs[i].domain == domain &&
		    !(access & ~objs[i].access))
			good[n++] = &objs[i];
	return n ? good[sel % n] : NULL;
}

bool ring_new(struct ring *ring, uint32_t entries, uint32_t stride)
{
	if (sizeof(*ring->head) + (size_t)entries * stride > RING_BYTES)
		return false;
	ring->head = (void *)(rings_area + atomic_fetch_add(&w.rings, 1) %
			      RINGS * RING_BYTES);
	ring->entries = entries;
	ring->stride = stride;
	/* The ring may have been used before, if there are more than RINGS. */
	memset(ring->head, 0, RING_BYTES);
	return true;
}

bool ring_read(const struct ring *from, struct ring *ring)
{
	ring->head = __atomic_load_n(&from->head, __ATOMIC_RELAXED);
	ring->entries = __atomic_load_n(&from->entries, __ATOMIC_RELAXED);
	ring->stride = __atomic_load_n(&from->stride, __ATOMIC_RELAXED);
	/* These may belong to different rings. */
	return ring->head && ring->entries && ring->stride &&
	       sizeof(*ring->head) + (size_t)ring->entries * ring->stride <=
	       RING_BYTES;
}

struct keel_uapi_buf ring_buf(const struct ring *ring)
{
	return (struct keel_uapi_buf){
		.addr = (uintptr_t)ring->head, .entries = ring->entries,
		.stride = ring->stride,
	};
}
