/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A second process of a test, and a socket between the two.
 *
 * Start it before opening a device: it would have the parent's file
 * descriptors, and objects live as long as anybody has their file open.
 */
#ifndef PEER_H
#define PEER_H

#include <stddef.h>
#include <sys/types.h>

struct peer {
	pid_t pid;
	int fd;
};

/* run() is given its end of the socket; its return is exit(0). */
void peer_start(struct peer *p, void (*run)(struct peer *parent));
void peer_put(struct peer *p, const void *data, size_t len);
void peer_get(struct peer *p, void *data, size_t len);
/* One byte: a turn in the conversation. */
void peer_tell(struct peer *p);
void peer_wait(struct peer *p);
void peer_put_fd(struct peer *p, int fd);
int peer_get_fd(struct peer *p);
/* A turn of several at once: who is through waits for the others. */
void peers_turn(struct peer *p, int n);
/* Zeroed memory, the same in this process and those it starts from here on. */
void *peer_shared(size_t len);
/* Wait for its end, which must be a good one. */
void peer_end(struct peer *p);
/* Send a signal and wait until the process is gone for good. */
void peer_kill(struct peer *p, int sig);

#define peer_put_var(p, var)	peer_put(p, &(var), sizeof(var))
#define peer_get_var(p, var)	peer_get(p, &(var), sizeof(var))

#endif /* PEER_H */
