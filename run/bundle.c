// SPDX-License-Identifier: GPL-2.0
/* Where the kernel, its modules and the guest's init are */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "keel-run.h"

static char *program_directory(void)
{
	char *path = need_memory(calloc(1, 4096));
	ssize_t len = readlink("/proc/self/exe", path, 4095);

	if (len <= 0)
		die("cannot find itself: /proc/self/exe: %s", strerror(errno));
	*strrchr(path, '/') = 0;
	return path;
}

/* The kernel's command line carries the name of init. */
static void check_name(const char *path)
{
	if (strpbrk(path, "\"\n") || strlen(path) > 2000)
		die("the name of its folder has a quote or a newline, or is too long: "
		    "move the bundle");
}

/**
 * bundle_find() - find the files that belong to this program
 * @bundle: filled in
 * @opt: --debug chooses the kernel with the checkers, --kernel another one
 *
 * They are in lib/ next to the program, or in ../lib/keel-run of a system.
 */
void bundle_find(struct bundle *bundle, const struct options *opt)
{
	static const char * const places[] = { "lib", "../lib/keel-run" };
	char *dir = program_directory();
	size_t i;

	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		char *place = format("%s/%s", dir, places[i]);

		bundle->init = format("%s/init", place);
		bundle->dir = format("%s/%s", place,
				     opt->debug ? "uml-debug" : "uml");
		free(place);
		if (access(bundle->init, F_OK) == 0)
			break;
		free(bundle->init);
		free(bundle->dir);
		bundle->init = NULL;
	}
	if (!bundle->init)
		die("%s has no lib/init: unpack the whole bundle", dir);
	check_name(bundle->init);
	bundle->kernel = opt->kernel ? format("%s", opt->kernel) :
			 format("%s/linux", bundle->dir);
	if (access(bundle->kernel, F_OK) < 0 && opt->debug)
		die("this bundle has no kernel for --debug: "
		    "use one that was made with scripts/bundle --debug");
	if (access(bundle->kernel, X_OK) < 0)
		die("cannot execute the kernel %s: %s", bundle->kernel,
		    strerror(errno));
	free(dir);
}
