// SPDX-License-Identifier: GPL-2.0
/*
 * The char device without a library. See raw.h.
 */
#include <fcntl.h>
#include <sys/ioctl.h>

#include "raw.h"
#include "t.h"

int raw_open(const char *dev)
{
	char *name = t_shell("grep -lx %s /sys/class/infiniband_verbs/*/ibdev | "
			     "cut -d / -f 5", dev);
	char path[64];

	snprintf(path, sizeof(path), "/dev/infiniband/%s", name);
	free(name);
	return SYS(open(path, O_RDWR | O_CLOEXEC));
}

int raw_get_context(int fd)
{
	struct {
		struct ib_uverbs_get_context_resp core;
		struct keel_uapi_context_resp drv;
	} resp = {};
	struct ib_uverbs_get_context cmd = { .response = (uintptr_t)&resp };

	return raw_write(fd, IB_USER_VERBS_CMD_GET_CONTEXT, &cmd, sizeof(cmd),
			 NULL, 0, sizeof(resp));
}

void raw_init(struct raw_cmd *cmd, uint16_t object, uint16_t method)
{
	memset(cmd, 0, sizeof(*cmd));
	cmd->hdr.object_id = object;
	cmd->hdr.method_id = method;
	cmd->hdr.driver_id = KEEL_DRIVER_ID;
}

static struct ib_uverbs_attr *raw_attr(struct raw_cmd *cmd, uint16_t id)
{
	struct ib_uverbs_attr *attr;

	if (cmd->hdr.num_attrs == RAW_MAX_ATTRS)
		FAIL("got more than %d attributes", RAW_MAX_ATTRS);
	attr = &cmd->attrs[cmd->hdr.num_attrs++];
	attr->attr_id = id;
	attr->flags = RAW_MANDATORY;
	return attr;
}

struct ib_uverbs_attr *raw_obj(struct raw_cmd *cmd, uint16_t id, uint64_t handle)
{
	struct ib_uverbs_attr *attr = raw_attr(cmd, id);

	attr->data = handle;
	return attr;
}

struct ib_uverbs_attr *raw_new(struct raw_cmd *cmd, uint16_t id)
{
	return raw_attr(cmd, id);
}

struct ib_uverbs_attr *raw_out(struct raw_cmd *cmd, uint16_t id, void *p,
			       uint16_t len)
{
	struct ib_uverbs_attr *attr = raw_attr(cmd, id);

	attr->len = len;
	attr->data = (uintptr_t)p;
	return attr;
}

struct ib_uverbs_attr *raw_in(struct raw_cmd *cmd, uint16_t id, const void *p,
			      uint16_t len)
{
	struct ib_uverbs_attr *attr = raw_attr(cmd, id);

	attr->len = len;
	if (len <= sizeof(attr->data))
		memcpy(&attr->data, p, len);
	else
		attr->data = (uintptr_t)p;
	return attr;
}

int raw_run(int fd, struct raw_cmd *cmd)
{
	cmd->hdr.length = sizeof(cmd->hdr) +
			  cmd->hdr.num_attrs * sizeof(cmd->attrs[0]);
	return ioctl(fd, RDMA_VERBS_IOCTL, &cmd->hdr) ? errno : 0;
}

int raw_write(int fd, uint32_t command, const void *core, size_t core_len,
	      const void *drv, size_t drv_len, size_t resp_len)
{
	struct ib_uverbs_cmd_hdr hdr = {
		.command = command,
		.in_words = (sizeof(hdr) + core_len + drv_len) / 4,
		.out_words = resp_len / 4,
	};
	char buf[1024];

	if (sizeof(hdr) + core_len + drv_len > sizeof(buf))
		FAIL("got a command of %zu bytes", core_len + drv_len);
	memcpy(buf, &hdr, sizeof(hdr));
	memcpy(buf + sizeof(hdr), core, core_len);
	if (drv_len)
		memcpy(buf + sizeof(hdr) + core_len, drv, drv_len);
	return write(fd, buf, sizeof(hdr) + core_len + drv_len) < 0 ? errno : 0;
}

int raw_invoke(int fd, const struct raw_invoke *inv)
{
	uint64_t command = inv->command;
	struct raw_cmd cmd;

	raw_init(&cmd, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
	raw_in(&cmd, UVERBS_ATTR_WRITE_CMD, &command, sizeof(command));
	if (inv->in_len)
		raw_in(&cmd, UVERBS_ATTR_CORE_IN, inv->in, inv->in_len);
	if (inv->out_len)
		raw_out(&cmd, UVERBS_ATTR_CORE_OUT, inv->out, inv->out_len);
	if (inv->drv_in_len) {
		struct ib_uverbs_attr *attr = raw_out(&cmd, UVERBS_ATTR_UHW_IN,
						      (void *)inv->drv_in,
						      inv->drv_in_len);

		/* Up to 8 bytes are in the attribute itself. */
		if (inv->drv_in_len <= sizeof(attr->data)) {
			attr->data = 0;
			memcpy(&attr->data, inv->drv_in, inv->drv_in_len);
		}
	}
	if (inv->drv_out_len)
		raw_out(&cmd, UVERBS_ATTR_UHW_OUT, inv->drv_out,
			inv->drv_out_len);
	return raw_run(fd, &cmd);
}

int raw_rereg_mr(int fd, const struct ib_uverbs_rereg_mr *req)
{
	struct ib_uverbs_rereg_mr_resp resp;
	struct raw_invoke inv = {
		.command = IB_USER_VERBS_CMD_REREG_MR,
		.in = req, .in_len = sizeof(*req),
		.out = &resp, .out_len = sizeof(resp),
	};

	return raw_invoke(fd, &inv);
}

int raw_dm_map_skip(int fd, uint32_t dm, struct keel_uapi_dm_map *map, uint32_t *skip)
{
	struct raw_cmd cmd;
	uint64_t offset = 0;

	raw_init(&cmd, UVERBS_OBJECT_DM, KEEL_METHOD_DM_MAP);
	raw_obj(&cmd, KEEL_ATTR_DM_MAP_HANDLE, dm);
	raw_in(&cmd, KEEL_ATTR_DM_MAP_OFFSET, &offset, sizeof(offset));
	raw_out(&cmd, KEEL_ATTR_DM_MAP_RESP, map, sizeof(*map));
	raw_out(&cmd, KEEL_ATTR_DM_MAP_SKIP, skip, sizeof(*skip));
	return raw_run(fd, &cmd);
}

int raw_dm_map(int fd, uint32_t dm, uint64_t offset,
	       struct keel_uapi_dm_map *map)
{
	struct raw_cmd cmd;

	raw_init(&cmd, UVERBS_OBJECT_DM, KEEL_METHOD_DM_MAP);
	raw_obj(&cmd, KEEL_ATTR_DM_MAP_HANDLE, dm);
	raw_in(&cmd, KEEL_ATTR_DM_MAP_OFFSET, &offset, sizeof(offset));
	raw_out(&cmd, KEEL_ATTR_DM_MAP_RESP, map, sizeof(*map));
	return raw_run(fd, &cmd);
}
