/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A hostile process: uid 1000, in its own user and mount namespaces, with its
 * own FUSE file system. The server of this file system answers a read only when
 * the test tells it to. The process can hold its own mmap_lock for as long as
 * the test wants, so that every page fault in its address space waits.
 *
 * The test's own process must not use a device while such a process is stalled.
 * If the kernel is wrong, its calls may never return, and the harness waits for
 * the test's own process. After the end of this process, the harness kills the
 * server of the file system. This ends the stall, so that all other processes
 * can exit.
 *
 * autofs gives an attacker less than FUSE: only root mounts it, it has no files
 * to map, and neither open() nor execve() walks a path with mmap_lock held. A
 * process in a path walk that the daemon does not finish sleeps uninterruptibly
 * and holds no lock of its address space: stall_walk() does the same on FUSE.
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
 * @peer: the process, started by peer_start()
 * @server: the server of the file system, a child of the test
 * @board: memory that test, process and server share
 */
struct stall {
	struct peer peer;
	pid_t server;
	struct stall_board *board;
};

/*
 * Start the process; see peer_start() for run(). The process opens the device
 * itself.
 */
void stall_start(struct stall *s, void (*run)(struct peer *parent));
/*
 * Wait until the main thread sleeps: it has finished its last action, or waits
 * in the middle of it.
 */
void stall_settle(struct stall *s);
/* Answer reads and lookups from now on: the stall is over. */
void stall_release(struct stall *s);
/* Kill the server, which closes /dev/fuse: reads fail. */
void stall_abort(struct stall *s);
/* After a kill: return true if the process dies within @ms milliseconds. */
bool stall_gone(struct stall *s, int ms);
/* Release and kill the process, and wait for its end and that of the server. */
void stall_end(struct stall *s);

/* Functions for the hostile process: */

/*
 * Map memory without pages, for on-demand MRs. stall_hold() drops pages that
 * have been touched meanwhile. At most 8 pieces.
 */
void *stall_memory(size_t len);
/*
 * On return, a thread holds the mmap_lock for reading, in a page fault that
 * waits for the file system. Another thread waits to get the mmap_lock for
 * writing. Before the release, the process must not map memory or touch a page
 * for the first time; it can use memory that was mapped before the call. A
 * process can call this once.
 */
void stall_hold(void);
/* Wait in a path walk until the release, with no lock held. */
void stall_walk(void);
/*
 * Map memory like stall_memory(), but register it with a userfaultfd whose
 * faults nobody answers, those of the kernel included.
 */
void *stall_uffd_memory(size_t len);

#endif /* STALL_H */
