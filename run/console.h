/* SPDX-License-Identifier: GPL-2.0 */
/* The guest's console device: the launcher is its vhost-user back end. */
#ifndef KEEL_RUN_CONSOLE_H
#define KEEL_RUN_CONSOLE_H

#include "keel-run.h"
#include "queue.h"

/* Two queues of each port, and the two of the device's own control */
#define CONSOLE_RINGS		(2 * PORT_COUNT + 2)

struct console {
	int socket;
	struct guest_memory memory;
	struct queue ring[CONSOLE_RINGS];
	struct buffer control;	/* to the driver: struct virtio_console_control */
	struct buffer out;	/* to the guest's init, port 0 */
	struct buffer in;	/* from it */
	bool open[PORT_COUNT];	/* the guest opened the port */
};

enum ring_index {
	RING_IN,		/* port 0, to the guest */
	RING_OUT,		/* port 0, from the guest */
	RING_CONTROL_IN,
	RING_CONTROL_OUT,
};

static inline unsigned int ring_to_guest(enum wire_port port)
{
	return port ? 2 * port + 2 : RING_IN;
}

static inline unsigned int ring_from_guest(enum wire_port port)
{
	return ring_to_guest(port) + 1;
}

/* vhost.c */
int vhost_message(struct console *console);

/* console.c */
void console_init(struct console *console, int socket);
int console_poll(struct console *console);
void console_open_port(struct console *console, enum wire_port port, bool open);

/* pump.c: a thread for each stream */
enum pump_event {
	PUMP_EOF,		/* the caller's standard input ended */
	PUMP_BROKEN,		/* nobody reads this output any more */
	PUMP_ERROR,		/* this output cannot be written */
	PUMP_DRAINED,		/* everything was written, after pump_finish() */
};

struct pump_note {
	uint8_t port;
	uint8_t event;
};

void pump_start(struct console *console, enum wire_port port, int notes);
void pump_finish(void);

#endif
