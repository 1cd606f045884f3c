// SPDX-License-Identifier: GPL-2.0
/*
 * Files for the host. They are written through to the host, because the guest may
 * end at any time. See report.h.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"
#include "report.h"

struct saved {
	uint64_t number;
	uint64_t size;
	uint8_t data[MAX_INPUT];
};

static int inputs = -1, covered = -1;
static char counts[256];
static const char *folder;
static uint64_t execs;
static time_t start, last;
static uint8_t known[MAX_TEXT / 8];

void report_path(char *to, size_t max, const char *dir, const char *name,
		 const char *suffix)
{
	if (snprintf(to, max, "%s/%s%s", dir, name, suffix) >= (int)max) {
		fprintf(stderr, "fuzz: the path %s is too long\n", dir);
		exit(2);
	}
}

static int file_open(const char *dir, const char *name, int flags)
{
	char path[256];
	int fd;

	report_path(path, sizeof(path), dir, name, "");
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | flags, 0644);
	if (fd < 0) {
		perror(path);
		exit(2);
	}
	return fd;
}

void report_init(const char *dir)
{
	start = time(NULL);
	folder = dir;
	if (!dir)
		return;
	inputs = file_open(dir, "last", O_TRUNC);
	covered = file_open(dir, "covered", O_APPEND);
	report_path(counts, sizeof(counts), dir, "counts", "");
}

void report_input(const uint8_t *data, size_t size)
{
	static struct saved saved;
	off_t at = execs % HISTORY * sizeof(saved);

	execs++;
	if (inputs < 0)
		return;
	saved.number = execs;
	saved.size = size;
	memcpy(saved.data, data, size);
	if (pwrite(inputs, &saved, sizeof(saved), at) != sizeof(saved) ||
	    sync_file_range(inputs, at, sizeof(saved),
			    SYNC_FILE_RANGE_WAIT_BEFORE |
			    SYNC_FILE_RANGE_WRITE |
			    SYNC_FILE_RANGE_WAIT_AFTER)) {
		perror("fuzz: cannot save the input");
		exit(2);
	}
}

void report_ended(const uint8_t *data, size_t size)
{
	static unsigned int number;
	char path[256], name[32];
	FILE *f;

	if (!folder || number == HISTORY)
		return;
	snprintf(name, sizeof(name), "ended.%u", number++);
	report_path(path, sizeof(path), folder, name, ".calls");
	f = fopen(path, "w");
	if (f)
		text_print(f, data, size);
	if (!f || fclose(f))
		perror(path);
}

size_t report_read(const char *path, int age, uint8_t *data)
{
	static struct saved all[HISTORY];
	uint64_t newest = 0;
	FILE *f = fopen(path, "r");
	size_t i, n;

	if (!f) {
		perror(path);
		exit(2);
	}
	n = fread(all, sizeof(all[0]), HISTORY, f);
	fclose(f);
	for (i = 0; i < n; i++)
		if (all[i].number > newest)
			newest = all[i].number;
	for (i = 0; i < n; i++)
		if (all[i].number && all[i].number == newest - age &&
		    all[i].size <= MAX_INPUT) {
			memcpy(data, all[i].data, all[i].size);
			return all[i].size;
		}
	return 0;
}

/* Addresses that were covered for the first time since the last call. */
static void write_covered(void)
{
	char line[32];
	size_t i;
	int bit, n;

	for (i = 0; i < sizeof(known); i++) {
		uint8_t new = sh->seen[i] & ~known[i];

		for (bit = 0; new && bit < 8; bit++) {
			if (!(new >> bit & 1))
				continue;
			n = snprintf(line, sizeof(line), "0x%zx\n", i * 8 + bit);
			if (write(covered, line, n) != n)
				return;
		}
		known[i] |= new;
	}
	/* Also the inputs that libFuzzer keeps. */
	syncfs(covered);
}

static void write_counts(FILE *f)
{
	int i;

	fprintf(f, "execs %llu\nseconds %lld\nposted %llu\n",
		(unsigned long long)execs, (long long)(time(NULL) - start),
		atomic_load(&sh->posted));
	fprintf(f, "late %llu\ndied %llu\nspoiled %llu\ntruncated %llu\n",
		atomic_load(&sh->late), atomic_load(&sh->died),
		atomic_load(&sh->spoiled), atomic_load(&sh->truncated));
	for (i = 0; i < WC_STATUSES; i++) {
		if (sh->sent[i])
			fprintf(f, "sent.%d %llu\n", i, sh->sent[i]);
		if (sh->received[i])
			fprintf(f, "received.%d %llu\n", i, sh->received[i]);
	}
	for (i = M_FIRST_REFUSED; i < M_COUNT; i++)
		fprintf(f, "refused.%s %llu\n", method_names[i], sh->calls[i]);
	for (i = 0; i < M_FIRST_REFUSED; i++)
		fprintf(f, "calls.%s %llu\ngood.%s %llu\n", method_names[i],
			sh->calls[i], method_names[i], sh->good[i]);
}

void report_counts(int now)
{
	char temporary[sizeof(counts) + 4];
	FILE *f;

	if (inputs < 0 || (!now && time(NULL) == last))
		return;
	last = time(NULL);
	write_covered();
	snprintf(temporary, sizeof(temporary), "%s.new", counts);
	f = fopen(temporary, "w");
	if (!f)
		return;
	write_counts(f);
	fflush(f);
	fsync(fileno(f));
	fclose(f);
	rename(temporary, counts);
}
