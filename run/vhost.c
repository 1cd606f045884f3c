// SPDX-License-Identifier: GPL-2.0
/*
 * The vhost-user protocol, as far as the driver of User Mode Linux speaks it:
 * one region of memory, split queues, a descriptor for each kick and call.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_config.h>
#include <linux/virtio_console.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "console.h"

enum request {
	GET_FEATURES = 1,
	SET_FEATURES = 2,
	SET_OWNER = 3,
	SET_MEM_TABLE = 5,
	SET_VRING_NUM = 8,
	SET_VRING_ADDR = 9,
	SET_VRING_BASE = 10,
	SET_VRING_KICK = 12,
	SET_VRING_CALL = 13,
	GET_PROTOCOL_FEATURES = 15,
	SET_PROTOCOL_FEATURES = 16,
	GET_QUEUE_NUM = 17,
	SET_VRING_ENABLE = 18,
	GET_CONFIG = 24,
	SET_CONFIG = 25,
};

#define VERSION			1u
#define FLAG_REPLY		(1u << 2)
#define F_PROTOCOL_FEATURES	(1ull << 30)
#define PROTOCOL_F_MQ		(1ull << 0)
#define PROTOCOL_F_CONFIG	(1ull << 9)
#define VRING_NO_FD		(1ull << 8)

struct header {
	uint32_t request, flags, size;
};

struct region {
	uint64_t guest, size, user, offset;
};

struct message {
	struct header head;
	union {
		uint64_t number;
		struct {
			uint32_t index, num;
		} state;
		struct {
			uint32_t index, flags;
			uint64_t desc, used, avail, log;
		} addr;
		struct {
			uint32_t count, pad;
			struct region region[2];
		} memory;
		struct {
			uint32_t offset, size, flags;
			unsigned char data[64];
		} config;
		unsigned char bytes[256];
	} u;
	int fd;			/* the first that came with it, or -1 */
};

/* Keep the first descriptor that came, close the rest. */
static void take_descriptors(struct message *msg, struct msghdr *hdr)
{
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(hdr); c; c = CMSG_NXTHDR(hdr, c)) {
		size_t i, count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int fds[8];

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		if (count > 8)
			count = 8;
		memcpy(fds, CMSG_DATA(c), count * sizeof(int));
		for (i = 0; i < count; i++) {
			if (msg->fd < 0)
				msg->fd = fds[i];
			else
				close(fds[i]);
		}
	}
}

static int receive(int socket, struct message *msg)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(8 * sizeof(int))];
	} control;
	struct iovec iov = { &msg->head, sizeof(msg->head) };
	struct msghdr hdr = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof(control),
	};
	ssize_t n;

	memset(msg, 0, sizeof(*msg));
	msg->fd = -1;
	do {
		n = recvmsg(socket, &hdr, MSG_WAITALL | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (!n || (n < 0 && errno == ECONNRESET))
		return 1;
	if (n > 0)
		take_descriptors(msg, &hdr);
	if (n != sizeof(msg->head) || msg->head.size > sizeof(msg->u))
		return -1;
	if (msg->head.size &&
	    recv(socket, &msg->u, msg->head.size, MSG_WAITALL) !=
	    (ssize_t)msg->head.size)
		return -1;
	return 0;
}

static int reply(int socket, struct message *msg, uint32_t size)
{
	msg->head.flags = VERSION | FLAG_REPLY;
	msg->head.size = size;
	/* In the structure there is a gap between the two. */
	if (write_all(socket, &msg->head, sizeof(msg->head)))
		return -1;
	return write_all(socket, &msg->u, size);
}

static int reply_number(int socket, struct message *msg, uint64_t number)
{
	msg->u.number = number;
	return reply(socket, msg, sizeof(number));
}

static int set_memory(struct console *console, const struct message *msg)
{
	struct guest_memory *memory = &console->memory;
	const struct region *region = &msg->u.memory.region[0];
	void *map;

	if (msg->u.memory.count != 1 || msg->fd < 0 || memory->map)
		return -1;
	map = mmap(NULL, region->size, PROT_READ | PROT_WRITE, MAP_SHARED,
		   msg->fd, region->offset);
	if (map == MAP_FAILED) {
		say("cannot map the guest's memory: %s", strerror(errno));
		return -1;
	}
	memory->map = map;
	memory->guest_start = region->guest;
	memory->user_start = region->user;
	memory->size = region->size;
	return 0;
}

static int get_config(int socket, struct message *msg)
{
	struct virtio_console_config config = {
		.max_nr_ports = htole32(PORT_COUNT),
	};
	uint32_t offset = msg->u.config.offset, size = msg->u.config.size;

	if (size > sizeof(msg->u.config.data) || offset > sizeof(config))
		return -1;
	memset(msg->u.config.data, 0, size);
	if (size > sizeof(config) - offset)
		size = sizeof(config) - offset;
	memcpy(msg->u.config.data, (char *)&config + offset, size);
	return reply(socket, msg, msg->head.size);
}

/* The descriptor of the message goes to the queue. */
static int set_descriptor(struct console *console, struct message *msg)
{
	uint64_t index = msg->u.number & 0xff;
	struct queue *ring;
	int *fd;

	if (index >= CONSOLE_RINGS)
		return -1;
	ring = &console->ring[index];
	fd = msg->head.request == SET_VRING_KICK ? &ring->kick : &ring->call;
	if (*fd >= 0 || msg->u.number & VRING_NO_FD)
		return -1;
	/*
	 * The main loop must not wait for the guest: neither when it interrupts
	 * a guest that is late, nor for a kick that is not there any more. The
	 * threads of pump.c wait for their kicks.
	 */
	if (msg->fd < 0 || ((fd == &ring->call || index <= RING_CONTROL_OUT) &&
			    fcntl(msg->fd, F_SETFL, O_RDWR | O_NONBLOCK)))
		return -1;
	*fd = msg->fd;
	msg->fd = -1;
	return 0;
}

static int set_ring(struct console *console, const struct message *msg)
{
	uint32_t index = msg->u.state.index;
	struct queue *ring;

	if (index >= CONSOLE_RINGS)
		return -1;
	ring = &console->ring[index];
	/* A queue was checked against its size, and a thread may use it. */
	if (ring->desc && msg->head.request != SET_VRING_ENABLE)
		return -1;
	switch (msg->head.request) {
	case SET_VRING_NUM:
		if (!msg->u.state.num || msg->u.state.num > 32768)
			return -1;
		ring->num = msg->u.state.num;
		return 0;
	case SET_VRING_BASE:
		ring->next = ring->done = msg->u.state.num;
		return 0;
	case SET_VRING_ENABLE:
		ring->enabled = msg->u.state.num;
		return 0;
	default:
		return queue_set_addr(ring, msg->u.addr.desc, msg->u.addr.avail,
				      msg->u.addr.used);
	}
}

static int handle(struct console *console, struct message *msg)
{
	int socket = console->socket;

	switch (msg->head.request) {
	case GET_FEATURES:
		return reply_number(socket, msg, F_PROTOCOL_FEATURES |
				    1ull << VIRTIO_F_VERSION_1 |
				    1ull << VIRTIO_CONSOLE_F_MULTIPORT);
	case GET_PROTOCOL_FEATURES:
		return reply_number(socket, msg, PROTOCOL_F_CONFIG |
				    PROTOCOL_F_MQ);
	case GET_QUEUE_NUM:
		return reply_number(socket, msg, CONSOLE_RINGS);
	case GET_CONFIG:
		return get_config(socket, msg);
	case SET_OWNER:
	case SET_FEATURES:
	case SET_PROTOCOL_FEATURES:
	case SET_CONFIG:
		return 0;
	case SET_MEM_TABLE:
		return set_memory(console, msg);
	case SET_VRING_NUM:
	case SET_VRING_BASE:
	case SET_VRING_ENABLE:
	case SET_VRING_ADDR:
		return set_ring(console, msg);
	case SET_VRING_KICK:
	case SET_VRING_CALL:
		return set_descriptor(console, msg);
	default:
		return -1;
	}
}

/**
 * vhost_message() - receive one message of the guest's driver and obey it
 * @console: the device; its socket has something to read
 *
 * Return: 0; 1 if the guest is over; -1 if it broke the protocol.
 */
int vhost_message(struct console *console)
{
	struct message msg;
	int ret;

	ret = receive(console->socket, &msg);
	if (!ret)
		ret = handle(console, &msg);
	if (msg.fd >= 0)
		close(msg.fd);
	return ret;
}
