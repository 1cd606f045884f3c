// SPDX-License-Identifier: GPL-2.0
/*
 * The console device: which ports there are and which are open, and the bytes of
 * port 0. The other ports belong to the threads of pump.c.
 */
#include <endian.h>
#include <linux/virtio_console.h>
#include <stdlib.h>
#include <string.h>

#include "console.h"

/* More than this the guest never sends before it is heard, or leaves unread. */
#define IN_MAX		(4 * WIRE_MAX)

/**
 * console_init() - make a device without a driver
 * @console: filled in
 * @socket: the connection to the driver
 */
void console_init(struct console *console, int socket)
{
	unsigned int i;

	memset(console, 0, sizeof(*console));
	console->socket = socket;
	for (i = 0; i < CONSOLE_RINGS; i++)
		queue_init(&console->ring[i], &console->memory);
}

static void tell(struct console *console, uint32_t port, uint16_t event,
		 uint16_t value)
{
	struct virtio_console_control msg = {
		.id = htole32(port), .event = htole16(event),
		.value = htole16(value),
	};

	buffer_add(&console->control, &msg, sizeof(msg));
}

/**
 * console_open_port() - tell the guest that a port is connected here, or not
 * @console: the device
 * @port: the port
 * @open: connected
 *
 * Sent by the next console_poll().
 */
void console_open_port(struct console *console, enum wire_port port, bool open)
{
	tell(console, port, VIRTIO_CONSOLE_PORT_OPEN, open);
}

static void heard(struct console *console, const struct iovec *iov)
{
	struct virtio_console_control msg;
	uint32_t port;

	if (iov->iov_len < sizeof(msg))
		return;
	memcpy(&msg, iov->iov_base, sizeof(msg));
	port = le32toh(msg.id);
	switch (le16toh(msg.event)) {
	case VIRTIO_CONSOLE_DEVICE_READY:
		for (port = 0; port < PORT_COUNT; port++)
			tell(console, port, VIRTIO_CONSOLE_PORT_ADD, 1);
		break;
	case VIRTIO_CONSOLE_PORT_READY:
		if (port < PORT_COUNT)
			console_open_port(console, port, true);
		break;
	case VIRTIO_CONSOLE_PORT_OPEN:
		if (port < PORT_COUNT)
			console->open[port] = le16toh(msg.value);
		break;
	}
}

/*
 * Take what the guest has put into @ring, with @handle for each piece. Not more
 * than the ring holds: for what the guest adds meanwhile it kicks again.
 */
static int take_all(struct console *console, struct queue *ring,
		    void (*handle)(struct console *, const struct iovec *))
{
	struct queue_chain chain;
	unsigned int i, taken;
	int ret = 0;

	if (!queue_ready(ring))
		return 0;
	for (taken = 0; taken < ring->num; taken++) {
		ret = queue_peek(ring, 0, &chain);
		if (ret <= 0)
			break;
		for (i = 0; i < chain.count; i++)
			handle(console, &chain.iov[i]);
		queue_put(ring, chain.head, 0);
		if (console->in.len > IN_MAX || console->control.len > IN_MAX)
			return -1;
	}
	if (taken)
		queue_notify(ring);
	return ret < 0 ? ret : 0;
}

static void heard_init(struct console *console, const struct iovec *iov)
{
	/* One byte more is enough to be noticed. */
	buffer_add(&console->in, iov->iov_base, iov->iov_len <= IN_MAX ?
		   iov->iov_len : IN_MAX + 1);
}

/* As much of @buf as the guest has room for, @piece bytes to a chain. */
static int send_some(struct queue *ring, struct buffer *buf, size_t piece)
{
	struct queue_chain chain;
	size_t sent = 0;
	int ret = 0;

	if (!queue_ready(ring))
		return 0;
	while (sent < buf->len && (ret = queue_peek(ring, 0, &chain)) > 0) {
		size_t len = chain.iov[0].iov_len;

		if (len > buf->len - sent)
			len = buf->len - sent;
		if (piece && len > piece)
			len = piece;
		memcpy(chain.iov[0].iov_base, buf->data + sent, len);
		queue_put(ring, chain.head, len);
		sent += len;
	}
	if (sent)
		queue_notify(ring);
	buffer_drop(buf, sent);
	return ret < 0 ? ret : 0;
}

/**
 * console_poll() - move what can be moved
 * @console: the device
 *
 * Takes what the driver and the guest's init said, and sends what is for them.
 *
 * Return: 0, or -1 if the guest broke the rules of its queues.
 */
int console_poll(struct console *console)
{
	if (take_all(console, &console->ring[RING_CONTROL_OUT], heard) ||
	    take_all(console, &console->ring[RING_OUT], heard_init) ||
	    send_some(&console->ring[RING_CONTROL_IN], &console->control,
		      sizeof(struct virtio_console_control)))
		return -1;
	if (!console->open[PORT_CONTROL])
		return 0;
	return send_some(&console->ring[RING_IN], &console->out, 0) ? -1 : 0;
}
