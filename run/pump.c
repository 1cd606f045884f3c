// SPDX-License-Identifier: GPL-2.0
/*
 * The bytes of standard input, output and error. Each stream has a thread, which
 * reads and writes in the memory of the guest and may block: the caller's
 * descriptors are shared with other processes, so O_NONBLOCK is not for us.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "console.h"

/* Enough for one system call */
#define PIECES	64

struct pump {
	struct queue *ring;
	enum wire_port port;
	int fd;			/* of the caller */
	int notes;		/* where struct pump_note are written */
	bool broken;
};

static struct pump *running[PORT_COUNT];
static atomic_bool finishing;

static void note(const struct pump *pump, enum pump_event event)
{
	const struct pump_note text = { .port = pump->port, .event = event };

	write_all(pump->notes, &text, sizeof(text));
}

/* After an error: the caller may have set O_NONBLOCK on its descriptor. */
static bool try_again(int fd, short events)
{
	struct pollfd poll_fd = { .fd = fd, .events = events };

	if (errno == EAGAIN || errno == EWOULDBLOCK) {
		poll(&poll_fd, 1, -1);
		return true;
	}
	return errno == EINTR;
}

/* Fill the buffers that the guest offers. Returns what read() did. */
static ssize_t read_some(struct pump *pump, unsigned int count,
			 struct queue_chain *chains)
{
	struct iovec iov[PIECES];
	ssize_t n, left;
	unsigned int i;

	for (i = 0; i < count; i++)
		iov[i] = chains[i].iov[0];
	do {
		n = readv(pump->fd, iov, count);
	} while (n < 0 && try_again(pump->fd, POLLIN));
	for (i = 0, left = n; left > 0; i++) {
		size_t len = iov[i].iov_len;

		if (len > (size_t)left)
			len = left;
		queue_put(pump->ring, chains[i].head, len);
		left -= len;
	}
	if (n > 0)
		queue_notify(pump->ring);
	return n;
}

static void *pump_input(void *arg)
{
	struct queue_chain *chains;
	struct pump *pump = arg;
	unsigned int count;
	int ret = 1;

	chains = need_memory(calloc(PIECES, sizeof(*chains)));
	while (true) {
		for (count = 0; count < PIECES; count++) {
			ret = queue_peek(pump->ring, count, &chains[count]);
			if (ret <= 0)
				break;
		}
		if (ret < 0)
			break;
		if (!count)
			queue_wait(pump->ring);
		else if (read_some(pump, count, chains) <= 0)
			break;
	}
	free(chains);
	note(pump, PUMP_EOF);
	return NULL;
}

static void output_failed(struct pump *pump, int error)
{
	pump->broken = true;
	if (error == EPIPE) {
		note(pump, PUMP_BROKEN);
		return;
	}
	say("cannot write standard %s: %s",
	    pump->port == PORT_STDOUT ? "output" : "error", strerror(error));
	note(pump, PUMP_ERROR);
}

static void write_chain(struct pump *pump, struct queue_chain *chain)
{
	unsigned int i = 0;

	while (i < chain->count && !pump->broken) {
		struct iovec *iov = &chain->iov[i];
		ssize_t n = writev(pump->fd, iov, chain->count - i);

		if (n < 0 && try_again(pump->fd, POLLOUT))
			continue;
		if (n < 0) {
			output_failed(pump, errno);
			break;
		}
		for (; i < chain->count && (size_t)n >= iov->iov_len; iov++, i++)
			n -= iov->iov_len;
		if (i < chain->count) {
			iov->iov_base = (char *)iov->iov_base + n;
			iov->iov_len -= n;
		}
	}
}

static void *pump_output(void *arg)
{
	struct queue_chain *chain = need_memory(malloc(sizeof(*chain)));
	struct pump *pump = arg;
	bool last;
	int ret;

	do {
		/* The guest sends nothing more after pump_finish(). */
		last = atomic_load(&finishing);
		while ((ret = queue_peek(pump->ring, 0, chain)) > 0) {
			write_chain(pump, chain);
			queue_put(pump->ring, chain->head, 0);
			queue_notify(pump->ring);
		}
		if (!last && !ret)
			queue_wait(pump->ring);
	} while (!last && !ret);
	free(chain);
	note(pump, PUMP_DRAINED);
	return NULL;
}

/**
 * pump_start() - connect a port of the guest's with a stream of the caller's
 * @console: the device, whose queues are set up
 * @port: standard input, output or error
 * @notes: where to write what happens, struct pump_note
 */
void pump_start(struct console *console, enum wire_port port, int notes)
{
	struct pump *pump = need_memory(calloc(1, sizeof(*pump)));
	bool input = port == PORT_STDIN;
	pthread_t thread;
	int ret;

	pump->port = port;
	pump->fd = port - PORT_STDIN;
	pump->notes = notes;
	pump->ring = &console->ring[input ? ring_to_guest(port) :
				    ring_from_guest(port)];
	ret = queue_ready(pump->ring) ? 0 : EPROTO;
	if (!ret)
		ret = pthread_create(&thread, NULL, input ? pump_input :
				     pump_output, pump);
	if (ret)
		die("cannot start a thread: %s", strerror(ret));
	pthread_detach(thread);
	running[port] = pump;
}

/**
 * pump_finish() - have the outputs written to their end
 *
 * The guest sends no more. Each output that runs notes PUMP_DRAINED.
 */
void pump_finish(void)
{
	const uint64_t one = 1;
	enum wire_port port;

	atomic_store(&finishing, true);
	for (port = PORT_STDOUT; port < PORT_COUNT; port++)
		if (running[port])
			write_all(running[port]->ring->kick, &one, sizeof(one));
}
