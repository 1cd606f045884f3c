/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A second process of a test, and a socket between both processes.
 *
 * Start the process before opening a device. Otherwise it inherits the parent's
 * file descriptors, and objects live as long as any process has their file
 * open.
 */
#ifndef PEER_H
#define PEER_H

#include <stddef.h>
#include <sys/types.h>

struct peer {
	pid_t pid;
	int fd;
};

/*
 * run() gets its end of the socket; returning from run() exits with status 0.
 */
void peer_start(struct peer *p, void (*run)(struct peer *parent));
void peer_put(struct peer *p, const void *data, size_t len);
void peer_get(struct peer *p, void *data, size_t len);
/* Send or receive one byte, to take turns. */
void peer_tell(struct peer *p);
void peer_wait(struct peer *p);
void peer_put_fd(struct peer *p, int fd);
int peer_get_fd(struct peer *p);
/* Wait for all processes to reach this point, then let all go on. */
void peers_turn(struct peer *p, int n);
/*
 * Allocate zeroed memory that this process shares with processes it starts
 * later.
 */
void *peer_shared(size_t len);
/* Wait until the process ends, which must be with exit status 0. */
void peer_end(struct peer *p);
/* Send a signal and wait until the process is dead. */
void peer_kill(struct peer *p, int sig);

#define peer_put_var(p, var)	peer_put(p, &(var), sizeof(var))
#define peer_get_var(p, var)	peer_get(p, &(var), sizeof(var))

#endif /* PEER_H */
