// SPDX-License-Identifier: GPL-2.0
/*
 * fuzz -OPTION... FOLDER...     run libFuzzer; see its -help=1
 * fuzz replay FILE...           execute inputs, text or binary
 * fuzz print FILE...            print inputs as text
 * fuzz pack FOLDER FILE...      write inputs as binary files
 * fuzz unpack FOLDER FILE...    write inputs as text files
 * fuzz again HISTORY            execute saved inputs, each several times
 * fuzz cut HISTORY              execute parts of the last saved input
 * fuzz newest HISTORY           print the last saved input as text
 *
 * HISTORY is the file that a run keeps in the folder of $FUZZ_SHARE. See
 * Documentation/testing.rst.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "report.h"
#include "text.h"

/* A race does not happen each time. */
#define ATTEMPTS	10

/*
 * The interface of libFuzzer. Without the library, inputs can be executed, but
 * not found.
 */
int driver_run(int *argc, char ***argv,
	       int (*run)(const uint8_t *data, size_t size))
	__asm__("LLVMFuzzerRunDriver") __attribute__((weak));
size_t driver_mutate(uint8_t *data, size_t size, size_t max, unsigned int seed)
	__asm__("LLVMFuzzerCustomMutator");
size_t driver_cross(const uint8_t *one, size_t n, const uint8_t *other,
		    size_t m, uint8_t *out, size_t max, unsigned int seed)
	__asm__("LLVMFuzzerCustomCrossOver");

size_t driver_mutate(uint8_t *data, size_t size, size_t max, unsigned int seed)
{
	return text_mutate(data, size, max, seed);
}

size_t driver_cross(const uint8_t *one, size_t n, const uint8_t *other,
		    size_t m, uint8_t *out, size_t max, unsigned int seed)
{
	return text_cross(one, n, other, m, out, max, seed);
}

static int execute(const uint8_t *data, size_t size)
{
	if (size > MAX_INPUT)
		size = MAX_INPUT;
	report_input(data, size);
	exec_input(data, size);
	report_counts(0);
	return 0;
}

static void replay(const char *path)
{
	uint8_t data[MAX_INPUT];
	size_t size = text_read(path, data, sizeof(data));

	printf("# %s\n", path);
	fflush(stdout);
	execute(data, size);
}

static void print_input(const uint8_t *data, size_t size)
{
	printf("# SPDX-License-Identifier: GPL-2.0\n");
	text_print(data, size);
}

static void print(const char *path)
{
	uint8_t data[MAX_INPUT];

	print_input(data, text_read(path, data, sizeof(data)));
}

static void path_in(char *to, size_t max, const char *dir, const char *path,
		    const char *suffix)
{
	const char *name = strrchr(path, '/');

	snprintf(to, max, "%s/%s%s", dir, name ? name + 1 : path, suffix);
}

static void unpack(const char *dir, const char *path)
{
	char to[256];

	path_in(to, sizeof(to), dir, path, ".calls");
	if (!freopen(to, "w", stdout)) {
		perror(to);
		exit(2);
	}
	print(path);
}

static void pack(const char *dir, const char *path)
{
	uint8_t data[MAX_INPUT];
	size_t size = text_read(path, data, sizeof(data));
	char to[256];
	FILE *f;

	path_in(to, sizeof(to), dir, path, "");
	f = fopen(to, "w");
	if (!f || fwrite(data, 1, size, f) != size || fclose(f)) {
		perror(to);
		exit(2);
	}
}

static void again(const char *history)
{
	uint8_t data[MAX_INPUT];
	int age, i;
	size_t size;

	for (age = 0; age < HISTORY; age++) {
		size = report_read(history, age, data);
		for (i = 0; i < ATTEMPTS && size; i++)
			execute(data, size);
	}
}

/* Leave out half of the calls, then a quarter, and so on. */
static void cut(const char *history)
{
	size_t size, chunk, at, call = sizeof(struct call);
	uint8_t data[MAX_INPUT], part[MAX_INPUT];
	int i;

	size = report_read(history, 0, data);
	for (chunk = size / call / 2; chunk; chunk /= 2)
		for (at = 0; at < size; at += chunk * call) {
			size_t end = at + chunk * call;

			if (end > size)
				end = size;
			memcpy(part, data, at);
			memcpy(part + at, data + end, size - end);
			for (i = 0; i < ATTEMPTS; i++)
				execute(part, size - (end - at));
		}
}

static void newest(const char *history)
{
	uint8_t data[MAX_INPUT];

	print_input(data, report_read(history, 0, data));
}

/* Modes that need no device; return false if this is none of them. */
static bool convert(const char *mode, int argc, char **argv)
{
	int i;

	if (!strcmp(mode, "print"))
		for (i = 2; i < argc; i++)
			print(argv[i]);
	else if (!strcmp(mode, "pack"))
		for (i = 3; i < argc; i++)
			pack(argv[2], argv[i]);
	else if (!strcmp(mode, "unpack"))
		for (i = 3; i < argc; i++)
			unpack(argv[2], argv[i]);
	else if (!strcmp(mode, "newest") && argc > 2)
		newest(argv[2]);
	else
		return false;
	return true;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	int i, ret = 0;

	exec_init();
	if (convert(mode, argc, argv))
		return 0;
	report_init(getenv("FUZZ_SHARE"));
	sh->show = !!getenv("FUZZ_SHOW");
	if (!strcmp(mode, "replay")) {
		for (i = 2; i < argc; i++)
			replay(argv[i]);
	} else if (!strcmp(mode, "again") && argc > 2) {
		again(argv[2]);
	} else if (!strcmp(mode, "cut") && argc > 2) {
		cut(argv[2]);
	} else if (driver_run) {
		ret = driver_run(&argc, &argv, execute);
	} else {
		fprintf(stderr, "fuzz: this program has no libFuzzer\n");
		ret = 2;
	}
	report_counts(1);
	return ret;
}
