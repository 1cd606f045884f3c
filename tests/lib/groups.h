/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Multicast groups between the two hosts of hosts.h.
 */
#ifndef GROUPS_H
#define GROUPS_H

#include <stdint.h>

#include "hosts.h"
#include "qp.h"

#define GRH		40
#define MULTICAST_QPN	0xffffff

/* ::ffff:239.9.0.1, and ff0e::9 */
extern const union ibv_gid group4, group6;

/**
 * struct crowd - UD QPs of keel, in RTS
 * @a: on host 0; it sends
 * @b: on host 1
 * @c: on host 1
 * @d: on host 0
 * @ah: of @a: the address of group4
 */
struct crowd {
	struct end a, b, c, d;
	struct ibv_ah *ah;
};

/* Make the hosts, and let their IP take the packets of both groups until the test ends. */
struct crowd crowd_new(void);
void crowd_free(struct crowd *x);
/* Send a datagram with immediate data; crowd_send() waits for its completion. */
void crowd_post(struct crowd *x, struct ibv_ah *to, uint32_t qkey, uint32_t len);
void crowd_send(struct crowd *x, struct ibv_ah *to, uint32_t qkey, uint32_t len);
/* Send until one arrives at b, which is a member of group4. */
void crowd_get_through(struct crowd *x);

/* IP of a host takes the packets of a group until the test ends. rdma_cm does this, too. */
void host_joins(int host, const union ibv_gid *group);

/* The line of the device of a host about its groups, or "". */
const char *groups_of(int host);
/* Wait until so many groups of a host are attached to its lower device. */
void groups_wait(int host, int n);
struct ibv_ah *group_ah(const struct end *e, const union ibv_gid *group);
void group_join(struct end *e, const union ibv_gid *group);
void group_leave(struct end *e, const union ibv_gid *group);
/* Post a receive WQE with number 2. */
void group_receive(struct end *e);
/* Nothing comes. */
void end_is_silent(struct end *e);
/* Memory of an end. */
struct mem end_part(const struct end *e, size_t off, uint32_t len);

#endif /* GROUPS_H */
