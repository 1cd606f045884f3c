// SPDX-License-Identifier: GPL-2.0
/* Messages, memory and strings of the launcher */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "keel-run.h"

/* Milliseconds that a line waits for a reader of standard error */
#define PATIENCE	5000

/*
 * A reader that does not read must not stop keel-run, which has signals to pass
 * on: then the line is lost, and all later ones.
 */
static void print_list(const char *before, const char *format, va_list args)
{
	struct pollfd fd = { .fd = STDERR_FILENO, .events = POLLOUT };
	static atomic_bool unread;
	char text[4096];
	int len;

	len = snprintf(text, sizeof(text), "%s", before);
	vsnprintf(text + len, sizeof(text) - len - 2, format, args);
	/*
	 * One write, so that the lines of two writers do not mix. A pipe that is
	 * not full takes it at once.
	 */
	strcat(text, terminal_is_raw() ? "\r\n" : "\n");
	if (!unread && poll(&fd, 1, PATIENCE) == 0)
		unread = true;
	if (!unread)
		write_all(STDERR_FILENO, text, strlen(text));
}

/**
 * say() - print one line of keel-run's own on standard error
 * @format: as of printf(), without the name and the newline
 */
void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print_list("keel-run: ", format, args);
	va_end(args);
}

/**
 * say_more() - print one line that belongs to the last one of say()
 * @format: as of say()
 */
void say_more(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print_list("  | ", format, args);
	va_end(args);
}

/**
 * die() - print one line and end with the status of a failure of keel-run
 * @format: as of say()
 */
void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print_list("keel-run: ", format, args);
	va_end(args);
	exit(STATUS_FAILED);
}

/**
 * need_memory() - check what an allocation returned
 * @p: the memory, or NULL
 *
 * Return: @p; does not return if it is NULL.
 */
void *need_memory(void *p)
{
	if (!p)
		die("out of memory");
	return p;
}

/**
 * format() - print into a new string
 * @format: as of printf()
 *
 * Return: the string, for free().
 */
char *format(const char *format, ...)
{
	va_list args;
	char *text;
	int len;

	va_start(args, format);
	len = vasprintf(&text, format, args);
	va_end(args);
	return need_memory(len < 0 ? NULL : text);
}

/**
 * strings_add() - append to a list
 * @list: the list, zeroed at first
 * @item: a string that outlives the list
 */
void strings_add(struct strings *list, const char *item)
{
	list->item = need_memory(realloc(list->item, (list->count + 1) *
					 sizeof(*list->item)));
	list->item[list->count++] = item;
}

/**
 * write_all() - write everything
 * @fd: a blocking descriptor
 * @data: the bytes
 * @len: how many
 *
 * Return: 0, or -1 with errno set.
 */
int write_all(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		p += n;
		len -= n;
	}
	return 0;
}
