// SPDX-License-Identifier: GPL-2.0
/* The messages between the launcher and the guest's init */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "init.h"

static int control = -1;

/**
 * port_wait() - wait until the launcher has connected a port
 * @fd: the port
 *
 * Until then a read returns 0, as if the stream were over.
 */
void port_wait(int fd)
{
	const struct timespec pause = { .tv_nsec = 1000 * 1000 };
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
	int left = 10000;

	while (left-- && poll(&poll_fd, 1, 0) == 1 &&
	       poll_fd.revents & POLLHUP)
		nanosleep(&pause, NULL);
}

/**
 * port_open() - open a port of the console
 * @port: the port
 *
 * The node is removed: the command has no business there.
 *
 * Return: the descriptor; does not return if there is none.
 */
int port_open(enum wire_port port)
{
	const struct timespec pause = { .tv_nsec = 1000 * 1000 };
	char name[] = "/dev/vport0p0";
	int fd, left = 10000;

	name[strlen(name) - 1] += port;
	while ((fd = open(name, O_RDWR | O_CLOEXEC)) < 0 && left--)
		nanosleep(&pause, NULL);
	if (fd < 0)
		power_off();
	unlink(name);
	port_wait(fd);
	return fd;
}

/**
 * control_open() - connect with the launcher
 */
void control_open(void)
{
	control = port_open(PORT_CONTROL);
}

/**
 * control_fd() - what to poll for messages
 *
 * Return: the descriptor.
 */
int control_fd(void)
{
	return control;
}

/**
 * control_send() - send a message to the launcher
 * @type: of the message
 * @data: its content
 * @len: its length
 */
void control_send(enum wire_type type, const void *data, size_t len)
{
	struct wire_head head = { .type = type, .len = len };
	char *msg = malloc(sizeof(head) + len);
	size_t done = 0;

	if (control < 0 || !msg)
		power_off();
	memcpy(msg, &head, sizeof(head));
	if (len)
		memcpy(msg + sizeof(head), data, len);
	while (done < sizeof(head) + len) {
		ssize_t n = write(control, msg + done, sizeof(head) + len - done);

		if (n < 0 && errno != EINTR)
			power_off();
		if (n > 0)
			done += n;
	}
	free(msg);
}

/* Without its launcher the guest has nothing to live for. */
static void read_exactly(void *data, size_t len)
{
	char *p = data;

	while (len) {
		ssize_t n = read(control, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			power_off();
		p += n;
		len -= n;
	}
}

/**
 * control_read() - receive a message of the launcher
 * @type: set to its type
 * @data: gets its content and a zero byte
 * @size: of @data, the zero byte included
 *
 * Return: the length of the content.
 */
int control_read(enum wire_type *type, void *data, size_t size)
{
	struct wire_head head;

	read_exactly(&head, sizeof(head));
	if (head.len >= size)
		fail(STATUS_FAILED, "the guest got a message of %u bytes",
		     head.len);
	read_exactly(data, head.len);
	((char *)data)[head.len] = 0;
	*type = head.type;
	return head.len;
}

static void *grow(void *array, size_t bytes)
{
	void *p = realloc(array, bytes);

	if (!p)
		fail(STATUS_FAILED, "the guest is out of memory: raise --mem");
	return p;
}

static void list_add(struct list *list, const char *item)
{
	list->item = grow(list->item, (list->count + 2) * sizeof(char *));
	list->item[list->count++] = text("%s", item);
	list->item[list->count] = NULL;
}

static void take_fixed(void *to, size_t size, const void *data, size_t len)
{
	if (len == size)
		memcpy(to, data, size);
}

static void take(struct settings *s, enum wire_type type, const char *data,
		 size_t len)
{
	switch (type) {
	case WIRE_ARG:
		list_add(&s->args, data);
		break;
	case WIRE_ENV:
		list_add(&s->env, data);
		break;
	case WIRE_LAYER:
		list_add(&s->layers, data);
		break;
	case WIRE_RW:
		list_add(&s->rw, data);
		break;
	case WIRE_MODULE:
		list_add(&s->modules, data);
		break;
	case WIRE_CWD:
		s->cwd = text("%s", data);
		break;
	case WIRE_BUNDLE:
		s->bundle = text("%s", data);
		break;
	case WIRE_HOST:
		s->host = text("%s", data);
		break;
	case WIRE_CPU:
		s->cpu = text("%s", data);
		break;
	case WIRE_IDS:
		take_fixed(&s->ids, sizeof(s->ids), data, len);
		break;
	case WIRE_RUN:
		take_fixed(&s->run, sizeof(s->run), data, len);
		break;
	case WIRE_GROUP:
		s->groups = grow(s->groups, (s->group_count + 1) *
				 sizeof(*s->groups));
		take_fixed(&s->groups[s->group_count++], sizeof(*s->groups),
			   data, len);
		break;
	case WIRE_RLIMIT:
		s->limits = grow(s->limits, (s->limit_count + 1) *
				 sizeof(*s->limits));
		take_fixed(&s->limits[s->limit_count++], sizeof(*s->limits),
			   data, len);
		break;
	default:
		break;
	}
}

/**
 * control_settings() - receive what the launcher says before WIRE_GO
 * @settings: filled in, zeroed before
 */
void control_settings(struct settings *settings)
{
	char *data = grow(NULL, WIRE_MAX + 1);
	enum wire_type type;
	int len;

	list_add(&settings->env, "");
	free(settings->env.item[--settings->env.count]);
	settings->env.item[0] = NULL;
	while (true) {
		len = control_read(&type, data, WIRE_MAX + 1);
		if (type == WIRE_GO)
			break;
		take(settings, type, data, len);
	}
	free(data);
	if (!settings->args.count || !settings->layers.count || !settings->cwd ||
	    !settings->bundle)
		fail(STATUS_FAILED, "the guest was not told what to run");
}
