/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Processes of other users, and their user namespaces.
 */
#ifndef USER_H
#define USER_H

#include <sys/types.h>

#include "peer.h"

/* This process goes on as a user without any privilege. */
void user_become(uid_t uid);

/*
 * A process of a user that makes a user namespace and waits in it until
 * user_ns_end(). The map has lines of "inside outside count"; the caller, which is
 * root, writes it.
 */
void user_ns_start(struct peer *p, uid_t owner, const char *map);
void user_ns_end(struct peer *p);
/* This process, which is root, goes on in it, as a user in there. */
void user_ns_join(pid_t pid, uid_t uid);
/* This process goes on in a user namespace of its own, which has no map. */
void user_ns_new(void);

#endif /* USER_H */
