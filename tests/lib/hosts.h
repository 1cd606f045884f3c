/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two hosts: two network namespaces, which a veth pair connects. Each has a device of
 * rxe, and a device of keel that uses it. The process of a test opens both.
 *
 * With KEEL_OVER=siw in the environment, the devices are those of siw. Its kernel users reach
 * only the initial namespace: both hosts are there, with addresses of the link scope. IPv6
 * sends from one to the other by the netdev of the sender, although both are its own.
 */
#ifndef HOSTS_H
#define HOSTS_H

#include <stdint.h>

#include <infiniband/verbs.h>

#define HOSTS		2
/* Memory of an end. */
#define END_BYTES	0x100000
#define END_HALF	(END_BYTES / 2)

/**
 * struct end - a device of keel on one of the hosts, and what it needs to send
 * @ctx: the device
 * @pd: a PD
 * @cq: CQ of all work requests
 * @qp: an RC or UC QP
 * @mem: its memory
 * @mr: the memory, with all rights
 * @sgid: index of its address
 * @gid: the address
 */
struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	char *mem;
	struct ibv_mr *mr;
	int sgid;
	union ibv_gid gid;
};

/*
 * Make the hosts, with a module that was loaded for them, unless an earlier test has left
 * them whole.
 */
void hosts_up(void);
/* Undo this, for t_end(). */
void hosts_down(void);
/* Run a shell command on a host, and return its output. */
char *host_shell(int host, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Likewise, and return its status. */
int host_shell_status(int host, const char *command);
/* How many connections the link between the hosts has had, as host @host counts them. */
int host_connections(int host);
/* The type of the lower devices, and the first part of their names: "rxe" or "siw". */
const char *hosts_over(void);
/* The address of a host as programs on host @from write it. */
const char *host_at(int host, int from);
/* Give a host its address, if its netdev has lost it. */
void host_address(int host);
/* Create or delete the lower device of a host. */
void host_lower(int host, int up);

/* Open the device of a host, with a QP in RESET. */
struct end end_new(int host);
/* The same, with a UC QP. */
struct end end_new_uc(int host);
/* With a UD QP. */
struct end end_new_ud(int host);
/* With an XRC_SEND QP. */
struct end end_new_xrc(int host);
/* With a UD QP of the lower device. */
struct end end_new_lower(int host);
void end_free(struct end *e);
/* The device was removed: close what is left. */
void end_drop(struct end *e);
/* Attributes of an address on the other host. */
struct ibv_ah_attr end_to(const struct end *e, const struct end *peer);

/* How QPs are connected. */
struct joint {
	uint8_t timeout, retry_cnt, rnr_retry, rnr_timer;
	uint32_t psn;
};

extern const struct joint joint_usual;
/* With time for a link that is cut, and comes up again on a slow machine: 34 s. */
extern const struct joint joint_patient;
/* Move a QP from RESET to RTS. */
void end_connect(struct end *e, const struct end *peer, const struct joint *j);
/* Do this for both. */
void ends_join(struct end *a, struct end *b, const struct joint *j);

#endif /* HOSTS_H */
