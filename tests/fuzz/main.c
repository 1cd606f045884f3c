// SPDX-License-Identifier: GPL-2.0
/*
 * fuzz -OPTION... FOLDER...     run libFuzzer; see its -help=1
 * fuzz replay FILE...           execute inputs, text or binary
 * fuzz print FILE...            print inputs as text
 * fuzz pack FOLDER FILE...      write inputs as binary files
 * fuzz unpack FOLDER FILE...    write inputs as text files
 * fuzz again HISTORY            execute saved inputs, each several times, and then
 *                               all of them in their order
 * fuzz cut HISTORY              execute parts of the last saved input
 * fuzz newest HISTORY           print the last saved input as text
 * fuzz history HISTORY FOLDER   write the saved inputs as text, 00.calls first
 *
 * HISTORY is the file that a run keeps in the folder of $FUZZ_SHARE. See
 * Documentation/torture.rst.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "report.h"
#include "text.h"
#include "watch.h"

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

static bool execute(const uint8_t *data, size_t size)
{
	bool good;

	if (size > MAX_INPUT)
		size = MAX_INPUT;
	report_input(data, size);
	good = watch_input(data, size);
	report_counts(0);
	return good;
}

static int driver_execute(const uint8_t *data, size_t size)
{
	execute(data, size);
	return 0;
}

/* The name comes first: reading or executing the file may end the fuzzer. */
static void replay_file(const char *path)
{
	uint8_t data[MAX_INPUT];
	size_t size;

	printf("# replay %s\n", path);
	fflush(stdout);
	size = text_read(path, data);
	if (!execute(data, size)) {
		fprintf(stderr, "fuzz: the input ends or stops its process\n");
		report_counts(1);
		exit(3);
	}
}

static void print(const char *path)
{
	uint8_t data[MAX_INPUT];

	text_print(stdout, data, text_read(path, data));
}

static void path_in(char *to, size_t max, const char *dir, const char *path,
		    const char *suffix)
{
	const char *name = strrchr(path, '/');

	report_path(to, max, dir, name ? name + 1 : path, suffix);
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
	size_t size = text_read(path, data);
	char to[256];
	FILE *f;

	path_in(to, sizeof(to), dir, path, "");
	f = fopen(to, "w");
	if (!f || fwrite(data, 1, size, f) != size || fclose(f)) {
		perror(to);
		exit(2);
	}
}

/* The last input first: most crashes are its own. */
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
	printf("# in their order\n");
	fflush(stdout);
	for (i = 0; i < ATTEMPTS; i++)
		for (age = HISTORY - 1; age >= 0; age--) {
			size = report_read(history, age, data);
			if (size)
				execute(data, size);
		}
}

static void write_history(const char *history, const char *dir)
{
	uint8_t data[MAX_INPUT];
	char path[256], name[16];
	int age, n = 0;
	size_t size;
	FILE *f;

	for (age = HISTORY - 1; age >= 0; age--) {
		size = report_read(history, age, data);
		if (!size)
			continue;
		snprintf(name, sizeof(name), "%02d", n++);
		report_path(path, sizeof(path), dir, name, ".calls");
		f = fopen(path, "w");
		if (f)
			text_print(f, data, size);
		if (!f || fclose(f)) {
			perror(path);
			exit(2);
		}
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

	text_print(stdout, data, report_read(history, 0, data));
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
	else if (!strcmp(mode, "history") && argc > 3)
		write_history(argv[2], argv[3]);
	else
		return false;
	return true;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	int i, ret = 0;

	watch_alloc();
	if (convert(mode, argc, argv))
		return 0;
	watch_init();
	report_init(getenv("FUZZ_SHARE"));
	sh->show = !!getenv("FUZZ_SHOW");
	if (!strcmp(mode, "replay")) {
		for (i = 2; i < argc; i++)
			replay_file(argv[i]);
		printf("# all are executed\n");
	} else if (!strcmp(mode, "again") && argc > 2) {
		again(argv[2]);
	} else if (!strcmp(mode, "cut") && argc > 2) {
		cut(argv[2]);
	} else if (driver_run) {
		ret = driver_run(&argc, &argv, driver_execute);
	} else {
		fprintf(stderr, "fuzz: this fuzzer has no libFuzzer\n");
		ret = 2;
	}
	report_counts(1);
	return ret;
}
