// SPDX-License-Identifier: GPL-2.0
/*
 * Calls: frames to groups, which come over no link. The forger sends them: a QP of the lower
 * device of host 1, because no router forwards packets to a group. Without "spoil" and its like,
 * frames are such as keel sends them.
 */
#include <stdlib.h>

#include "groups.h"
#include "qp.h"
#include "t.h"
#include "world.h"

/* Numbers of keel_frame.h and cast_qp.c */
#define VERSION		HELLO_VERSION
#define CAST_QKEY	0xeb65656c

/* Source addresses: that of the honest host, one that has no link, that of the link scope. */
enum { OF_HONEST, OF_NOBODY, OF_SCOPE, SOURCES };
/* Destinations: the groups, and two that are none. */
enum { TO_VICTIM = W_GROUPS, TO_SCOPE, TARGETS };
/* Arguments: bits of HOW, beside the source. */
enum { HOW_SOURCE = 3, HOW_SOLICITED = 4, HOW_QKEY = 8, HOW_DIRECT = 16, HOW_IMM = 32 };

#define NOBODY_IPV4	0x0a090042
/* Packets under way. */
#define SENDS		32

static struct end forger;
/* NULL if a source cannot send to a destination. */
static struct ibv_ah *addresses[SOURCES][TARGETS];
/* Number of the QP by which the victim's device receives. */
static uint32_t victim_qpn;
static unsigned int posted, sent;

static const uint32_t lengths[] = { 16, 0, 1, 64, 4000, 3999, 928, 2000 };

void forger_net_up(void)
{
	free(host_shell(1, "ip address replace 10.9.0.66/24 dev keel_b"));
}

/* The address of the link scope of a device. */
static int find_scope(struct ibv_context *ctx, union ibv_gid *gid)
{
	int i;

	for (i = 0; i < 16; i++)
		if (!ibv_query_gid(ctx, 1, i, gid) && gid->raw[0] == 0xfe)
			return i;
	FAIL("a device has no address of the link scope");
}

static void find_addresses(void)
{
	union ibv_gid nobody = gid_of_ipv4(NOBODY_IPV4), to[TARGETS], scope;
	int sgid[SOURCES], i, j;
	struct ibv_ah_attr attr;

	sgid[OF_HONEST] = forger.sgid;
	sgid[OF_NOBODY] = world_sgid(forger.ctx, &nobody);
	sgid[OF_SCOPE] = find_scope(forger.ctx, &scope);
	memcpy(to, world_groups, sizeof(world_groups));
	to[TO_VICTIM] = gid_of_ipv4(VICTIM_IPV4);
	find_scope(w.ctx, &to[TO_SCOPE]);
	for (i = 0; i < SOURCES; i++)
		for (j = 0; j < TARGETS; j++) {
			attr = (struct ibv_ah_attr){
				.is_global = 1, .port_num = 1,
				.grh = { .dgid = to[j], .sgid_index = sgid[i], .hop_limit = 5,
					 .traffic_class = 0x28 },
			};
			addresses[i][j] = ibv_create_ah(forger.pd, &attr);
		}
	CHECK(addresses[OF_HONEST][W_FOUR] && addresses[OF_NOBODY][W_FOUR] &&
	      addresses[OF_SCOPE][W_SIX] && addresses[OF_HONEST][TO_VICTIM]);
}

/* Root of any host can guess it. */
static void find_victim_qpn(void)
{
	char *text = t_shell("rdma resource show qp link rxe_a/1 | "
			     "sed -n 's/.* lqpn \\([0-9]*\\) .*type UD .*comm .keel.*/\\1/p'");

	victim_qpn = strtoul(text, NULL, 10);
	if (!victim_qpn)
		FAIL("there is no QP for groups: %s",
		     t_shell("rdma resource show qp link rxe_a/1"));
	free(text);
}

/* The victim is a member of groups. */
void forger_open(void)
{
	forger = end_new_lower(1);
	qp_ud_ready(forger.qp, CAST_QKEY);
	posted = 0;
	sent = 0;
	find_addresses();
	find_victim_qpn();
}

void forger_close(void)
{
	int i, j;

	for (i = 0; i < SOURCES; i++)
		for (j = 0; j < TARGETS; j++)
			if (addresses[i][j])
				CHECK_OK(ibv_destroy_ah(addresses[i][j]));
	end_free(&forger);
}

/* rxe reports a packet that has no route, and then the QP has to begin again. */
static void reap(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(forger.cq, 1, &wc) > 0) {
		sent++;
		if (wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR)
			continue;
		qp_to(forger.qp, IBV_QPS_RESET);
		while (ibv_poll_cq(forger.cq, 1, &wc) > 0)
			;
		qp_ud_ready(forger.qp, CAST_QKEY);
		sent = posted;
	}
}

/* Wait until no more than @most packets are under way. */
static void settle(unsigned int most)
{
	int ms;

	reap();
	for (ms = 0; posted - sent > most; ms++) {
		if (ms > 5000)
			FAIL("the forger cannot send");
		usleep(1000);
		reap();
	}
}

void forger_settle(void)
{
	settle(0);
}

void forger_send(struct way way, const void *bytes, size_t n)
{
	struct ibv_ah *ah = addresses[(way.how & HOW_SOURCE) % SOURCES][way.to % TARGETS];
	char *slot = forger.mem + posted % SENDS * FRAME_ROOM;
	struct ibv_sge sge = { (uintptr_t)slot, n, forger.mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = n ? 1 : 0,
		.opcode = way.how & HOW_IMM ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = {
			.ah = ah,
			.remote_qpn = way.how & HOW_DIRECT ? victim_qpn : MULTICAST_QPN,
			.remote_qkey = way.how & HOW_QKEY ? CAST_QKEY ^ 1 : CAST_QKEY,
		},
	}, *bad;

	if (!ah)
		return;
	settle(SENDS - 1);
	memcpy(slot, bytes, n);
	/* Before it can arrive. */
	if (way.to % TARGETS == W_FOUR && !(way.how & HOW_QKEY))
		witness_sent(bytes, n);
	/* The QP is not ready while it reports an error. */
	if (!ibv_post_send(forger.qp, &wr, &bad))
		posted++;
}

/* cast TO HOW LENGTH QKEY FROM NUMBER IMM: datagrams to a group; see enum for TO and HOW */
static void op_cast(const uint8_t *a)
{
	struct way way = { .cast = true, .to = a[0], .how = a[1] };
	struct frame frame = {
		.type = FRAME_GROUP, .flags = a[1] & HOW_SOLICITED, .credits = VERSION,
		.to = MULTICAST_QPN, .from = PEER_QPN + a[4], .cookie = 0x1122334455667788,
		.datagram = {
			.opcode = a[6] & 1 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
			.tclass = a[6], .hop_limit = a[4], .imm = a[6],
			.flow_label = a[6] & 1 ? a[6] : 0, .qkey = QP_QKEY + a[3],
		},
	};
	int n;

	for (n = 0; n <= a[5] % 80; n++)
		frames_send(&frame, lengths[a[2] % (sizeof(lengths) / sizeof(*lengths))], way);
}

/*
 * detour TO HOW: the next frame goes to a group, although it is one of a link; or over the link,
 * although it is one to a group
 */
static void op_detour(const uint8_t *a)
{
	frames_detour((struct way){ .cast = true, .to = a[0], .how = a[1] });
}

const struct op cast_ops[] = {
	{ "cast", op_cast, 12 },
	{ "detour", op_detour, 1 },
};

const int cast_ops_count = sizeof(cast_ops) / sizeof(*cast_ops);
