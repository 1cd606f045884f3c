// SPDX-License-Identifier: GPL-2.0
/* The command line of keel-run */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "keel-run.h"

#ifndef KEEL_VERSION
#define KEEL_VERSION "unknown"
#endif

static const char help[] =
"Usage: keel-run [OPTION...] -- COMMAND [ARGUMENT...]\n"
"Run COMMAND where there is an RDMA device, keel0, as the user who you are.\n"
"\n"
"COMMAND runs in a User Mode Linux kernel that sees the files of this machine.\n"
"It writes through to the working directory; other changes vanish at its end.\n"
"\n"
"Device\n"
"  --devices N          keel0 to keelN-1, each on a netdev of its own (1)\n"
"  --dm-size SIZE       device memory of each device, as 64M\n"
"  --param NAME=VALUE   parameter of the keel module; may be repeated\n"
"  --with rxe,siw       these devices too, for comparison\n"
"Files\n"
"  --rw DIR             write through to DIR too; may be repeated\n"
"  --ro                 write through to no directory\n"
"Guest\n"
"  --cpus N             processors (2)\n"
"  --mem SIZE           memory, as 1G (1G)\n"
"  --timeout SECONDS    stop COMMAND after that time\n"
"  --root               run COMMAND as root of the guest\n"
"  --shell              run your shell as COMMAND\n"
"  --debug              kernel with KASAN, lockdep and kmemleak; its reports fail\n"
"  --kernel-log FILE    write the log of the kernel to FILE\n"
"  --help, --version\n"
"\n"
"Exit status: that of COMMAND; 128 + N after signal N; or, with a message that\n"
"begins with \"keel-run:\", 124 timeout, 125 keel-run failed, 126 COMMAND cannot\n"
"be executed, 127 COMMAND not found. See keel-run(1).\n";

enum option {
	OPT_DEVICES, OPT_DM_SIZE, OPT_PARAM, OPT_WITH, OPT_RW, OPT_RO, OPT_CPUS,
	OPT_MEM, OPT_TIMEOUT, OPT_ROOT, OPT_SHELL, OPT_DEBUG, OPT_KERNEL_LOG,
	OPT_KERNEL, OPT_SYSTEM, OPT_LAYER, OPT_APPEND, OPT_HELP, OPT_VERSION,
	OPT_COUNT,
};

static const struct {
	const char *name;
	bool value, repeat;
} known[OPT_COUNT] = {
	[OPT_DEVICES] = { .name = "--devices", .value = true },
	[OPT_DM_SIZE] = { .name = "--dm-size", .value = true },
	[OPT_PARAM] = { .name = "--param", .value = true, .repeat = true },
	[OPT_WITH] = { .name = "--with", .value = true },
	[OPT_RW] = { .name = "--rw", .value = true, .repeat = true },
	[OPT_RO] = { .name = "--ro" },
	[OPT_CPUS] = { .name = "--cpus", .value = true },
	[OPT_MEM] = { .name = "--mem", .value = true },
	[OPT_TIMEOUT] = { .name = "--timeout", .value = true },
	[OPT_ROOT] = { .name = "--root" },
	[OPT_SHELL] = { .name = "--shell" },
	[OPT_DEBUG] = { .name = "--debug" },
	[OPT_KERNEL_LOG] = { .name = "--kernel-log", .value = true },
	[OPT_KERNEL] = { .name = "--kernel", .value = true },
	[OPT_SYSTEM] = { .name = "--system", .value = true },
	[OPT_LAYER] = { .name = "--layer", .value = true, .repeat = true },
	[OPT_APPEND] = { .name = "--append", .value = true, .repeat = true },
	[OPT_HELP] = { .name = "--help" },
	[OPT_VERSION] = { .name = "--version" },
};

/* A number from @min to @max, or the end. */
static unsigned int number(const char *name, const char *text,
			   unsigned int min, unsigned int max)
{
	unsigned long value;
	char *end;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || value < min ||
	    value > max)
		die("%s takes a number from %u to %u, not \"%s\"", name, min, max,
		    text);
	return value;
}

/* A number of bytes with K, M or G; without one it counts @unit bytes. */
static uint64_t size(const char *name, const char *text, uint64_t unit)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (*end == 'K' || *end == 'k')
		unit = 1 << 10;
	else if (*end == 'M' || *end == 'm')
		unit = 1 << 20;
	else if (*end == 'G' || *end == 'g')
		unit = 1 << 30;
	else if (*end)
		unit = 0;
	if (*end)
		end++;
	if (*text < '0' || *text > '9' || *end || errno || !value || !unit ||
	    value > (UINT64_MAX >> 1) / unit)
		die("%s takes a size like 64M or 1G, not \"%s\"", name, text);
	return value * unit;
}

static void set_mem(struct options *opt, const char *text)
{
	uint64_t mib = size("--mem", text, 1 << 20) >> 20;

	if (mib < 128 || mib > 64 * 1024)
		die("--mem %s: the guest takes 128M to 64G of memory", text);
	opt->mem = mib;
}

static void set_with(struct options *opt, const char *text)
{
	const char *p = text;

	while (true) {
		size_t len = strcspn(p, ",");

		if (len != 3 || (strncmp(p, "rxe", 3) && strncmp(p, "siw", 3)))
			die("--with takes rxe, siw or rxe,siw, not \"%s\"", text);
		if (!p[len])
			break;
		p += len + 1;
	}
	if (strlen(text) > 7 || (strlen(text) == 7 && !strncmp(text, text + 4, 3)))
		die("--with names a device twice: \"%s\"", text);
	opt->with = text;
}

static void set_param(struct options *opt, const char *text)
{
	const char *p;

	if (!strchr(text, '=') || *text == '=')
		die("--param takes NAME=VALUE, not \"%s\"", text);
	for (p = text; *p; p++)
		if (*p <= ' ' || *p == '"')
			die("--param \"%s\" has a space, a quote or a control character",
			    text);
	strings_add(&opt->params, text);
}

/* The full name of a directory. It is never freed. */
static char *directory(const char *name, const char *text)
{
	char *path = realpath(text, NULL);
	int fd;

	if (!path)
		die("%s %s: %s", name, text, strerror(errno));
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		die("%s %s: %s", name, text, strerror(errno));
	close(fd);
	return path;
}

static void set_rw(struct options *opt, const char *text)
{
	static const char * const own[] = { "/proc", "/sys", "/dev" };
	char *path = directory("--rw", text);
	size_t i;

	if (!strcmp(path, "/"))
		die("--rw /: a change of the command to any file would be for good: "
		    "name directories below it");
	for (i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		size_t len = strlen(own[i]);

		if (!strncmp(path, own[i], len) && (!path[len] || path[len] == '/') &&
		    strncmp(path, "/dev/shm/", 9))
			die("--rw %s: the guest has %s of its own", text, own[i]);
	}
	strings_add(&opt->rw, path);
}

static void set_kernel(struct options *opt, const char *text)
{
	opt->kernel = realpath(text, NULL);
	if (!opt->kernel)
		die("--kernel %s: %s", text, strerror(errno));
}

static void print_and_exit(const char *text)
{
	exit(write_all(STDOUT_FILENO, text, strlen(text)) ? STATUS_FAILED : 0);
}

static void set(struct options *opt, enum option which, const char *value)
{
	const char *name = known[which].name;

	switch (which) {
	case OPT_DEVICES:
		opt->devices = number(name, value, 0, 64);
		break;
	case OPT_DM_SIZE:
		opt->dm_size = size(name, value, 1);
		break;
	case OPT_PARAM:
		set_param(opt, value);
		break;
	case OPT_WITH:
		set_with(opt, value);
		break;
	case OPT_RW:
		set_rw(opt, value);
		break;
	case OPT_RO:
		opt->ro = true;
		break;
	case OPT_CPUS:
		opt->cpus = number(name, value, 1, 8);
		break;
	case OPT_MEM:
		set_mem(opt, value);
		break;
	case OPT_TIMEOUT:
		opt->timeout = number(name, value, 1, 30 * 24 * 3600);
		break;
	case OPT_ROOT:
		opt->root = true;
		break;
	case OPT_SHELL:
		opt->shell = true;
		break;
	case OPT_DEBUG:
		opt->debug = true;
		break;
	case OPT_KERNEL_LOG:
		if (!*value)
			die("--kernel-log takes the name of a file");
		opt->kernel_log = value;
		break;
	case OPT_KERNEL:
		set_kernel(opt, value);
		break;
	case OPT_SYSTEM:
		opt->system = directory(name, value);
		break;
	case OPT_LAYER:
		strings_add(&opt->layers, directory(name, value));
		break;
	case OPT_APPEND:
		strings_add(&opt->append, value);
		break;
	case OPT_HELP:
		print_and_exit(help);
		break;
	case OPT_VERSION:
		print_and_exit("keel-run " KEEL_VERSION "\n");
		break;
	case OPT_COUNT:
		break;
	}
}

static enum option find(const char *word, size_t len)
{
	enum option i;

	for (i = 0; i < OPT_COUNT; i++)
		if (strlen(known[i].name) == len &&
		    !strncmp(known[i].name, word, len))
			return i;
	die("unknown option \"%s\": see keel-run --help", word);
}

/* Take the option at @argv, return how many words it is. */
static int take(struct options *opt, bool *seen, char **argv)
{
	size_t len = strcspn(argv[0], "=");
	enum option which = find(argv[0], len);
	const char *value = NULL;
	int words = 1;

	if (argv[0][len] == '=') {
		value = argv[0] + len + 1;
	} else if (known[which].value) {
		value = argv[1];
		words = 2;
	}
	if (known[which].value && !value)
		die("%s needs a value", known[which].name);
	if (!known[which].value && value)
		die("%s takes no value", known[which].name);
	if (seen[which] && !known[which].repeat)
		die("%s was given twice", known[which].name);
	seen[which] = true;
	set(opt, which, value);
	return words;
}

static void set_shell(struct options *opt)
{
	static char *words[2];

	words[0] = getenv("SHELL");
	if (!words[0] || !*words[0])
		words[0] = "/bin/sh";
	opt->command = words;
}

/**
 * options_parse() - read the command line
 * @opt: filled in
 * @argc: as of main()
 * @argv: as of main()
 *
 * Wrong use ends the process with one sentence.
 */
void options_parse(struct options *opt, int argc, char **argv)
{
	bool seen[OPT_COUNT] = { false };
	int i = 1;

	*opt = (struct options) { .devices = 1, .cpus = 2, .mem = 1024 };
	while (i < argc && argv[i][0] == '-' && argv[i][1]) {
		if (!strcmp(argv[i], "--")) {
			i++;
			break;
		}
		i += take(opt, seen, argv + i);
	}
	opt->command = argv + i;
	if (opt->shell && i < argc)
		die("--shell and a command exclude each other");
	if (opt->shell)
		set_shell(opt);
	if (!opt->command[0])
		die("no command was given: see keel-run --help");
	if (!*opt->command[0])
		die("the command is an empty word");
	if (opt->ro && opt->rw.count)
		die("--ro and --rw exclude each other");
}
