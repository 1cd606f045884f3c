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
static void *memory;

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

/* Pins @length bytes if it is not 0. Handles are from 0 on. */
static void *make_length(uint64_t length)
{
	struct call make = {
		.attrs = {
			{ .attr_id = KEEL_FLOOR_ATTR_HANDLE, .flags = UVERBS_ATTR_F_MANDATORY },
			{ .attr_id = KEEL_FLOOR_ATTR_ADDRESS, .len = sizeof(uint64_t),
			  .flags = UVERBS_ATTR_F_MANDATORY, .data = (uintptr_t)memory },
			{ .attr_id = KEEL_FLOOR_ATTR_LENGTH, .len = sizeof(uint64_t),
			  .flags = UVERBS_ATTR_F_MANDATORY, .data = length },
		},
	};

	if (call(&make, KEEL_FLOOR_OBJECT, KEEL_FLOOR_METHOD_MAKE, length ? 3 : 1))
		return NULL;
	return (void *)((uintptr_t)make.attrs[0].data + 1);
}

static void *make(void)
{
	return make_length(0);
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

/* A write command in an ioctl, as libibverbs has it. Its input has 8 bytes at most. */
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

static int prepare_4k(void)
{
	memory = memory_new(PAGE);
	return memory ? prepare() : -1;
}

static void *make_4k(void)
{
	return make_length(PAGE);
}

static int prepare_1m(void)
{
	memory = memory_new(MIB);
	return memory ? prepare() : -1;
}

static void *make_1m(void)
{
	return make_length(MIB);
}

static int prepare_1g(void)
{
	memory = memory_new(GIB);
	return memory ? prepare() : -1;
}

static int prepare_huge(void)
{
	memory = memory_huge(GIB);
	return memory ? prepare() : -1;
}

static void *make_1g(void)
{
	return make_length(GIB);
}

const struct kind floor_kinds[] = {
	{ "floor", prepare, make, unmake },
	{ "floor_pd", prepare, make_pd, unmake_pd },
	{ "floor_4k", prepare_4k, make_4k, unmake },
	{ "floor_1m", prepare_1m, make_1m, unmake },
	{ "floor_1g", prepare_1g, make_1g, unmake },
	{ "floor_1g_huge", prepare_huge, make_1g, unmake },
	{}
};
