/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The char device without a library: RDMA_VERBS_IOCTL and write() commands
 * whose fields a test can set freely.
 */
#ifndef RAW_H
#define RAW_H

#include <stddef.h>
#include <stdint.h>

#include <rdma/ib_user_verbs.h>
#include <rdma/keel-abi.h>
#include <rdma/rdma_user_ioctl.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#define RAW_MAX_ATTRS	16
#define RAW_MANDATORY	UVERBS_ATTR_F_MANDATORY

/* An ioctl command under construction. */
struct raw_cmd {
	struct ib_uverbs_ioctl_hdr hdr;
	struct ib_uverbs_attr attrs[RAW_MAX_ATTRS];
};

/* Open the device without a context. */
int raw_open(const char *dev);
/* Get a context, as ibv_open_device() does: return 0 or errno. */
int raw_get_context(int fd);

void raw_init(struct raw_cmd *cmd, uint16_t object, uint16_t method);
/* Add an attribute; return it, so that a test can spoil it. */
struct ib_uverbs_attr *raw_obj(struct raw_cmd *cmd, uint16_t id, uint64_t handle);
struct ib_uverbs_attr *raw_new(struct raw_cmd *cmd, uint16_t id);
struct ib_uverbs_attr *raw_out(struct raw_cmd *cmd, uint16_t id, void *p,
			       uint16_t len);
/* Up to 8 bytes are copied into the attribute itself. */
struct ib_uverbs_attr *raw_in(struct raw_cmd *cmd, uint16_t id, const void *p,
			      uint16_t len);
/* Return 0 or errno. */
int raw_run(int fd, struct raw_cmd *cmd);

/* Send a write() command with core and driver data: return 0 or errno. */
int raw_write(int fd, uint32_t command, const void *core, size_t core_len,
	      const void *drv, size_t drv_len, size_t resp_len);
/*
 * Send the same commands by UVERBS_METHOD_INVOKE_WRITE: return 0 or errno. NULL
 * with length 0 leaves an attribute out; NULL with a length is passed on.
 */
struct raw_invoke {
	uint32_t command;
	const void *in;
	uint16_t in_len;
	void *out;
	uint16_t out_len;
	const void *drv_in;
	uint16_t drv_in_len;
	void *drv_out;
	uint16_t drv_out_len;
};

int raw_invoke(int fd, const struct raw_invoke *inv);

/*
 * ibv_rereg_mr() without the library, which refuses imported MRs and a length
 * of 0: return 0 or errno. @req needs no response.
 */
int raw_rereg_mr(int fd, const struct ib_uverbs_rereg_mr *req);

/* KEEL_METHOD_DM_MAP: return 0 or errno. */
int raw_dm_map(int fd, uint32_t dm, uint64_t offset,
	       struct keel_uapi_dm_map *map);

/* The same at offset 0, for a buffer that may share its page. */
int raw_dm_map_skip(int fd, uint32_t dm, struct keel_uapi_dm_map *map, uint32_t *skip);

#endif /* RAW_H */
