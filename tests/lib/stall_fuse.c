// SPDX-License-Identifier: GPL-2.0
/*
 * A FUSE server that implements the protocol of <linux/fuse.h> for opening,
 * mapping and reading one file. See stall_fuse.h.
 */
#include <linux/fuse.h>
#include <poll.h>
#include <sys/stat.h>

#include "stall.h"
#include "stall_fuse.h"
#include "t.h"

#define PAGE		4096
#define ROOT		FUSE_ROOT_ID
#define FILE_NODE	2
/* Long enough for every test. */
#define VALID		100000
/* Requests that wait at the same time. */
#define MAX_WAITS	16

struct server {
	int fd;
	struct stall_board *board;
	struct fuse_in_header waits[MAX_WAITS];
	int n_waits;
};

/* ENOENT is no failure: the caller of the request has given up. */
static void answer(struct server *s, uint64_t unique, int error,
		   const void *data, size_t len)
{
	struct {
		struct fuse_out_header hdr;
		char data[PAGE];
	} out = {
		.hdr = { .len = sizeof(out.hdr) + len, .error = -error,
			 .unique = unique },
	};

	if (len)
		memcpy(out.data, data, len);
	if (write(s->fd, &out, out.hdr.len) < 0 && errno != ENOENT &&
	    errno != ENODEV)
		FAIL("answering FUSE: got %s", t_errname(errno));
}

static struct fuse_attr attributes(uint64_t node)
{
	struct fuse_attr attr = {
		.ino = node, .mode = node == ROOT ? S_IFDIR | 0755 :
						    S_IFREG | 0644,
		.nlink = 1, .uid = STALL_UID, .gid = STALL_UID,
		.size = node == ROOT ? 0 : PAGE, .blksize = PAGE,
	};

	return attr;
}

static void init(struct server *s, const struct fuse_in_header *in,
		 const struct fuse_init_in *arg)
{
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION,
		.minor = arg->minor < FUSE_KERNEL_MINOR_VERSION ? arg->minor :
						FUSE_KERNEL_MINOR_VERSION,
		.max_background = 16, .congestion_threshold = 12,
		.max_write = PAGE, .time_gran = 1,
		/* Direct I/O may be asynchronous. */
		.flags = arg->flags & FUSE_ASYNC_DIO,
	};

	answer(s, in->unique, 0, &out, sizeof(out));
}

static void lookup(struct server *s, const struct fuse_in_header *in,
		   const char *name)
{
	struct fuse_entry_out out = {
		.nodeid = FILE_NODE, .entry_valid = VALID, .attr_valid = VALID,
		.attr = attributes(FILE_NODE),
	};

	if (strcmp(name, strrchr(STALL_FILE, '/') + 1))
		answer(s, in->unique, ENOENT, NULL, 0);
	else
		answer(s, in->unique, 0, &out, sizeof(out));
}

static void getattr(struct server *s, const struct fuse_in_header *in)
{
	struct fuse_attr_out out = {
		.attr_valid = VALID, .attr = attributes(in->nodeid),
	};

	answer(s, in->unique, 0, &out, sizeof(out));
}

static void read_page(struct server *s, const struct fuse_in_header *in)
{
	static const char page[PAGE];

	answer(s, in->unique, 0, page, PAGE);
}

/* Answer the waiting requests: reads with data, lookups with ENOENT. */
static void release(struct server *s)
{
	while (s->n_waits) {
		const struct fuse_in_header *in = &s->waits[--s->n_waits];

		if (in->opcode == FUSE_READ)
			read_page(s, in);
		else
			answer(s, in->unique, ENOENT, NULL, 0);
	}
}

static void wait_for_release(struct server *s, const struct fuse_in_header *in)
{
	CHECK(s->n_waits < MAX_WAITS);
	s->waits[s->n_waits++] = *in;
	atomic_fetch_add(&s->board->waits, 1);
	if (atomic_load(&s->board->release))
		release(s);
}

static void request(struct server *s, const struct fuse_in_header *in)
{
	const void *arg = in + 1;
	struct fuse_open_out open = {};

	switch (in->opcode) {
	case FUSE_INIT:
		init(s, in, arg);
		break;
	case FUSE_LOOKUP:
		if (!strcmp(arg, strrchr(STALL_DOOR, '/') + 1))
			wait_for_release(s, in);
		else
			lookup(s, in, arg);
		break;
	case FUSE_GETATTR:
		getattr(s, in);
		break;
	case FUSE_OPEN:
		answer(s, in->unique, 0, &open, sizeof(open));
		break;
	case FUSE_READ:
		wait_for_release(s, in);
		break;
	case FUSE_FLUSH:
	case FUSE_RELEASE:
		answer(s, in->unique, 0, NULL, 0);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		/* These requests have no answer. */
		break;
	default:
		answer(s, in->unique, ENOSYS, NULL, 0);
		break;
	}
}

void fuse_serve(int fd, struct stall_board *board)
{
	struct server s = { .fd = fd, .board = board };
	struct pollfd in = { .fd = fd, .events = POLLIN };
	static char buf[FUSE_MIN_READ_BUFFER + PAGE]
		__attribute__((aligned(8)));

	for (;;) {
		if (atomic_load(&board->release))
			release(&s);
		if (poll(&in, 1, 5) <= 0)
			continue;
		if (read(fd, buf, sizeof(buf)) > 0)
			request(&s, (void *)buf);
		else if (errno == ENODEV)
			break;
	}
}
