// SPDX-License-Identifier: GPL-2.0
/*
 * Files, shell commands, memory, and opening a device by its name.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "t.h"

bool t_debug_kernel(void)
{
	const char *debug = getenv("KEEL_DEBUG");

	return debug && *debug;
}

bool t_uml(void)
{
	const char *lane = getenv("KEEL_LANE");

	return lane && !strcmp(lane, "uml");
}

bool t_kernel(const char *release)
{
	struct utsname name;

	SYS(uname(&name));
	return !strncmp(name.release, release, strlen(release));
}

int t_rounds(int n)
{
	return t_debug_kernel() ? n / 4 : n;
}

#define KMALLOC	"$(realpath /sys/kernel/slab/*kmalloc* | sort -u)"

/*
 * Shrink the caches first, which frees cached objects, also those that KASAN
 * keeps.
 */
static long kmalloc_bytes(void)
{
	char *sum = t_shell("t=0; for d in " KMALLOC "; do echo 1 >$d/shrink; read n x <$d/objects; read s <$d/object_size; t=$((t + n * s)); done; echo $t");
	long bytes = atol(sum);

	free(sum);
	return bytes;
}

static long slab_bytes(void)
{
	char *text = t_read_file("/proc/meminfo");
	char *at = MUST(strstr(text, "SUnreclaim:"));
	long kib = atol(at + strlen("SUnreclaim:"));

	free(text);
	return kib * 1024;
}

long t_kmalloc(void)
{
	if (!access("/sys/kernel/slab/kmalloc-64/objects", R_OK))
		return kmalloc_bytes();
	/* This kernel counts no objects and has no KASAN: count its slabs. */
	return slab_bytes();
}

uint64_t t_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static char *read_fd(int fd)
{
	size_t size = 4096, len = 0;
	char *text = malloc(size);
	ssize_t n;

	while ((n = read(fd, text + len, size - len - 1)) > 0) {
		len += n;
		if (len == size - 1)
			text = realloc(text, size *= 2);
	}
	text[len] = '\0';
	return text;
}

char *t_read_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *text;

	if (fd < 0)
		FAIL("%s: got %s, want to read it", path, t_errname(errno));
	text = read_fd(fd);
	close(fd);
	return text;
}

int t_write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int ret = 0;

	if (fd < 0)
		return errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = errno;
	close(fd);
	return ret;
}

static char *shell(const char *fmt, va_list ap, int *status)
{
	char cmd[1024], *text, *end;
	FILE *f;

	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	f = popen(cmd, "re");
	if (!f)
		FAIL("%s: got %s, want to run it", cmd, t_errname(errno));
	text = read_fd(fileno(f));
	*status = WEXITSTATUS(pclose(f));
	end = text + strlen(text);
	if (end > text && end[-1] == '\n')
		end[-1] = '\0';
	return text;
}

char *t_shell(const char *fmt, ...)
{
	int status;
	va_list ap;
	char *text;

	va_start(ap, fmt);
	text = shell(fmt, ap, &status);
	va_end(ap);
	if (status)
		FAIL("%s: got exit status %d (%s), want 0", fmt, status, text);
	return text;
}

int t_shell_status(const char *fmt, ...)
{
	int status;
	va_list ap;

	va_start(ap, fmt);
	free(shell(fmt, ap, &status));
	va_end(ap);
	return status;
}

void t_scatter(void *mem, size_t bytes)
{
	const size_t page = 4096, step = 7 * page;
	size_t first, at;

	/* EINVAL: the kernel has no huge pages. */
	if (madvise(mem, bytes, MADV_NOHUGEPAGE) && errno != EINVAL)
		FAIL("madvise(): got %s", t_errname(errno));
	for (first = 0; first < step; first += page)
		for (at = first; at < bytes; at += step)
			((char *)mem)[at] = 1;
}

struct ibv_context *dev_open(const char *name)
{
	struct ibv_device **list = MUST(ibv_get_device_list(NULL));
	struct ibv_context *ctx;
	int i;

	for (i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			break;
	if (!list[i])
		FAIL("got no device %s, want one", name);
	ctx = MUST(ibv_open_device(list[i]));
	ibv_free_device_list(list);
	return ctx;
}

int t_processors(void)
{
	cpu_set_t set;

	SYS(sched_getaffinity(0, sizeof(set), &set));
	return CPU_COUNT(&set);
}

void t_one_processor(void)
{
	cpu_set_t set;
	int cpu;

	SYS(sched_getaffinity(0, sizeof(set), &set));
	for (cpu = 0; !CPU_ISSET(cpu, &set); cpu++)
		;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	SYS(sched_setaffinity(0, sizeof(set), &set));
}
