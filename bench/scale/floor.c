// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The device of bench/floor, which does nothing: what its objects cost is the least that
 * objects can cost. libibverbs does not know the device. So these are its system calls.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "../floor/floor.h"
#include "kind.h"

#define CLASS	"/sys/class/infiniband_verbs"

static int node = -1;
/* Bytes of @memory, of which MRs use parts in turn. */
static size_t room;
static char *memory;
static void *pd;

/* Whether uverbs file @entry belongs to the device. */
static bool is_world(const char *entry)
{
	char path[300], name[64] = "";
	FILE *file;

	snprintf(path, sizeof(path), CLASS "/%s/ibdev", entry);
	file = fopen(path, "r");
	if (!file)
		return false;
	if (!fgets(name, sizeof(name), file))
		name[0] = 0;
	fclose(file);
	name[strcspn(name, "\n")] = 0;
	return !strcmp(name, world.name);
}

static int open_node(void)
{
	DIR *class = opendir(CLASS);
	struct dirent *entry;
	char path[300];

	while (class && (entry = readdir(class)))
		if (is_world(entry->d_name)) {
			snprintf(path, sizeof(path), "/dev/infiniband/%s", entry->d_name);
			node = open(path, O_RDWR | O_CLOEXEC);
		}
	if (class)
		closedir(class);
	return node < 0 ? -1 : 0;
}

struct call {
	struct ib_uverbs_ioctl_hdr hdr;
	struct ib_uverbs_attr attrs[3];
};

static int call(struct call *call, int object, int method, int n)
{
	call->hdr.object_id = object;
	call->hdr.method_id = method;
	call->hdr.num_attrs = n;
	call->hdr.length = sizeof(call->hdr) + n * sizeof(*call->attrs);
	return ioctl(node, RDMA_VERBS_IOCTL, call);
}

static int prepare(void)
{
	struct call get = {};

	if (open_node())
		return -1;
	return call(&get, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, 0);
}

/* Handles are from 0 on. */
static void *make(void)
{
	struct call make = {
		.attrs = {
			{ .attr_id = KEEL_FLOOR_ATTR_HANDLE, .flags = UVERBS_ATTR_F_MANDATORY },
		},
	};

	if (call(&make, KEEL_FLOOR_OBJECT, KEEL_FLOOR_METHOD_MAKE, 1))
		return NULL;
	return (void *)((uintptr_t)make.attrs[0].data + 1);
}

static int unmake(void *obj)
{
	struct call drop = {
		.attrs = {
			{ .attr_id = KEEL_FLOOR_ATTR_HANDLE, .flags = UVERBS_ATTR_F_MANDATORY,
			  .data = (uintptr_t)obj - 1 },
		},
	};

	return call(&drop, KEEL_FLOOR_OBJECT, KEEL_FLOOR_METHOD_DROP, 1) ? errno : 0;
}

/*
 * A write command in an ioctl, as libibverbs has it. @in is the input itself if it has 8
 * bytes at most, or where it is.
 */
static int command(int number, uint64_t in, int in_length, void *out, int out_length)
{
	struct call invoke = {
		.attrs = {
			{ .attr_id = UVERBS_ATTR_WRITE_CMD, .len = sizeof(uint64_t),
			  .flags = UVERBS_ATTR_F_MANDATORY, .data = number },
			{ .attr_id = UVERBS_ATTR_CORE_IN, .len = in_length,
			  .flags = UVERBS_ATTR_F_MANDATORY, .data = in },
			{ .attr_id = UVERBS_ATTR_CORE_OUT, .len = out_length,
			  .flags = UVERBS_ATTR_F_MANDATORY, .data = (uintptr_t)out },
		},
	};

	return call(&invoke, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, out ? 3 : 2);
}

static void *make_pd(void)
{
	struct ib_uverbs_alloc_pd_resp resp;

	if (command(IB_USER_VERBS_CMD_ALLOC_PD, (uintptr_t)&resp,
		    sizeof(struct ib_uverbs_alloc_pd), &resp, sizeof(resp)))
		return NULL;
	return (void *)((uintptr_t)resp.pd_handle + 1);
}

static int unmake_pd(void *pd)
{
	return command(IB_USER_VERBS_CMD_DEALLOC_PD, (uintptr_t)pd - 1,
		       sizeof(struct ib_uverbs_dealloc_pd), NULL, 0) ? errno : 0;
}

/* With @memory, and a PD. */
static int prepare_mr(void)
{
	if (!memory || prepare())
		return -1;
	pd = make_pd();
	return pd ? 0 : -1;
}

static void *make_mr(uint64_t length)
{
	static size_t n;
	char *start = memory + n++ % (room / length) * length;
	struct ib_uverbs_reg_mr_resp resp;
	struct ib_uverbs_reg_mr reg = {
		.response = (uintptr_t)&resp,
		.start = (uintptr_t)start,
		.hca_va = (uintptr_t)start,
		.length = length,
		.pd_handle = (uintptr_t)pd - 1,
		.access_flags = IBV_ACCESS_LOCAL_WRITE,
	};

	if (command(IB_USER_VERBS_CMD_REG_MR, (uintptr_t)&reg, sizeof(reg), &resp,
		    sizeof(resp)))
		return NULL;
	return (void *)((uintptr_t)resp.mr_handle + 1);
}

static int unmake_mr(void *mr)
{
	return command(IB_USER_VERBS_CMD_DEREG_MR, (uintptr_t)mr - 1,
		       sizeof(struct ib_uverbs_dereg_mr), NULL, 0) ? errno : 0;
}

static int prepare_pages(void)
{
	room = PAGES * PAGE;
	memory = memory_new(room);
	return prepare_mr();
}

static void *make_4k(void)
{
	return make_mr(PAGE);
}

static void *make_1m(void)
{
	return make_mr(MIB);
}

static int prepare_1g(void)
{
	room = GIB;
	memory = memory_new(room);
	return prepare_mr();
}

static int prepare_huge(void)
{
	room = GIB;
	memory = memory_huge(room);
	return prepare_mr();
}

static void *make_1g(void)
{
	return make_mr(GIB);
}

const struct kind floor_kinds[] = {
	{ "floor", prepare, make, unmake },
	{ "floor_pd", prepare, make_pd, unmake_pd },
	{ "floor_4k", prepare_pages, make_4k, unmake_mr },
	{ "floor_1m", prepare_pages, make_1m, unmake_mr },
	{ "floor_1g", prepare_1g, make_1g, unmake_mr },
	{ "floor_1g_huge", prepare_huge, make_1g, unmake_mr },
	{}
};
