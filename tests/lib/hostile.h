/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Start pairs of processes in a loop: a victim, and a connected process that
 * cannot fault its memory in, sleeps in a file system or is stopped.
 */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * Run until @stop is set, and count @rounds. The caller must have no device
 * open.
 */
void hostile_rounds(const atomic_bool *stop, uint64_t seed,
		    atomic_ullong *rounds);

#endif /* HOSTILE_H */
