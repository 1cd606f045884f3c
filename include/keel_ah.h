/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Address vectors and address handles.
 */
#ifndef KEEL_AH_H
#define KEEL_AH_H

#include <rdma/ib_verbs.h>

#include "keel_obj.h"
#include "keel_wire.h"

struct keel_dev;

/**
 * struct keel_av - the address of a message
 * @local: the destination GID was one of this device's when the address vector was
 *	created. A message to any other unicast GID has no receiver.
 * @mcast: the destination is a multicast group
 * @far: the destination may be on another host, and @ends is the way to it
 * @ends: the ends of the link
 * @cast: the group may have members on other hosts, and @ends is the way to them
 * @ipv4: the GIDs are IPv4 addresses
 * @sgid: source GID
 * @dgid: destination GID
 * @sl: service level
 * @tclass: for the GRH
 * @hop_limit: for the GRH
 * @flow_label: for the GRH
 */
struct keel_av {
	bool local;
	bool mcast;
	bool far;
	bool cast;
	bool ipv4;
	union ib_gid sgid;
	union ib_gid dgid;
	u8 sl;
	u8 tclass;
	u8 hop_limit;
	u32 flow_label;
	struct keel_ends ends;
};

/**
 * struct keel_ah - an address handle
 * @obj: the object; holds the PD
 * @holds: of @obj
 * @av: the address
 * @domain: number of the domain it belongs to
 * @link: the link to another host, for keel_link_unuse(), or NULL
 */
struct keel_ah {
	struct keel_obj obj;
	struct keel_hold holds[1];
	struct keel_av av;
	u32 domain;
	struct keel_link *link;
};

struct keel_ib_ah {
	struct ib_ah ib;
	struct keel_ah *ah;
};

static inline struct keel_ah *to_kah(struct ib_ah *ib)
{
	return container_of(ib, struct keel_ib_ah, ib)->ah;
}

/* ah.c */
void keel_av_init(struct keel_dev *kdev, struct keel_av *av,
		  const struct rdma_ah_attr *attr);
struct keel_ah *keel_ah_load(struct keel_dev *kdev, u32 id)
	__must_hold_shared(RCU);
struct keel_ah *keel_ah_get(struct keel_dev *kdev, u32 id);

#endif /* KEEL_AH_H */
