/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Devices that tests create and remove: a second device on its own netdev, and
 * keel0, which is created and removed with the module. dev_add() first removes
 * what a failed test left of the second device.
 */
#ifndef DEV_H
#define DEV_H

#include <stdbool.h>

/* The device that dev_add() creates, on a dummy netdev. */
#define KEEL1		"keel1"
#define KEEL1_NETDEV	"keeltest1"

void dev_add(void);
void dev_del(void);

/* Return true if the memory of keel0 is a BAR. */
bool dev_bar(void);

/* Return true if the device exists. */
bool dev_exists(const char *name);

/* Return a hardware counter of keel0's port. */
long dev_counter(const char *name);
/* Read several at once. */
void dev_counters(const char * const *names, int n, long *values);
/*
 * Wait until a counter is @n above @before, a value it had. On a busy machine
 * ibv_post_send() may leave the work to the kernel's thread.
 */
void dev_counter_wait(const char *name, long before, int n);

/* Check that a message between two QPs of a new context arrives. */
void dev_check_works(const char *name);

/*
 * Load and unload the module, and with it keel0. t_after() calls
 * module_restore(), which loads the module with its usual parameters if the
 * last test did not. module_usual() returns the parameters of this guest.
 */
#define MODULE_FILE	"/lib/modules/keel/keel.ko"

bool module_loaded(void);
void module_unload(void);
void module_load(const char *params);
const char *module_usual(void);
void module_restore(void);
/* Announce that the test unloads the module by other means. */
void module_will_go(void);

#endif /* DEV_H */
