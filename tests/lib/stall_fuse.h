/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The file system of a hostile process: a directory with one file of one page.
 * For stall.c.
 */
#ifndef STALL_FUSE_H
#define STALL_FUSE_H

#include <stdatomic.h>

#define STALL_DIR	"/mnt"
#define STALL_FILE	STALL_DIR "/page"
/* The server answers a lookup of this name only after the release. */
#define STALL_DOOR	STALL_DIR "/door"

/**
 * struct stall_board - memory that the test, the server and the process share
 * @release: answer all waiting and all later requests
 * @waits: count of requests that wait, or have waited, for the release
 */
struct stall_board {
	atomic_bool release;
	atomic_int waits;
};

/* Serve /dev/fuse until the file system is unmounted. */
void fuse_serve(int fd, struct stall_board *board);

#endif /* STALL_FUSE_H */
