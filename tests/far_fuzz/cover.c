// SPDX-License-Identifier: GPL-2.0
/*
 * Coverage of drivers/wire, and of drivers/transport/far*.c and mcast.c: the counters of gcov, one
 * for each branch, of all threads.
 */
#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>

#include "t.h"
#include "world.h"

#define FILES		"/sys/kernel/debug/gcov"
#define MAX_FILES	64
#define MAX_BYTES	(256 << 10)
#define MAX_COUNTERS	65536
/* The format of a file: words of 32 bits, and counters of 64 bits. */
#define MAGIC		0x67636461
#define HEADER_WORDS	4
#define TAG_COUNTERS	0x01a10000

static struct {
	char path[400];
	int first, n;
} files[MAX_FILES];
static int nfiles, total;
/* The process of each batch has it: bytes, 1 for a counter that was not 0. */
static uint8_t *seen;

/* Return the number of counters of a file, and note those that are new. */
static int read_file(const char *path, int first, bool *is_new)
{
	static char text[MAX_BYTES];
	uint32_t magic = 0, tag, len, i;
	int fd = SYS(open(path, O_RDONLY | O_CLOEXEC)), n = 0;
	size_t got = 0, at;
	uint64_t counter;
	ssize_t ret;

	while ((ret = read(fd, text + got, sizeof(text) - got)) > 0)
		got += ret;
	close(fd);
	memcpy(&magic, text, sizeof(magic));
	if (got < HEADER_WORDS * 4 || got == sizeof(text) || magic != MAGIC)
		FAIL("%s has no counters", path);
	for (at = HEADER_WORDS * 4; at + 8 <= got; at += len) {
		memcpy(&tag, text + at, 4);
		memcpy(&len, text + at + 4, 4);
		at += 8;
		if (tag != TAG_COUNTERS || len > got - at)
			continue;
		for (i = 0; i < len / 8; i++, n++) {
			memcpy(&counter, text + at + i * 8, 8);
			if (!counter || first + n >= MAX_COUNTERS || seen[first + n])
				continue;
			seen[first + n] = 1;
			*is_new = true;
		}
	}
	return n;
}

void cover_open(void)
{
	char *paths = t_shell("find " FILES " -name '*.gcda' | "
			      "grep -E '/drivers/(wire/|transport/(far|mcast))' | sort");
	char *path;
	bool is_new;

	seen = mmap(NULL, MAX_COUNTERS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		    0);
	CHECK(seen != MAP_FAILED);
	for (path = strtok(paths, "\n"); path && nfiles < MAX_FILES; path = strtok(NULL, "\n")) {
		snprintf(files[nfiles].path, sizeof(files[nfiles].path), "%s", path);
		files[nfiles].first = total;
		files[nfiles].n = read_file(path, total, &is_new);
		total += files[nfiles++].n;
	}
	free(paths);
	if (!nfiles)
		t_note("keel was built without gcov: inputs are chosen blindly");
}

bool cover_is_new(void)
{
	bool is_new = false;
	int i;

	for (i = 0; i < nfiles; i++)
		read_file(files[i].path, files[i].first, &is_new);
	return is_new;
}

static int count(int first, int n)
{
	int i, sum = 0;

	for (i = first; i < first + n; i++)
		sum += seen[i];
	return sum;
}

int cover_count(void)
{
	return count(0, total);
}

int cover_total(void)
{
	return total;
}

void cover_print(void)
{
	const char *name;
	int i;

	for (i = 0; i < nfiles; i++) {
		name = strstr(files[i].path, "/drivers/");
		t_note("%-34.*s %4d of %4d branches", (int)strlen(name) - 6, name + 1,
		       count(files[i].first, files[i].n), files[i].n);
	}
}
