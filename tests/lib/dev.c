// SPDX-License-Identifier: GPL-2.0
/*
 * Devices that come and go. See dev.h.
 */
#include "dev.h"
#include "t.h"

/* There while the module may not be as "insmod" leaves it. */
#define RELOAD	"/tmp/keel-reload"

void dev_del(void)
{
	if (access("/sys/class/infiniband/" KEEL1, F_OK) &&
	    access("/sys/class/net/" KEEL1_NETDEV, F_OK))
		return;
	t_shell_status("rdma link delete " KEEL1 " 2>&1; "
		       "ip link delete " KEEL1_NETDEV " 2>&1");
}

void dev_add(void)
{
	dev_del();
	t_shell("ip link add " KEEL1_NETDEV " type dummy && "
		"ip link set " KEEL1_NETDEV " up && "
		"rdma link add " KEEL1 " type keel netdev " KEEL1_NETDEV);
}

bool dev_bar(void)
{
	return !access("/sys/class/infiniband/" KEEL0 "/device", F_OK);
}

bool dev_exists(const char *name)
{
	struct ibv_device **list = MUST(ibv_get_device_list(NULL));
	bool found = false;
	int i;

	for (i = 0; list[i]; i++)
		found |= !strcmp(ibv_get_device_name(list[i]), name);
	ibv_free_device_list(list);
	return found;
}

bool module_loaded(void)
{
	return !access("/sys/module/keel", F_OK);
}

/* Without a device of its own, if keel0 shall be that of a PCI function. */
const char *module_usual(void)
{
	return getenv("KEEL_PARAMS") ?: "";
}

void module_restore(void)
{
	if (!access(RELOAD, F_OK))
		t_shell_status("rmmod keel 2>&1; insmod " MODULE_FILE
			       " %s && rm " RELOAD, module_usual());
}

void module_will_go(void)
{
	free(t_shell("touch " RELOAD));
}

void module_unload(void)
{
	module_will_go();
	free(t_shell("rmmod keel"));
	CHECK(!module_loaded());
}

void module_load(const char *params)
{
	free(t_shell("insmod " MODULE_FILE " %s", params));
	CHECK(module_loaded());
	if (params == module_usual())
		unlink(RELOAD);
}
