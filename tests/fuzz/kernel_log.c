// SPDX-License-Identifier: GPL-2.0
/*
 * Reports of the kernel in its log. See kernel_log.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernel_log.h"

static int kernel_log = -1;
static regex_t reports;

/* A file of extended regular expressions becomes one of them. */
static const char *read_reports(FILE *f)
{
	char all[4096] = "", line[256];
	size_t n = 0;

	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (*line && *line != '#')
			n += snprintf(all + n, sizeof(all) - n, "%s%s", n ? "|" : "", line);
		if (n >= sizeof(all))
			return "there are too many patterns";
	}
	if (!n || regcomp(&reports, all, REG_EXTENDED | REG_NOSUB))
		return "the patterns are wrong";
	return NULL;
}

const char *kernel_log_open(const char *path)
{
	FILE *f = path ? fopen(path, "re") : NULL;
	const char *why;

	if (!f)
		return "the file of patterns cannot be read";
	why = read_reports(f);
	fclose(f);
	if (why)
		return why;
	kernel_log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (kernel_log < 0 || lseek(kernel_log, 0, SEEK_END) < 0)
		return "/dev/kmsg cannot be read";
	return NULL;
}

const char *kernel_log_report(void)
{
	static char record[8192];
	char *text;
	ssize_t n;

	while (kernel_log >= 0) {
		n = read(kernel_log, record, sizeof(record) - 1);
		/* The kernel has overwritten the next record. */
		if (n < 0 && errno == EPIPE)
			continue;
		if (n <= 0)
			return NULL;
		record[n] = 0;
		text = strchr(record, ';');
		if (!text)
			continue;
		text[strcspn(text, "\n")] = 0;
		if (!regexec(&reports, ++text, 0, NULL, 0))
			return text;
	}
	return NULL;
}
