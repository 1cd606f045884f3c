/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Processes and threads of an input.
 */
#ifndef PROC_H
#define PROC_H

#include "world.h"

#define CHILDREN	4

/* Wait for the children. */
void proc_reap(void);

#endif /* PROC_H */
