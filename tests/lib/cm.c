// SPDX-License-Identifier: GPL-2.0
/*
 * Messages of ib_cm. See cm.h.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <string.h>

#include "cm.h"

#define SERVICE_ID	0x1000006b65656c01

union ibv_gid gid_of_ipv4(uint32_t address)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff } };

	address = htonl(address);
	memcpy(gid.raw + 12, &address, sizeof(address));
	return gid;
}

static struct mad_header head_of(uint16_t attr_id, uint64_t tid)
{
	return (struct mad_header){
		.base_version = 1,
		.mgmt_class = 7,
		.class_version = 2,
		.method = 3,
		.tid = htobe64(tid),
		.attr_id = htons(attr_id),
	};
}

struct cm_req cm_req_of(uint32_t from, uint32_t to)
{
	static uint32_t id;

	id++;
	return (struct cm_req){
		.head = head_of(CM_REQ, id),
		.comm_id = htonl(id),
		.service_id = htobe64(SERVICE_ID),
		.ca_guid = htobe64(0x1234),
		.qpn_resources = htonl((0x1000 + id) << 8 | 1),
		.eecn_depth = htonl(1),
		.eecn_timeout = htonl(18 << 3),
		.psn_timeout = htonl(0x1234 << 8 | 18 << 3 | 7),
		.pkey = 0xffff,
		.mtu = IBV_MTU_4096 << 4,
		.cm_retries = 3 << 4,
		.from = gid_of_ipv4(from),
		.to = gid_of_ipv4(to),
		.hop_limit = 64,
		.ack_timeout = 14 << 3,
		.hello = {
			.magic = htole32(HELLO_MAGIC),
			.version = htole16(HELLO_VERSION),
			.credits = htole16(128),
			.cookie = htole64(id),
		},
	};
}

struct cm_other cm_other_of(uint16_t attr_id, uint32_t comm_id, uint32_t peer_id)
{
	return (struct cm_other){
		.head = head_of(attr_id, comm_id),
		.comm_id = htonl(comm_id),
		.peer_id = htonl(peer_id),
	};
}
