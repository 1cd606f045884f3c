// SPDX-License-Identifier: GPL-2.0
/*
 * The command's root: the machine's files below, memory of the guest on top, and
 * the directories that are written through.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "init.h"

/*
 * The parts of the command's root. devtmpfs is one and the same everywhere, so
 * the name is good before and after the root is entered.
 */
#define STAGE	GUEST_DIR

/*
 * Mount a new file system: @options is KEY, VALUE, ..., NULL, @attributes are
 * MOUNT_ATTR_*. Options are no text here, so that names of directories may have
 * any character.
 */
static int mount_new(const char *type, const char *target,
		     const char *const *options, unsigned int attributes)
{
	int fs, mnt, ret = -1;

	fs = fsopen(type, FSOPEN_CLOEXEC);
	if (fs < 0)
		return -1;
	for (; options && *options; options += 2)
		if (fsconfig(fs, FSCONFIG_SET_STRING, options[0], options[1], 0))
			goto out;
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		goto out;
	mnt = fsmount(fs, FSMOUNT_CLOEXEC, attributes);
	if (mnt < 0)
		goto out;
	ret = move_mount(mnt, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH);
	close(mnt);
out:
	close(fs);
	return ret;
}

static int mount_hostfs(const char *directory, const char *target,
			unsigned int attributes)
{
	const char *options[] = { "hostfs", directory, NULL };

	return mount_new("hostfs", target, options, attributes);
}

/**
 * mount_host() - mount a directory of the host, read-only
 * @directory: its name on the host
 * @target: where, in the guest
 *
 * Return: 0, or -1 with errno set.
 */
int mount_host(const char *directory, const char *target)
{
	return mount_hostfs(directory, target, MOUNT_ATTR_RDONLY);
}

static int mount_memory(const char *target, const char *mode)
{
	const char *options[] = { "mode", mode, NULL };

	return mount_new("tmpfs", target, options, 0);
}

/**
 * make_directories() - make a directory and those above it
 * @path: absolute
 *
 * Return: 0, or -1 with errno set.
 */
int make_directories(const char *path)
{
	char *copy = text("%s", path), *p;
	struct stat st;
	int ret;

	for (p = copy + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = 0;
		mkdir(copy, 0755);
		*p = '/';
	}
	ret = mkdir(copy, 0755);
	if (ret && errno == EEXIST && !stat(copy, &st) && S_ISDIR(st.st_mode))
		ret = 0;
	free(copy);
	return ret;
}

/**
 * write_file() - write a file anew
 * @path: its name
 * @content: what will be in it
 *
 * Return: 0, or -1 with errno set.
 */
int write_file(const char *path, const char *content)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = write(fd, content, strlen(content));
	close(fd);
	return n == (ssize_t)strlen(content) ? 0 : -1;
}

/**
 * mount_early() - mount what talking to the launcher takes
 *
 * The root is the machine's, so /dev is there.
 */
void mount_early(void)
{
	if (mount_new("devtmpfs", "/dev", NULL, 0))
		power_off();
}

static void need(int ret, const char *what)
{
	if (ret)
		fail(STATUS_FAILED, "the guest cannot mount %s: %s", what,
		     strerror(errno));
}

/*
 * Put a layer of memory over directories of the guest, the topmost first, at
 * @target.
 */
static int mount_layers(const struct list *lower, const char *target)
{
	static unsigned int number;
	char *base = text(STAGE "/over%u", number++);
	char *upper = text("%s/upper", base), *work = text("%s/work", base);
	const char *bottom = lower->item[lower->count - 1];
	const char **options = calloc(2 * lower->count + 5, sizeof(*options));
	struct stat st;
	size_t i, n = 0;
	int ret;

	if (!options)
		fail(STATUS_FAILED, "the guest is out of memory: raise --mem");
	for (i = 0; i < lower->count; i++) {
		options[n++] = "lowerdir+";
		options[n++] = lower->item[i];
	}
	options[n++] = "upperdir";
	options[n++] = upper;
	options[n++] = "workdir";
	options[n++] = work;
	ret = mkdir(base, 0755) ?: mkdir(upper, 0755) ?: mkdir(work, 0755);
	/* The root of an overlay is the upper one's. */
	if (!ret && !stat(bottom, &st))
		ret = chmod(upper, st.st_mode & 07777) ?:
		      chown(upper, st.st_uid, st.st_gid);
	ret = ret ?: mount_new("overlay", target, options, 0);
	free(options);
	free(base);
	free(upper);
	free(work);
	return ret;
}

static int mount_layer(char *lower, const char *target)
{
	const struct list list = { .item = &lower, .count = 1 };

	return mount_layers(&list, target);
}

/*
 * Mount a layer on its own: the overlay refuses a directory that is below
 * another layer of the same file system.
 */
static char *stage_layer(char *directory, size_t number)
{
	char *target;

	if (!strcmp(directory, "/"))
		return directory;
	target = text(STAGE "/layer%zu", number);
	if (mkdir(target, 0755) || mount_host(directory, target))
		need(-1, directory);
	return target;
}

static void enter_root(const struct list *layers)
{
	size_t i;

	need(make_directories(STAGE), STAGE);
	need(mount_memory(STAGE, "0700"), STAGE);
	need(make_directories(STAGE "/new"), STAGE);
	for (i = 0; i < layers->count; i++)
		layers->item[i] = stage_layer(layers->item[i], i);
	need(mount_layers(layers, STAGE "/new"), "the root");
}

static void mount_fresh(void)
{
	static const struct {
		const char *type, *target, *mode;
	} all[] = {
		{ "proc", "/proc", NULL },
		{ "sysfs", "/sys", NULL },
		{ "devpts", "/dev/pts", NULL },
		{ "tmpfs", "/dev/shm", "1777" },
		{ "debugfs", "/sys/kernel/debug", NULL },
		{ "tracefs", "/sys/kernel/tracing", NULL },
		{ "cgroup2", "/sys/fs/cgroup", NULL },
		{ "configfs", "/sys/kernel/config", NULL },
	};
	const char *pts[] = { "ptmxmode", "0666", "mode", "0620", "gid", "5",
			      NULL };
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		const char *mode[] = { "mode", all[i].mode, NULL };
		bool is_pts = !strcmp(all[i].type, "devpts");

		make_directories(all[i].target);
		/* Those below /sys are extras. */
		if (mount_new(all[i].type, all[i].target, is_pts ? pts :
			      all[i].mode ? mode : NULL, 0) && i < 4)
			need(-1, all[i].target);
	}
	unlink("/dev/ptmx");
	symlink("pts/ptmx", "/dev/ptmx");
	symlink("/proc/self/fd", "/dev/fd");
	symlink("fd/0", "/dev/stdin");
	symlink("fd/1", "/dev/stdout");
	symlink("fd/2", "/dev/stderr");
}

/*
 * /tmp is a copy of the machine's, as the rest of the root is: the arguments of a
 * command often name files there. A machine that has no /tmp gets an empty one.
 */
static void need_tmp(void)
{
	struct stat st;

	if (!stat("/tmp", &st) && S_ISDIR(st.st_mode))
		return;
	need(make_directories("/tmp") ?: mount_memory("/tmp", "1777"), "/tmp");
}

/* These are the guest's own: nothing there is the machine's. */
static bool is_guests(const char *path)
{
	static const char * const own[] = { "/proc", "/sys", "/dev" };
	size_t i;

	for (i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		size_t len = strlen(own[i]);

		if (!strncmp(path, own[i], len) &&
		    (!path[len] || (path[len] == '/' &&
				    strncmp(path, "/dev/shm/", 9))))
			return true;
	}
	return false;
}

static bool is_inside(const char *path, const char *outer)
{
	size_t len = strlen(outer);

	return !strncmp(path, outer, len) && (!path[len] || path[len] == '/');
}

static void write_through(const char *path)
{
	if (is_guests(path))
		return;
	if (make_directories(path) || mount_hostfs(path, path, 0))
		fail(STATUS_FAILED, "the guest cannot mount %s: %s", path,
		     strerror(errno));
}

/* --ro: a directory that a fresh /dev/shm hides is there, as a copy. */
static void show_copy(const char *path)
{
	char *lower;

	if (strncmp(path, "/dev/shm/", 9))
		return;
	lower = text(STAGE "/cwd");
	if (make_directories(path) || mkdir(lower, 0755) ||
	    mount_host(path, lower) || mount_layer(lower, path))
		fail(STATUS_FAILED, "the guest cannot mount %s: %s", path,
		     strerror(errno));
	free(lower);
}

/**
 * mount_directories() - have the command write through to its directories
 * @s: from the launcher
 *
 * Called when the guest has made its own changes to the root, so that none of them
 * reaches the machine.
 *
 * A directory inside another one is not mounted: it is written through anyway, and
 * hostfs knows the root of a mount by its name, which the command could then give
 * to something else.
 */
void mount_directories(const struct settings *s)
{
	bool cwd = !s->run.read_only && strcmp(s->cwd, "/");
	size_t i, k;

	if (s->run.read_only)
		show_copy(s->cwd);
	/* With "/" every change of the command would be for good. */
	if (cwd)
		write_through(s->cwd);
	for (i = 0; i < s->rw.count; i++) {
		bool inside = cwd && is_inside(s->rw.item[i], s->cwd);

		for (k = 0; k < i && !inside; k++)
			inside = is_inside(s->rw.item[i], s->rw.item[k]);
		if (!inside)
			write_through(s->rw.item[i]);
	}
}

static void fix_cpuinfo(const char *line)
{
	char content[16384];
	int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
	ssize_t n = 0, len = 0;

	while (fd >= 0 && len < (ssize_t)sizeof(content) - 512 &&
	       (n = read(fd, content + len, sizeof(content) - 512 - len)) > 0)
		len += n;
	if (fd >= 0)
		close(fd);
	snprintf(content + len, sizeof(content) - len, "%s", line);
	if (!write_file(GUEST_DIR "/cpuinfo", content))
		mount(GUEST_DIR "/cpuinfo", "/proc/cpuinfo", NULL, MS_BIND, NULL);
}

/* The bundle's modules, also where modprobe looks for them. */
static void mount_bundle(const struct settings *settings)
{
	char *modules = text("%s/modules", settings->bundle);
	struct utsname names;
	char *system;

	uname(&names);
	system = text("/lib/modules/%s", names.release);
	if (mkdir(BUNDLE_MODULES, 0755) || mount_host(modules, BUNDLE_MODULES))
		fail(STATUS_FAILED, "the guest cannot mount %s: %s", modules,
		     strerror(errno));
	if (!make_directories(system)) {
		char *own = text(BUNDLE_MODULES "/%s", names.release);

		mount(own, system, NULL, MS_BIND, NULL);
		free(own);
	}
	free(modules);
	free(system);
}

/**
 * mount_root() - make the command's root and enter it
 * @settings: from the launcher
 */
void mount_root(const struct settings *settings)
{
	enter_root(&settings->layers);
	if (make_directories(STAGE "/new/dev") ||
	    mount_new("devtmpfs", STAGE "/new/dev", NULL, 0) ||
	    mount(STAGE, STAGE "/new" STAGE, NULL, MS_BIND, NULL))
		need(-1, "/dev");
	need(chdir(STAGE "/new") ?: mount(".", "/", NULL, MS_MOVE, NULL) ?:
	     chroot(".") ?: chdir("/"), "the root");
	mount_fresh();
	need_tmp();
	if (settings->modules.count)
		mount_bundle(settings);
	if (settings->cpu)
		fix_cpuinfo(settings->cpu);
	if (settings->host)
		sethostname(settings->host, strlen(settings->host));
}
