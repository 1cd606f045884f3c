/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A pair of processes, again and again: a victim, and one that it is connected
 * to, which cannot fault its memory in, sleeps in a file system or is stopped.
 */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <stdatomic.h>
#include <stdint.h>

/* Until @stop; @rounds counts. For a process that has no device open. */
void hostile_rounds(const atomic_bool *stop, uint64_t seed,
		    atomic_ullong *rounds);

#endif /* HOSTILE_H */
