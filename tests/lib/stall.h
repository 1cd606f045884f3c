/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A hostile process: uid 1000, in user and mount namespaces of its own, with a
 * FUSE file system of its own whose server answers a read only when the test
 * tells it to. The process can hold its own mmap_lock for as long as the test
 * wants, so that every page fault in its address space waits.
 *
 * The test's own process must not use a device while such a process is stalled:
 * if the kernel is wrong, its calls may never return, and the harness waits for
 * the test's own process. Once that has ended, the harness kills the server of
 * the file system, which ends the stall, so that everything else can end.
 *
 * autofs gives an attacker less than FUSE: only root mounts it, it has no files
 * to map, and neither open() nor execve() walks a path with mmap_lock held. A
 * process in a path walk that the daemon does not finish sleeps
 * uninterruptibly and holds no lock of its address space: stall_walk() is the
 * same on FUSE.
 */
#ifndef STALL_H
#define STALL_H

#include <stdbool.h>
#include <stddef.h>

#include "peer.h"

#define STALL_UID	1000

struct stall_board;

/**
 * struct stall - a hostile process and its file system
 * @peer: the process; its socket is that of peer_start()
 * @server: the server of the file system, a child of the test
 * @board: what the three of them share
 */
struct stall {
	struct peer peer;
	pid_t server;
	struct stall_board *board;
};

/* Start it: run() is as for peer_start(). The device is not open yet. */
void stall_start(struct stall *s, void (*run)(struct peer *parent));
/*
 * Wait until its main thread sleeps: it has done what it was told to do last, or
 * waits in the middle of it.
 */
void stall_settle(struct stall *s);
/* Reads and lookups are answered from now on: the stall is over. */
void stall_release(struct stall *s);
/* The server dies, and /dev/fuse is closed: reads fail. */
void stall_abort(struct stall *s);
/* Is the process gone after so many milliseconds, at most? It was killed. */
bool stall_gone(struct stall *s, int ms);
/* Release it, kill it, and wait for it and its server. */
void stall_end(struct stall *s);

/* In the hostile process only: */

/*
 * Memory without pages, for regions on demand. stall_hold() makes the pages go
 * that came meanwhile. At most 8 pieces.
 */
void *stall_memory(size_t len);
/*
 * At the return, a thread holds the mmap_lock for reading, in a page fault that
 * waits for the file system, and another one waits to have it for writing. No
 * memory may be mapped, and no page touched for the first time, before the
 * release; what was mapped before the call can be used. Once in a process.
 */
void stall_hold(void);
/* Wait in a path walk until the release, with no lock held. */
void stall_walk(void);
/*
 * Memory like that of stall_memory(), but it belongs to a userfaultfd, and
 * nobody answers its faults, those of the kernel included.
 */
void *stall_uffd_memory(size_t len);

#endif /* STALL_H */
