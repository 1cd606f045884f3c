/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A second device, on a netdev of its own. Whatever a failed test left of
 * them is removed first.
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

#endif /* DEV_H */
