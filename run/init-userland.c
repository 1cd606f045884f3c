// SPDX-License-Identifier: GPL-2.0
/*
 * The user library: the command finds a libibverbs that loads keel's provider. If
 * the machine's own does, it stays. If not, the bundle's libraries are laid over
 * the machine's, and over its libc if that is older. The tools of the bundle that
 * the machine lacks are there in any case.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init.h"
#include "userland.h"

#define DRIVERS		"/etc/libibverbs.d"
#define NEW_LIBRARIES	"/usr/lib/x86_64-linux-gnu"

/* Where distributions have libraries. The first is Debian's. */
static const char * const library_dirs[] = {
	"/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64",
	"/lib64", "/usr/lib", "/lib",
};

static const char * const program_dirs[] = {
	"/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin",
	"/sbin",
};

#define COUNT(array)	(sizeof(array) / sizeof((array)[0]))

/* The machine has no glibc: its libraries are linked with another libc. */
static bool other_libc;

/* Call @handle for each name in @dir. */
static void each_file(const char *dir, void (*handle)(const char *dir,
						      const char *name))
{
	DIR *list = opendir(dir);
	struct dirent *entry;

	while (list && (entry = readdir(list)))
		if (entry->d_name[0] != '.')
			handle(dir, entry->d_name);
	if (list)
		closedir(list);
}

static bool exists_in(const char *const *dirs, size_t count, const char *name)
{
	bool found = false;
	size_t i;

	for (i = 0; i < count && !found; i++) {
		char *path = text("%s/%s", dirs[i], name);

		found = !access(path, F_OK);
		free(path);
	}
	return found;
}

static void add_driver(const char *dir, const char *name)
{
	int len = strcspn(name, "-");
	char *file, *line;

	(void)dir;
	/* libkeel-rdmav34.so */
	if (len < 4)
		return;
	file = text(DRIVERS "/%.*s.driver", len - 3, name + 3);
	line = text("driver " USERLAND "/providers/%.*s\n", len, name);
	/* keel's is of the same build as the module. */
	if (access(file, F_OK) || !strncmp(name, "libkeel-", 8))
		write_file(file, line);
	free(file);
	free(line);
}

static void add_tool(const char *dir, const char *name)
{
	char *link;

	(void)dir;
	if (exists_in(program_dirs, COUNT(program_dirs), name))
		return;
	link = text("/usr/bin/%s", name);
	symlink(USERLAND "/tool", link);
	free(link);
}

/* The first RDMA device there is. For free(); NULL if there is none. */
static char *any_device(void)
{
	DIR *list = opendir("/sys/class/infiniband");
	struct dirent *entry;
	char *name = NULL;

	while (list && !name && (entry = readdir(list)))
		if (entry->d_name[0] != '.')
			name = text("%s", entry->d_name);
	if (list)
		closedir(list);
	return name;
}

static bool machine_loads_provider(const char *device)
{
	int status = 1, null;
	pid_t pid = fork();

	if (!pid) {
		null = open("/dev/null", O_RDWR);
		dup2(null, 1);
		dup2(null, 2);
		execl(USERLAND "/probe", "probe", device, NULL);
		_exit(1);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* Bind @source over the file @target, which is made if it is not there. */
static void lay(const char *source, const char *target)
{
	int fd = open(target, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);

	if (fd >= 0)
		close(fd);
	if (mount(source, target, NULL, MS_BIND, NULL))
		warn("cannot lay %s over %s: %s", source, target,
		     strerror(errno));
}

static void lay_library(const char *dir, const char *name)
{
	char *source = text("%s/%s", dir, name), *target;
	bool any = false;
	struct stat st, last = { 0 };
	size_t i;

	for (i = 0; i < COUNT(library_dirs) && !other_libc; i++) {
		target = text("%s/%s", library_dirs[i], name);
		/* /lib is often /usr/lib by another name. */
		if (!stat(target, &st) && (st.st_ino != last.st_ino ||
					   st.st_dev != last.st_dev)) {
			lay(source, target);
			stat(target, &last);
			any = true;
		}
		free(target);
	}
	if (!any) {
		target = text(NEW_LIBRARIES "/%s", name);
		lay(source, target);
		free(target);
	}
	free(source);
}

/*
 * Libraries that are not rdma-core's stay the machine's, where it has them. A
 * library of another libc is no replacement, and is not replaced.
 */
static void lay_verbs_library(const char *dir, const char *name)
{
	static const char * const ours[] = {
		"libibverbs.", "librdmacm.", "libibumad.", "libmlx5.", "libefa.",
		"libhns.", "libmana.", "libmlx4.", "libkeel.",
	};
	size_t i;

	for (i = 0; i < COUNT(ours); i++)
		if (!strncmp(name, ours[i], strlen(ours[i])))
			break;
	if (i < COUNT(ours) || other_libc ||
	    !exists_in(library_dirs, COUNT(library_dirs), name))
		lay_library(dir, name);
}

/* A regular file, for munmap(); NULL if it cannot be read or is small. */
static char *map_file(const char *file, size_t *size)
{
	int fd = open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char *map = MAP_FAILED;
	struct stat st;

	if (fd < 0)
		return NULL;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size >= 4096)
		map = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return NULL;
	*size = st.st_size;
	return map;
}

/* The version of a libc is in a sentence that it prints: "... version 2.36." */
static unsigned int libc_version(const char *file)
{
	static const char mark[] = "GNU C Library ";
	unsigned int major = 0, minor = 0;
	size_t size;
	char *map = map_file(file, &size), *p;

	if (!map)
		return 0;
	p = memmem(map, size, mark, sizeof(mark) - 1);
	if (p && p + 200 < map + size) {
		char line[200];

		memcpy(line, p, sizeof(line) - 1);
		line[sizeof(line) - 1] = 0;
		p = strstr(line, "version ");
		if (!p || sscanf(p, "version %u.%u", &major, &minor) != 2)
			major = minor = 0;
	}
	munmap(map, size);
	return major * 1000 + minor;
}

static unsigned int machine_libc_version(void)
{
	unsigned int version = 0;
	size_t i;

	for (i = 0; i < COUNT(library_dirs) && !version; i++) {
		char *file = text("%s/libc.so.6", library_dirs[i]);

		version = libc_version(file);
		free(file);
	}
	return version;
}

static void lay_libc(const char *dir, const char *name)
{
	if (strcmp(name, "ld-linux-x86-64.so.2"))
		lay_library(dir, name);
}

static void lay_over(void)
{
	unsigned int version = machine_libc_version();

	other_libc = !version;
	make_directories(NEW_LIBRARIES);
	/* Providers of the machine's are for its own libibverbs. */
	mount("none", DRIVERS, "tmpfs", 0, "mode=755");
	each_file(USERLAND "/providers", add_driver);
	if (version < libc_version(USERLAND "/glibc/libc.so.6")) {
		each_file(USERLAND "/glibc", lay_libc);
		make_directories("/lib64");
		lay(USERLAND_LOADER, "/lib64/ld-linux-x86-64.so.2");
	}
	each_file(USERLAND "/lib", lay_verbs_library);
}

/**
 * userland_start() - see to it that the command finds keel's provider
 * @settings: from the launcher
 *
 * A bundle without user libraries changes nothing.
 */
void userland_start(const struct settings *settings)
{
	char *dir, *device;

	/* Without a device, nothing is needed. */
	if (!settings->modules.count)
		return;
	dir = text("%s/../userland", settings->bundle);
	/* The tools are told "localhost". */
	if (access("/etc/hosts", F_OK) && !make_directories("/etc"))
		write_file("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n");
	if (make_directories(USERLAND) || mount_host(dir, USERLAND) ||
	    access(USERLAND "/tool", X_OK)) {
		free(dir);
		return;
	}
	free(dir);
	make_directories(DRIVERS);
	each_file(USERLAND "/providers", add_driver);
	device = any_device();
	if (device && !machine_loads_provider(device)) {
		log_line("keel-run: the machine's libibverbs does not load keel's provider");
		lay_over();
	}
	make_directories("/usr/bin");
	each_file(USERLAND "/bin", add_tool);
	free(device);
}

/**
 * userland_check() - warn of a command that can load no provider
 * @program: the file of the command
 */
void userland_check(const char *program)
{
	static const char mark[] = "/etc/libibverbs.d", interp[] = "/ld-";
	static const char musl[] = "/ld-musl-", library[] = "libibverbs.so.";
	size_t size;
	char *map = map_file(program, &size);

	if (!map)
		return;
	if (memcmp(map, "\177ELF", 4))
		goto out;
	/* The name of the loader is in the first page. */
	if (!memmem(map, 4096, interp, sizeof(interp) - 1) &&
	    memmem(map, size, mark, sizeof(mark) - 1))
		warn("%s is linked statically with libibverbs: it cannot load "
		     "keel's provider, link it dynamically", program);
	else if (memmem(map, 4096, musl, sizeof(musl) - 1) &&
		 memmem(map, size, library, sizeof(library) - 1))
		warn("%s is linked with musl: keel's provider is for glibc, "
		     "compile the program in a root with glibc", program);
out:
	munmap(map, size);
}
