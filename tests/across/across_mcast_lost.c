// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams to multicast groups when devices are removed, and when they are forged.
 */
#include <stddef.h>

#include "groups.h"
#include "stranger.h"
#include "t.h"

/* Numbers of keel_frame.h and cast_qp.c */
#define VERSION		HELLO_VERSION
#define CAST_QKEY	0xeb65656c

static struct crowd x;

void t_end(void)
{
	hosts_down();
}

TEST_SLOW(removal, "HOST-2", "lower devices of both sides are removed while datagrams are under way, and carry them again when they are back", 60)
{
	int i, host;

	x = crowd_new();
	group_join(&x.b, &group4);
	for (host = 0; host < 2; host++) {
		crowd_get_through(&x);
		for (i = 0; i < 50; i++)
			crowd_send(&x, x.ah, QP_QKEY, 1000);
		host_lower(host, 0);
		for (i = 0; i < 50; i++)
			crowd_send(&x, x.ah, QP_QKEY, 1000);
		CHECK(!strstr(groups_of(host), "rxe"));
		host_lower(host, 1);
		if (host)
			groups_wait(1, 1);
		crowd_get_through(&x);
	}
	/* A group that was there before. */
	host_lower(1, 0);
	group_join(&x.c, &group4);
	host_lower(1, 1);
	groups_wait(1, 1);
	group_receive(&x.c);
	crowd_get_through(&x);
	CHECK_WC(x.c.cq, 2, IBV_WC_SUCCESS);
	group_leave(&x.b, &group4);
	group_leave(&x.c, &group4);
	crowd_free(&x);
}

TEST_SLOW(netdev, "HOST-2", "datagrams get through again after the netdev of the sender was down", 60)
{
	int i;

	x = crowd_new();
	group_join(&x.b, &group4);
	crowd_get_through(&x);
	free(host_shell(0, "ip link set keel_a down"));
	for (i = 0; i < 20; i++)
		crowd_send(&x, x.ah, QP_QKEY, 1000);
	usleep(100000);
	free(host_shell(0, "ip link set keel_a up"));
	crowd_get_through(&x);
	group_leave(&x.b, &group4);
	crowd_free(&x);
}

TEST_SLOW(device, "HOST-2", "a device of keel that is a member, or sends, is removed while datagrams are under way", 60)
{
	int i;

	x = crowd_new();
	group_join(&x.b, &group4);
	group_join(&x.c, &group4);
	group_join(&x.d, &group4);
	crowd_get_through(&x);
	for (i = 0; i < 50; i++)
		crowd_send(&x, x.ah, QP_QKEY, 1000);
	free(t_shell("rdma link delete keel_b"));
	for (i = 0; i < 50; i++)
		crowd_send(&x, x.ah, QP_QKEY, 1000);
	free(t_shell("rdma link delete keel_a"));
	ibv_destroy_ah(x.ah);
	end_drop(&x.a);
	end_drop(&x.b);
	end_drop(&x.c);
	end_drop(&x.d);
	hosts_down();
}

/* A QP of rxe on host 0, with the Q_Key of keel: what root can send. */
static struct end forger;
static struct ibv_ah *forged_to;

static void forger_new(void)
{
	forger = end_new_lower(0);
	forged_to = group_ah(&forger, &group4);
	qp_ud_ready(forger.qp, CAST_QKEY);
}

static void forge_bytes(const void *bytes, uint32_t len, uint32_t qkey)
{
	struct ibv_send_wr *wr;

	memcpy(forger.mem, bytes, len);
	wr = send_wr(IBV_WR_SEND, 1, end_part(&forger, 0, len));
	wr->wr.ud.ah = forged_to;
	wr->wr.ud.remote_qpn = MULTICAST_QPN;
	wr->wr.ud.remote_qkey = qkey;
	post(forger.qp, wr);
	CHECK_WC(forger.cq, 1, IBV_WC_SUCCESS);
}

/* A frame that an honest host would send, with 16 bytes behind it. */
static struct honest {
	struct frame f;
	uint8_t data[16];
} honest(uint32_t imm)
{
	struct honest h = {
		.f = {
			.type = FRAME_GROUP, .credits = VERSION, .len = 16, .to = MULTICAST_QPN,
			.from = 0x123, .cookie = 0x1122334455667788,
			.datagram = {
				.opcode = IBV_WR_SEND_WITH_IMM, .tclass = 8, .hop_limit = 3,
				.imm = imm, .qkey = QP_QKEY,
			},
		},
	};

	memset(h.data, 0x77, sizeof(h.data));
	return h;
}

/* The next datagram at b is that with this number. */
static void came(uint32_t imm)
{
	struct ibv_wc wc = CHECK_WC(x.b.cq, 2, IBV_WC_SUCCESS);

	CHECK_EQ(wc.byte_len, GRH + 16);
	CHECK_EQ(wc.src_qp, 0x123);
	CHECK_EQ(wc.imm_data, imm);
	CHECK_ALL(x.b.mem + GRH, 0x77, 16);
	CHECK_ALL(x.b.mem + GRH + 16, 0xee, 64);
	group_receive(&x.b);
}

TEST_SLOW(forged, "HOST-3", "of frames to a group with one member wrong at a time none has an effect", 60)
{
	static const struct {
		uint16_t at;
		uint8_t value;
	} wrong[] = {
		{ offsetof(struct frame, type), FRAME_DATAGRAM },
		{ offsetof(struct frame, type), 0 },
		{ offsetof(struct frame, type), FRAME_GROUP + 1 },
		{ offsetof(struct frame, flags), FRAME_WANTS_ANSWER },
		{ offsetof(struct frame, flags), 1 },
		{ offsetof(struct frame, credits), VERSION + 1 },
		{ offsetof(struct frame, credits) + 1, 1 },
		{ offsetof(struct frame, len), 15 },
		{ offsetof(struct frame, len), 17 },
		{ offsetof(struct frame, len) + 3, 0x80 },
		{ offsetof(struct frame, to), 0 },
		{ offsetof(struct frame, to) + 3, 1 },
		{ offsetof(struct frame, from) + 3, 1 },
		{ offsetof(struct frame, psn), 1 },
		{ offsetof(struct frame, srqn), 1 },
		{ offsetof(struct frame, gen), 1 },
		{ offsetof(struct frame, chunk), 1 },
		{ offsetof(struct frame, freed), 1 },
		{ offsetof(struct frame, reserved), 1 },
		{ offsetof(struct frame, datagram.opcode), IBV_WR_RDMA_WRITE },
		{ offsetof(struct frame, datagram.reserved), 1 },
		{ offsetof(struct frame, datagram.qkey), 1 },
		{ offsetof(struct frame, datagram.unused), 1 },
		{ offsetof(struct frame, datagram.unused) + 31, 1 },
	};
	char noise[4096];
	struct honest h;
	uint32_t i;

	x = crowd_new();
	group_join(&x.b, &group4);
	groups_wait(1, 1);
	forger_new();
	group_receive(&x.b);
	for (i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		h = honest(0xdead);
		((uint8_t *)&h)[wrong[i].at] = wrong[i].value;
		forge_bytes(&h, sizeof(h), CAST_QKEY);
		h = honest(i);
		forge_bytes(&h, sizeof(h), CAST_QKEY);
		came(i);
	}
	h = honest(0xdead);
	forge_bytes(&h, sizeof(h), CAST_QKEY ^ 1);
	for (i = 0; i < sizeof(h.f); i++)
		forge_bytes(&h, i, CAST_QKEY);
	forge_bytes(&h, sizeof(h.f), CAST_QKEY);
	memset(noise, 0xff, sizeof(noise));
	forge_bytes(noise, sizeof(noise), CAST_QKEY);
	forge_bytes(noise, 0, CAST_QKEY);
	memset(noise, 0, sizeof(noise));
	forge_bytes(noise, sizeof(noise), CAST_QKEY);
	h = honest(77);
	forge_bytes(&h, sizeof(h), CAST_QKEY);
	came(77);
	end_is_silent(&x.b);
	CHECK_OK(ibv_destroy_ah(forged_to));
	end_free(&forger);
	group_leave(&x.b, &group4);
	crowd_free(&x);
}
