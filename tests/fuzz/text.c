// SPDX-License-Identifier: GPL-2.0
/*
 * Inputs as text, one call a line: the name of the call, and its arguments in
 * hexadecimal. And the mutation of inputs, which keeps calls whole.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "text.h"

/* The first bytes of an input as text. No binary input starts with them. */
#define MAGIC	"# SPDX"

int op_count(void)
{
	int n = 0, i;

	for (i = 0; i < op_tables_count; i++)
		n += *op_tables[i].count;
	return n;
}

/* Any number is an operation. */
const struct op *op_of(uint8_t number)
{
	int n = number % op_count(), i;

	for (i = 0; n >= *op_tables[i].count; i++)
		n -= *op_tables[i].count;
	return &op_tables[i].ops[n];
}

static int op_find(const char *name)
{
	int i;

	for (i = 0; i < op_count(); i++)
		if (!strcmp(op_of(i)->name, name))
			return i;
	return -1;
}

uint64_t random_next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static __attribute__((noreturn)) void bad(const char *path, int line,
					  const char *why, const char *word)
{
	fprintf(stderr, "fuzz: %s:%d: %s%s%s%s\n", path, line, why,
		word ? " \"" : "", word ? word : "", word ? "\"" : "");
	exit(2);
}

/* Return false if the line is empty or a comment. */
static bool read_line(const char *path, int number, char *line,
		      struct call *call)
{
	char *word, *end;
	int i, op;

	line[strcspn(line, "#")] = 0;
	word = strtok(line, " \t\n");
	memset(call, 0, sizeof(*call));
	if (!word)
		return false;
	op = op_find(word);
	if (op < 0)
		bad(path, number, "there is no call", word);
	call->op = op;
	for (i = 0; (word = strtok(NULL, " \t\n")); i++) {
		unsigned long value = strtoul(word, &end, 16);

		if (i == CALL_ARGS)
			bad(path, number, "there are too many arguments", NULL);
		if (*end || value > 0xff || !isxdigit((unsigned char)*word))
			bad(path, number, "not a hexadecimal byte:", word);
		call->a[i] = value;
	}
	return true;
}

static size_t read_text(FILE *f, const char *path, uint8_t *data)
{
	struct call call;
	char line[256];
	int number = 0;
	size_t n = 0;

	while (fgets(line, sizeof(line), f)) {
		number++;
		if (!strchr(line, '\n'))
			bad(path, number, "the line has no end, or is too long",
			    NULL);
		if (!read_line(path, number, line, &call))
			continue;
		if (n + sizeof(call) > MAX_INPUT)
			bad(path, number, "there are too many calls", NULL);
		memcpy(data + n, &call, sizeof(call));
		n += sizeof(call);
	}
	return n;
}

/*
 * Read a file of text, which starts with MAGIC, or a binary one of up to MAX_INPUT
 * bytes. Return its length in bytes; exit if the text is wrong.
 */
size_t text_read(const char *path, uint8_t *data)
{
	char magic[sizeof(MAGIC) - 1];
	FILE *f = fopen(path, "r");
	size_t n;

	if (!f) {
		perror(path);
		exit(2);
	}
	n = fread(magic, 1, sizeof(magic), f);
	rewind(f);
	if (n == sizeof(magic) && !memcmp(magic, MAGIC, n)) {
		n = read_text(f, path, data);
	} else {
		n = fread(data, 1, MAX_INPUT, f);
		if (fgetc(f) != EOF)
			bad(path, 1, "neither text with \"" MAGIC
			    "\" in its first line, nor a binary input", NULL);
	}
	if (ferror(f)) {
		perror(path);
		exit(2);
	}
	fclose(f);
	return n;
}

void text_calls(FILE *f, const uint8_t *data, size_t size)
{
	struct call call;
	int i, last;

	for (; size >= sizeof(call); size -= sizeof(call), data += sizeof(call)) {
		memcpy(&call, data, sizeof(call));
		for (last = CALL_ARGS; last && !call.a[last - 1]; last--)
			;
		fprintf(f, "%s", op_of(call.op)->name);
		for (i = 0; i < last; i++)
			fprintf(f, " %02x", call.a[i]);
		fprintf(f, "\n");
	}
	fflush(f);
}

void text_print(FILE *f, const uint8_t *data, size_t size)
{
	fprintf(f, MAGIC "-License-Identifier: GPL-2.0\n");
	text_calls(f, data, size);
}

/* Choose an operation by its weight. */
static uint8_t random_op(uint64_t *seed)
{
	int i, n, total = 0;

	for (i = 0; i < op_count(); i++)
		total += op_of(i)->weight;
	n = random_next(seed) % total;
	for (i = 0; n >= op_of(i)->weight; i++)
		n -= op_of(i)->weight;
	return i;
}

static struct call random_call(uint64_t *seed)
{
	struct call call = { .op = random_op(seed) };
	int i;

	/* Small numbers name objects that exist, zeros are the simplest. */
	for (i = 0; i < CALL_ARGS; i++)
		switch (random_next(seed) % 4) {
		case 0:
			break;
		case 1:
			call.a[i] = random_next(seed);
			break;
		default:
			call.a[i] = random_next(seed) % 8;
			break;
		}
	return call;
}

static void change_arg(struct call *call, uint64_t *seed)
{
	uint8_t *p = &call->a[random_next(seed) % CALL_ARGS];

	switch (random_next(seed) % 5) {
	case 0:
		*p ^= 1 << random_next(seed) % 8;
		break;
	case 1:
		*p += random_next(seed) % 5 - 2;
		break;
	case 2:
		*p = 0;
		break;
	case 3:
		*p = random_next(seed) % 8;
		break;
	default:
		*p = random_next(seed);
		break;
	}
}

static int insert(struct call *calls, int n, int max, int at,
		  const struct call *new, int count)
{
	if (count > max - n)
		count = max - n;
	memmove(calls + at + count, calls + at, (n - at) * sizeof(*calls));
	memcpy(calls + at, new, count * sizeof(*calls));
	return n + count;
}

/* One change; return the new number of calls. */
static int mutate_once(struct call *calls, int n, int max, uint64_t *seed)
{
	int at = n ? random_next(seed) % n : 0, other, count;
	struct call call, copy[8];

	switch (n ? random_next(seed) % 8 : 0) {
	case 0:
	case 1:
		call = random_call(seed);
		return insert(calls, n, max, at + (n > 0), &call, 1);
	case 2:
		count = random_next(seed) % 3 + 1;
		if (count > n - at)
			count = n - at;
		memmove(calls + at, calls + at + count,
			(n - at - count) * sizeof(*calls));
		return n - count;
	case 3:
		count = random_next(seed) % 8 + 1;
		if (count > n - at)
			count = n - at;
		memcpy(copy, calls + at, count * sizeof(*calls));
		return insert(calls, n, max, random_next(seed) % (n + 1), copy,
			      count);
	case 4:
		other = random_next(seed) % n;
		call = calls[at];
		calls[at] = calls[other];
		calls[other] = call;
		return n;
	case 5:
		calls[at].op = random_op(seed);
		return n;
	default:
		change_arg(&calls[at], seed);
		return n;
	}
}

size_t text_mutate(uint8_t *data, size_t size, size_t max, uint64_t seed)
{
	int n = size / sizeof(struct call), limit = max / sizeof(struct call);
	struct call calls[MAX_CALLS];
	int rounds;

	seed = seed * 0x9e3779b97f4a7c15ULL + 1;
	if (limit > MAX_CALLS)
		limit = MAX_CALLS;
	if (n > limit)
		n = limit;
	memcpy(calls, data, n * sizeof(*calls));
	for (rounds = random_next(&seed) % 4; rounds >= 0; rounds--)
		n = mutate_once(calls, n, limit, &seed);
	memcpy(data, calls, n * sizeof(*calls));
	return n * sizeof(*calls);
}

size_t text_cross(const uint8_t *one, size_t n, const uint8_t *other, size_t m,
		  uint8_t *out, size_t max, uint64_t seed)
{
	seed = seed * 0x9e3779b97f4a7c15ULL + 1;
	n = random_next(&seed) % (n / sizeof(struct call) + 1) *
	    sizeof(struct call);
	m = random_next(&seed) % (m / sizeof(struct call) + 1) *
	    sizeof(struct call);
	if (n > max)
		n = 0;
	if (m > max - n)
		m = (max - n) / sizeof(struct call) * sizeof(struct call);
	memcpy(out, one, n);
	memcpy(out + n, other, m);
	return n + m;
}
