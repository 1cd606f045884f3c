// SPDX-License-Identifier: GPL-2.0
/*
 * Issue commands on the uverbs file. A command is valid unless the input has a
 * fault pending, which replaces some of its bytes.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "fuzz.h"

#define BUF		512

const char *const method_names[M_COUNT] = {
#define METHOD(_name)	#_name,
	METHODS(METHOD)
	REFUSED_METHODS(METHOD)
#undef METHOD
};

enum where {
	IN_CORE, IN_DRIVER, IN_ATTRS, IN_HEADER, IN_LENGTH, IN_WQE, WHERES,
};

/* A fault: it applies once, to the next command or WQE that has such a part. */
struct fault {
	bool set;
	enum where where;
	uint8_t at;
	uint8_t how;
	uint32_t value;
};

static __thread struct fault fault;
static __thread bool by_write;
static __thread int file = -1;

int cmd_fd(void)
{
	return file;
}

void cmd_set_fd(int fd)
{
	file = fd;
}

void cmd_reset(void)
{
	memset(&fault, 0, sizeof(fault));
	by_write = false;
}

bool cmd_has_fault(void)
{
	return fault.set;
}

void cmd_via(bool write)
{
	by_write = write;
}

void cmd_count(enum method m, bool good)
{
	if (sh->show && !good) {
		printf("# %s: %s\n", method_names[m], strerror(errno));
		fflush(stdout);
	}
	atomic_fetch_add_explicit(&sh->calls[m], 1, memory_order_relaxed);
	if (good)
		atomic_fetch_add_explicit(&sh->good[m], 1,
					  memory_order_relaxed);
}

void cmd_spoil(const uint8_t *a)
{
	fault.set = true;
	fault.where = a[0] % WHERES;
	fault.at = a[1];
	fault.how = a[2];
	memcpy(&fault.value, &a[3], sizeof(fault.value));
}

/* Interesting numbers, by the upper bits of @how; the lower ones are the width. */
static uint64_t fault_value(void)
{
	switch (fault.how >> 4) {
	case 0:
		return 0;
	case 1:
		return ~0ULL;
	case 2:
		return 1ULL << fault.value % 64;
	case 3:
		return (1ULL << fault.value % 64) - 1;
	case 4:
		return -(uint64_t)fault.value;
	case 5:
		return (uint64_t)fault.value << 32;
	case 6:
		return fault.value % 16;
	default:
		return fault.value;
	}
}

static void spoil(enum where where, void *p, size_t len)
{
	size_t width = 1 << fault.how % 4, at;
	uint64_t value;

	if (!fault.set || fault.where != where || len < width)
		return;
	at = fault.at % (len / width) * width;
	value = fault_value();
	memcpy((char *)p + at, &value, width);
	fault.set = false;
	atomic_store(&sh->fault, true);
}

void cmd_spoil_wqe(void *wqe, size_t len)
{
	spoil(IN_WQE, wqe, len);
}

static size_t spoil_len(size_t len, size_t max)
{
	if (!fault.set || fault.where != IN_LENGTH)
		return len;
	fault.set = false;
	atomic_store(&sh->fault, true);
	len += (int8_t)fault.value;
	return len > max ? max : len;
}

static int run_method(enum method m, struct raw_cmd *raw)
{
	int ret;

	raw->hdr.length = sizeof(raw->hdr) +
			  raw->hdr.num_attrs * sizeof(raw->attrs[0]);
	spoil(IN_ATTRS, raw->attrs, raw->hdr.num_attrs * sizeof(raw->attrs[0]));
	spoil(IN_HEADER, &raw->hdr, sizeof(raw->hdr));
	ret = ioctl(file, RDMA_VERBS_IOCTL, &raw->hdr) ? errno : 0;
	errno = ret;
	cmd_count(m, !ret);
	return ret;
}

static int run_invoke(const struct cmd *cmd, const uint8_t *core,
		      const uint8_t *drv)
{
	uint64_t command = cmd->command;
	struct raw_cmd raw;

	raw_init(&raw, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
	raw_in(&raw, UVERBS_ATTR_WRITE_CMD, &command, sizeof(command));
	raw_in(&raw, UVERBS_ATTR_CORE_IN, core, cmd->core_len);
	if (cmd->resp_len)
		raw_out(&raw, UVERBS_ATTR_CORE_OUT, cmd->resp, cmd->resp_len);
	if (cmd->drv_len)
		raw_in(&raw, UVERBS_ATTR_UHW_IN, drv,
		       spoil_len(cmd->drv_len, BUF));
	if (cmd->dresp_len)
		raw_out(&raw, UVERBS_ATTR_UHW_OUT, cmd->dresp, cmd->dresp_len);
	return run_method(cmd->m, &raw);
}

/* write() has one response: the core's, followed by the driver's. */
static int run_write(const struct cmd *cmd, uint8_t *core, const uint8_t *drv)
{
	struct ib_uverbs_cmd_hdr hdr = { .command = cmd->command };
	uint8_t resp[BUF] = {};
	uint64_t at = (uintptr_t)resp;
	/* A length with a fault may reach beyond the command. */
	uint8_t buf[2 * BUF] = {};
	size_t len = sizeof(hdr);
	bool good;

	if (cmd->resp_len)
		memcpy(core, &at, sizeof(at));
	spoil(IN_CORE, core, cmd->core_len);
	memcpy(buf + len, core, cmd->core_len);
	len += cmd->core_len;
	memcpy(buf + len, drv, cmd->drv_len);
	len = spoil_len(len + cmd->drv_len, sizeof(buf));
	hdr.in_words = len / 4;
	hdr.out_words = (cmd->resp_len + cmd->dresp_len) / 4;
	spoil(IN_HEADER, &hdr, sizeof(hdr));
	memcpy(buf, &hdr, sizeof(hdr));
	good = write(file, buf, len) >= 0;
	cmd_count(cmd->m, good);
	if (!good)
		return errno;
	if (cmd->resp_len)
		memcpy(cmd->resp, resp, cmd->resp_len);
	if (cmd->dresp_len)
		memcpy(cmd->dresp, resp + cmd->resp_len, cmd->dresp_len);
	return 0;
}

int cmd_run(const struct cmd *cmd)
{
	uint8_t core[BUF] = {}, drv[BUF] = {};

	/* With a fault, a command may succeed without a response. */
	if (cmd->resp_len)
		memset(cmd->resp, 0, cmd->resp_len);
	if (cmd->dresp_len)
		memset(cmd->dresp, 0, cmd->dresp_len);
	memcpy(core, cmd->core, cmd->core_len);
	if (cmd->drv_len)
		memcpy(drv, cmd->drv, cmd->drv_len);
	spoil(IN_DRIVER, drv, cmd->drv_len);
	if (by_write && !(cmd->command & IB_USER_VERBS_CMD_FLAG_EXTENDED))
		return run_write(cmd, core, drv);
	spoil(IN_CORE, core, cmd->core_len);
	return run_invoke(cmd, core, drv);
}

int cmd_method(enum method m, uint16_t object, uint16_t method,
	       const struct attr *attrs)
{
	struct ib_uverbs_attr *new = NULL;
	uint32_t *handle = NULL;
	struct raw_cmd raw;
	int ret;

	raw_init(&raw, object, method);
	for (; attrs->kind != A_END; attrs++)
		switch (attrs->kind) {
		case A_OBJ:
			raw_obj(&raw, attrs->id, attrs->handle);
			break;
		case A_NEW:
			new = raw_new(&raw, attrs->id);
			handle = attrs->p;
			break;
		case A_IN:
			raw_in(&raw, attrs->id, attrs->p, attrs->len);
			break;
		case A_OUT:
			/* With a fault, a method may succeed without it. */
			memset(attrs->p, 0, attrs->len);
			raw_out(&raw, attrs->id, attrs->p, attrs->len);
			break;
		default:
			break;
		}
	ret = run_method(m, &raw);
	if (new)
		*handle = new->data;
	return ret;
}
