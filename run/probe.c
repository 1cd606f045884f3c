// SPDX-License-Identifier: GPL-2.0
/*
 * probe DEVICE: can the libibverbs of this machine load the provider of DEVICE?
 * This program is linked dynamically, so it has the machine's loader and library.
 */
#include <infiniband/verbs.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **p;

	for (p = list; argc == 2 && p && *p; p++)
		if (!strcmp(ibv_get_device_name(*p), argv[1]))
			return !ibv_open_device(*p);
	return 1;
}
