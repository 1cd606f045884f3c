// SPDX-License-Identifier: GPL-2.0
/*
 * A tool of the bundle, under the name of the tool: starts it with the loader and
 * the libraries of the bundle, whatever the machine has.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "userland.h"

int main(int argc, char **argv)
{
	const char *name = argc ? strrchr(argv[0], '/') : NULL;
	char **words = calloc(argc + 8, sizeof(*words)), path[256];
	int n = 0, i;

	name = name ? name + 1 : argc ? argv[0] : "";
	if (!words || snprintf(path, sizeof(path), USERLAND "/bin/%s", name) >=
	    (int)sizeof(path))
		return 126;
	words[n++] = USERLAND_LOADER;
	words[n++] = "--library-path";
	words[n++] = USERLAND "/lib:" USERLAND "/glibc";
	words[n++] = "--argv0";
	words[n++] = argv[0];
	words[n++] = path;
	for (i = 1; i < argc; i++)
		words[n++] = argv[i];
	execv(USERLAND_LOADER, words);
	fprintf(stderr, "keel-run: cannot start %s: %s\n", path, strerror(errno));
	return 126;
}
