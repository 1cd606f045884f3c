/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Let single allocations and copies of this task fail, in a kernel with fault
 * injection.
 */
#ifndef FAULT_H
#define FAULT_H

#include <stdbool.h>

/* Set up the kernel: only tasks that ask for it, and all their allocations. */
void fault_init(void);

/* May copies from and to userspace fail, too? */
void fault_copies(bool may);
/* May only those fail that keel makes itself? */
void fault_only_keel(bool only);
/* May only those fail that are made inside a function, of the kernel or of a module? */
void fault_only_in(const char *function);

/* Let the @n-th allocation or copy from now on fail, or none with 0. */
void fault_start(int n);
/* Stop, and return whether one has failed. */
bool fault_end(void);

#endif /* FAULT_H */
