// SPDX-License-Identifier: GPL-2.0
/*
 * --debug: the reports of the kernel's checkers after the command. The
 * launcher finds it in the kernel's log.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "init.h"

#define LEAKS	"/sys/kernel/debug/kmemleak"

static void wait_for(double seconds)
{
	const struct timespec pause = {
		.tv_sec = (time_t)seconds,
		.tv_nsec = (seconds - (time_t)seconds) * 1e9,
	};

	nanosleep(&pause, NULL);
}

/*
 * A leak is keel's if its backtrace names the module, or has an address without a
 * name: that was in a module which is unloaded by now.
 */
static bool is_keels(const char *line)
{
	return strstr(line, "[keel") || !strstr(line, "+0x");
}

static void log_record(const char *record, bool keels)
{
	const char *end;

	for (; keels && *record; record = *end ? end + 1 : end) {
		end = record + strcspn(record, "\n");
		log_line("%.*s", (int)(end - record), record);
	}
}

static void log_leaks(FILE *list)
{
	char line[512], record[8192] = "";
	bool trace = false, keels = false;

	while (fgets(line, sizeof(line), list)) {
		if (!strncmp(line, "unreferenced object", 19)) {
			log_record(record, keels);
			record[0] = 0;
			trace = keels = false;
		} else if (trace && is_keels(line)) {
			keels = true;
		} else if (strstr(line, "backtrace")) {
			trace = true;
		}
		if (strlen(record) + strlen(line) < sizeof(record))
			strcat(record, line);
	}
	log_record(record, keels);
}

static void check_lockdep(void)
{
	FILE *stats = fopen("/proc/lockdep_stats", "re");
	unsigned int on = 1;
	char line[256];

	while (stats && fgets(line, sizeof(line), stats))
		if (strstr(line, "debug_locks:"))
			sscanf(strchr(line, ':'), ": %u", &on);
	if (stats)
		fclose(stats);
	if (!on)
		log_line("WARNING: lockdep has switched itself off");
}

/**
 * debug_check() - unload keel and print leaks into the kernel's log
 *
 * kmemleak trusts nothing younger than 5 seconds, and its second scan more than
 * its first.
 */
void debug_check(void)
{
	FILE *list;

	if (syscall(SYS_delete_module, "keel", O_NONBLOCK) &&
	    !access("/sys/module/keel", F_OK))
		log_line("WARNING: keel does not unload");
	check_lockdep();
	if (access(LEAKS, F_OK))
		return;
	wait_for(5.5);
	write_file(LEAKS, "scan");
	wait_for(0.5);
	write_file(LEAKS, "scan");
	list = fopen(LEAKS, "re");
	if (!list)
		return;
	log_leaks(list);
	fclose(list);
}
