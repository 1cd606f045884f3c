// SPDX-License-Identifier: GPL-2.0
/* The kernel's log: why the guest died, and what it complained about */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "keel-run.h"

#define LOG_MAX	(8 << 20)

/* The whole log, or its last part. For free(). */
static char *read_log(const struct guest *guest)
{
	off_t size = lseek(guest->log, 0, SEEK_END);
	off_t start = size > LOG_MAX ? size - LOG_MAX : 0;
	char *text = need_memory(calloc(1, LOG_MAX + 1));
	ssize_t n, len = 0;

	while (size > 0 && len < LOG_MAX) {
		n = pread(guest->log, text + len, LOG_MAX - len, start + len);
		if (n <= 0)
			break;
		len += n;
	}
	/* A zero byte would hide the rest. */
	for (n = 0; n < len; n++)
		if (!text[n])
			text[n] = ' ';
	return text;
}

static void print_tail(const char *text, int lines)
{
	const char *p = text + strlen(text);

	while (p > text && lines >= 0)
		if (*--p == '\n')
			lines--;
	if (*p == '\n')
		p++;
	while (*p) {
		int len = strcspn(p, "\r\n");

		if (len)
			say_more("%.*s", len, p);
		p += len + strspn(p + len, "\r\n");
	}
}

/* Things that a machine may lack, by the words of the kernel */
static const struct {
	const char *pattern, *sentence;
} causes[] = {
	{ "keel-run: exec: Permission",
	  "the kernel cannot be executed: is the bundle on a file system mounted noexec?" },
	{ "keel-run: exec:", "the kernel cannot be executed" },
	{ "SECCOMP userspace requested but not functional",
	  "this machine forbids the seccomp filters that the guest needs: allow seccomp(2)" },
	{ "check_seccomp",
	  "this machine forbids the seccomp filters that the guest needs: allow seccomp(2)" },
	{ "setup_physmem - mapping",
	  "there is no address space for the guest: lower --mem, or raise \"ulimit -v\"" },
	{ "start_userspace : clone failed",
	  "the guest may not start processes: raise \"ulimit -u\"" },
	{ "Couldn't allocate shadow memory",
	  "there is no address space for the guest: raise \"ulimit -v\"" },
	{ "No space left on device",
	  "there is no memory for the guest: lower --mem" },
	{ "Cannot allocate memory",
	  "there is no memory for the guest: lower --mem, or raise \"ulimit -v\"" },
	{ "must be not mounted noexec",
	  "the guest's memory cannot be executed: set TMPDIR to a directory that is not mounted noexec" },
	{ "Out of memory", "the guest ran out of memory: raise --mem" },
	{ "System is deadlocked on memory",
	  "the guest ran out of memory: raise --mem" },
};

/**
 * report_death() - explain a guest that ended without a word
 * @guest: the guest
 */
void report_death(const struct guest *guest)
{
	char *text = read_log(guest);
	size_t i;

	for (i = 0; i < sizeof(causes) / sizeof(causes[0]); i++)
		if (strstr(text, causes[i].pattern))
			break;
	if (i < sizeof(causes) / sizeof(causes[0])) {
		say("%s", causes[i].sentence);
	} else {
		say("the guest died; the log of its kernel ends:");
		print_tail(text, 12);
	}
	free(text);
}

/**
 * report_slow() - explain a guest that does not come up
 * @guest: the guest
 */
void report_slow(const struct guest *guest)
{
	char *text = read_log(guest);

	say("the guest did not start in time; the log of its kernel ends:");
	print_tail(text, 12);
	free(text);
}

/* How reports of the checkers begin */
static const char * const complaints[] = {
	"BUG: ", "WARNING: ", "Oops: ", "UBSAN: ", "KASAN: ", "kernel BUG at",
	"INFO: task ", "possible recursive locking", "possible circular locking",
	"suspicious RCU usage", "unreferenced object", "DMA-API: ",
	"Kernel panic",
};

/**
 * report_complaints() - print what the kernel complained about
 * @guest: the guest, which runs the kernel with the checkers
 *
 * The boot of that kernel has reports of its own: only what came after the
 * mark "keel-run: booted" counts.
 *
 * Return: true if there was anything.
 */
bool report_complaints(const struct guest *guest)
{
	char *text = read_log(guest), *start, *found = NULL, *p;
	size_t i;

	/* report_death() has told of a guest that did not come so far. */
	start = strstr(text, "keel-run: booted");
	for (i = 0; start && i < sizeof(complaints) / sizeof(complaints[0]); i++) {
		p = strstr(start, complaints[i]);
		if (p && (!found || p < found))
			found = p;
	}
	if (found) {
		while (found > start && found[-1] != '\n')
			found--;
		/* A page of the report is enough. */
		for (p = found, i = 0; *p && i < 60; p++)
			i += *p == '\n';
		*p = 0;
		say("the kernel complained:");
		print_tail(found, 61);
	}
	free(text);
	return found;
}
