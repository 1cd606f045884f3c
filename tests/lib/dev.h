/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Devices that come and go: a second one, on a netdev of its own, and keel0,
 * which comes and goes with the module. Leftovers of the second from
 * a failed test are removed first.
 */
#ifndef DEV_H
#define DEV_H

#include <stdbool.h>

/* The device that dev_add() makes, on a dummy netdev. */
#define KEEL1		"keel1"
#define KEEL1_NETDEV	"keeltest1"

void dev_add(void);
void dev_del(void);

/* Is the memory of keel0 a BAR? */
bool dev_bar(void);

/* Is there such a device? */
bool dev_exists(const char *name);

/* A hardware counter of keel0's port. */
long dev_counter(const char *name);
/*
 * Wait until a counter is @n above @before, a value it had. On a busy machine
 * ibv_post_send() may leave the work to the kernel's thread.
 */
void dev_counter_wait(const char *name, long before, int n);

/* It works: a message from one QP to another, by a context of its own. */
void dev_check_works(const char *name);

/*
 * The module, and with it keel0. module_restore(), for t_after(), loads it
 * again as it was first, if the last test left it otherwise. module_usual() is
 * what this guest has it loaded with.
 */
#define MODULE_FILE	"/lib/modules/keel/keel.ko"

bool module_loaded(void);
void module_unload(void);
void module_load(const char *params);
const char *module_usual(void);
void module_restore(void);
/* Say that the module will be unloaded by other means. */
void module_will_go(void);

#endif /* DEV_H */
