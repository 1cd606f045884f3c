/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Messages of ib_cm that establish a link, as the MADs that they are: user space has no
 * ib_cm. The IBTA specification has their layout, keel_frame.h that of struct hello.
 */
#ifndef CM_H
#define CM_H

#include <stdint.h>

#include <infiniband/verbs.h>

/* The QP and the Q_Key of the GSI. */
#define GSI_QPN		1
#define GSI_QKEY	0x80010000
#define MAD_BYTES	256

#define CM_REQ		0x10
#define CM_REJ		0x12
#define CM_REP		0x13
#define CM_RTU		0x14
#define CM_DREQ		0x15

#define HELLO_MAGIC	0x6b65656c
#define HELLO_VERSION	7

struct mad_header {
	uint8_t base_version, mgmt_class, class_version, method;
	uint16_t status, class_specific;
	uint64_t tid;
	uint16_t attr_id, reserved;
	uint32_t attr_mod;
} __attribute__((packed));

/* struct keel_hello, little-endian. */
struct hello {
	uint32_t magic;
	uint16_t version, credits;
	uint64_t cookie;
} __attribute__((packed));

struct cm_req {
	struct mad_header head;
	uint32_t comm_id, reserved4;
	uint64_t service_id, ca_guid;
	uint32_t reserved24, qkey;
	uint32_t qpn_resources, eecn_depth, eecn_timeout, psn_timeout;
	uint16_t pkey;
	uint8_t mtu, cm_retries;
	uint16_t lids[2];
	union ibv_gid from, to;
	uint32_t flow_label;
	uint8_t tclass, hop_limit, sl, ack_timeout;
	uint8_t alternate[44];
	struct hello hello;
	uint8_t rest[76];
} __attribute__((packed));

struct cm_rep {
	struct mad_header head;
	uint32_t comm_id, peer_id;
	uint32_t qkey, qpn, eecn, psn;
	uint8_t resources, depth, delay, retries;
	uint64_t ca_guid;
	struct hello hello;
	uint8_t rest[180];
} __attribute__((packed));

/* The first members of REJ, RTU and DREQ, too. */
struct cm_other {
	struct mad_header head;
	uint32_t comm_id, peer_id;
	uint32_t more;
	uint8_t rest[220];
} __attribute__((packed));

_Static_assert(sizeof(struct cm_req) == MAD_BYTES, "a MAD has 256 bytes");
_Static_assert(sizeof(struct cm_rep) == MAD_BYTES, "a MAD has 256 bytes");
_Static_assert(sizeof(struct cm_other) == MAD_BYTES, "a MAD has 256 bytes");

/* The GID of an IPv4 address, e.g. 0x0a090001. */
union ibv_gid gid_of_ipv4(uint32_t address);
/* A request as an honest host sends it, with a number of its own: see &cm_req.comm_id. */
struct cm_req cm_req_of(uint32_t from, uint32_t to);
/* A message of another type about a connection, of which both sides have a number. */
struct cm_other cm_other_of(uint16_t attr_id, uint32_t comm_id, uint32_t peer_id);

#endif /* CM_H */
