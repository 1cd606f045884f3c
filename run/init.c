// SPDX-License-Identifier: GPL-2.0
/*
 * The first process of a keel-run guest. It gets everything from the launcher
 * over the console, mounts a root, loads the modules, runs the command, passes
 * its streams on and tells its exit status. It is linked statically, because the
 * root is the machine's: nothing is known to be there.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/reboot.h>
#include <unistd.h>

#include "init.h"

/**
 * power_off() - end the guest
 */
void power_off(void)
{
	reboot(RB_POWER_OFF);
	while (true)
		pause();
}

/**
 * fail() - tell the launcher that the command cannot run, and end the guest
 * @status: the exit status of keel-run
 * @format: the sentence it prints, as of printf()
 */
void fail(uint32_t status, const char *format, ...)
{
	struct {
		struct wire_fail head;
		char text[2048];
	} msg = { .head.status = status };
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(msg.text, sizeof(msg.text), format, args);
	va_end(args);
	if (len >= (int)sizeof(msg.text))
		len = sizeof(msg.text) - 1;
	control_send(WIRE_FAIL, &msg, sizeof(msg.head) + len);
	sync();
	/* The launcher ends the guest; should it be gone, nothing is lost. */
	sleep(10);
	power_off();
}

/**
 * warn() - have the launcher print a sentence
 * @format: as of printf()
 */
void warn(const char *format, ...)
{
	char line[1024];
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	control_send(WIRE_WARN, line, len < (int)sizeof(line) ? len :
		     (int)sizeof(line) - 1);
}

/**
 * log_line() - print a line into the kernel's log
 * @format: as of printf()
 */
void log_line(const char *format, ...)
{
	int fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC), len;
	char line[512];
	va_list args;

	if (fd < 0)
		return;
	/* A line is one write; vdprintf() does not get on with this file. */
	va_start(args, format);
	len = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	if (len > (int)sizeof(line) - 2)
		len = sizeof(line) - 2;
	/* Without it, the line is not printed before the next one. */
	line[len++] = '\n';
	write(fd, line, len);
	close(fd);
}

/**
 * text() - print into a new string
 * @format: as of printf()
 *
 * Return: the string, for free().
 */
char *text(const char *format, ...)
{
	va_list args;
	char *line;
	int len;

	va_start(args, format);
	len = vasprintf(&line, format, args);
	va_end(args);
	if (len < 0)
		fail(STATUS_FAILED, "the guest is out of memory: raise --mem");
	return line;
}

int main(void)
{
	struct settings settings = { 0 };
	struct command command;
	uint32_t status;
	int fd;

	mount_early();
	log_line("keel-run: booted");
	/* So that no stream of the command gets the number of another */
	while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
		;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	control_open();
	control_settings(&settings);
	mount_root(&settings);
	network_start();
	modules_load(&settings);
	userland_start(&settings);
	mount_directories(&settings);
	command_start(&command, &settings);
	status = relay(&command, &settings);
	if (settings.run.debug)
		debug_check();
	sync();
	control_send(WIRE_EXIT, &status, sizeof(status));
	/* The launcher reads the last output in this memory, and ends the guest. */
	while (true)
		pause();
}
