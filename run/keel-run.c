// SPDX-License-Identifier: GPL-2.0
/*
 * keel-run [OPTION...] -- COMMAND [ARGUMENT...]
 *
 * Run a command in a User Mode Linux kernel with keel0 there. This program is on
 * the host: it starts the kernel, is the device at the other end of the guest's
 * console, and passes on the command's streams, signals and exit status. The
 * guest's side is init.c.
 */
#include <stdlib.h>

#include "keel-run.h"

int main(int argc, char **argv)
{
	struct wire_run run = { 0 };
	struct buffer settings = { 0 };
	struct bundle bundle;
	struct options opt;

	streams_inspect(&run);
	options_parse(&opt, argc, argv);
	bundle_find(&bundle, &opt);
	run.read_only = opt.ro;
	run.debug = opt.debug;
	run.devices = opt.devices;
	settings_put(&settings, &opt, &bundle, &run);
	limits_raise();
	atexit(terminal_restore);
	return session_run(&opt, &bundle, &settings, &run);
}
