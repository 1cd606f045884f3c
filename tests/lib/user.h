/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Processes of other users, and their user namespaces.
 */
#ifndef USER_H
#define USER_H

#include <sys/types.h>

#include "peer.h"

/* Turn this process into a user without privileges. */
void user_become(uid_t uid);

/*
 * Start a process of @owner that creates a user namespace and waits in the
 * namespace until user_ns_end(). The caller must be root and writes the map,
 * which has lines of "inside outside count".
 */
void user_ns_start(struct peer *p, uid_t owner, const char *map);
void user_ns_end(struct peer *p);
/* Move this process, which must be root, into a namespace as user @uid. */
void user_ns_join(pid_t pid, uid_t uid);
/* Move this process into a new user namespace without a map. */
void user_ns_new(void);

#endif /* USER_H */
