// SPDX-License-Identifier: GPL-2.0
/* The kernel's modules and the devices that come with them */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "init.h"

static char *folder(void)
{
	struct utsname names;

	uname(&names);
	return text(BUNDLE_MODULES "/%s", names.release);
}

static int insert(const char *dir, const char *file, const char *params)
{
	char *path = text("%s/%s", dir, file);
	int fd = open(path, O_RDONLY | O_CLOEXEC), ret;

	free(path);
	if (fd < 0)
		return -1;
	ret = syscall(SYS_finit_module, fd, params, 0);
	close(fd);
	return ret && errno != EEXIST ? -1 : 0;
}

/* Does a line of modules.dep begin with the file of module @name? */
static bool is_module(const char *line, const char *name)
{
	size_t len = strcspn(line, ":");
	const char *base = line + len, *p = name;

	while (base > line && base[-1] != '/')
		base--;
	for (; *p && (*base == *p || (*base == '-' && *p == '_')); p++)
		base++;
	return !*p && !strncmp(base, ".ko:", 4);
}

/*
 * A line of modules.dep is "FILE: FILE...", where each of the later ones must be
 * there before those to the left of it.
 */
static int insert_line(const char *dir, char *line, const char *params)
{
	char *colon = strchr(line, ':'), *p;

	line[strcspn(line, "\n")] = 0;
	*colon = 0;
	while ((p = strrchr(colon + 1, ' '))) {
		if (p[1] && insert(dir, p + 1, ""))
			return -1;
		*p = 0;
	}
	return insert(dir, line, params);
}

static int load(const char *name, const char *params)
{
	char *dir = folder(), *file = text("%s/modules.dep", dir);
	FILE *list = fopen(file, "re");
	char *line = NULL;
	size_t size = 0;
	int ret = -1;

	errno = ENOENT;
	while (list && getline(&line, &size, list) > 0) {
		if (!strchr(line, ':') || !is_module(line, name))
			continue;
		ret = insert_line(dir, line, params);
		break;
	}
	if (list)
		fclose(list);
	free(line);
	free(file);
	free(dir);
	return ret;
}

/* The kernel ignores a parameter that the module lacks. */
static void check_parameters(const char *name, const char *params)
{
	while (params && *params) {
		size_t len = strcspn(params, "= ");
		char *sysfs = text("/sys/module/%s/parameters/%.*s", name,
				   (int)len, params);

		if (access(sysfs, F_OK))
			fail(STATUS_FAILED, "the module %s has no parameter %.*s",
			     name, (int)len, params);
		free(sysfs);
		params += strcspn(params, " ");
		params += strspn(params, " ");
	}
}

/* keel0 came with the module, if that was not told otherwise. */
static void add_keel_devices(unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		char *name = text("keel%u", i);
		char *sysfs = text("/sys/class/infiniband/%s", name);

		if (access(sysfs, F_OK) &&
		    (dummy_add(name) || device_add("keel", name, name)))
			fail(STATUS_FAILED, "cannot make the device %s: %s", name,
			     strerror(errno));
		addresses_add(name, i);
		free(name);
		free(sysfs);
	}
}

/* A netdev of its own too, with an address of another range. */
static void add_other_device(const char *type, unsigned int number)
{
	char *name = text("%s0", type);

	if (dummy_add(name) || device_add(type, name, name))
		fail(STATUS_FAILED, "cannot make the device %s: %s", name,
		     strerror(errno));
	addresses_add(name, number);
	free(name);
}

/**
 * modules_load() - load the modules that the launcher named, make the devices
 * @settings: from the launcher
 */
void modules_load(const struct settings *settings)
{
	size_t i;

	for (i = 0; i < settings->modules.count; i++) {
		const char *name = settings->modules.item[i];
		char *space = strchr(name, ' ');
		bool is_keel;

		if (space)
			*space = 0;
		is_keel = !strcmp(name, "keel");
		if (load(is_keel || strcmp(name, "rxe") ? name : "rdma_rxe",
			 space ? space + 1 : ""))
			fail(STATUS_FAILED, "the module %s does not load%s%s: %s%s",
			     name, space ? " with " : "", space ? space + 1 : "",
			     strerror(errno),
			     errno == ENOMEM ? ": raise --mem" : "");
		check_parameters(name, space ? space + 1 : NULL);
		if (is_keel)
			add_keel_devices(settings->run.devices);
		else
			add_other_device(name, 200 + i);
	}
}
