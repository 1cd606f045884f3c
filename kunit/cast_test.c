// SPDX-License-Identifier: GPL-2.0
/*
 * Multicast to other hosts: the frames of datagrams, and the places that users share.
 */
#include <kunit/test.h>
#include <linux/err.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>

#include "keel.h"
#include "keel_cast.h"

#define HEAD	((u32)sizeof(struct keel_frame))

/* All bits that may be set are not. */
static struct keel_frame cast_frame(u32 len)
{
	return (struct keel_frame){
		.type = KEEL_FRAME_GROUP,
		.credits = cpu_to_le16(KEEL_FRAME_VERSION),
		.len = cpu_to_le32(len),
		.to = cpu_to_le32(IB_MULTICAST_QPN),
		.datagram.opcode = IB_WR_SEND,
	};
}

/* The bits of a byte of the header that a sender chooses. */
static u8 cast_free_bits(u32 at)
{
	const u32 from = offsetof(struct keel_frame, from);
	const u32 cookie = offsetof(struct keel_frame, cookie);
	const u32 imm = offsetof(struct keel_frame, datagram.imm);

	switch (at) {
	case offsetof(struct keel_frame, flags):
		return KEEL_FRAME_F_SOLICITED;
	case offsetof(struct keel_frame, datagram.opcode):
		return IB_WR_SEND ^ IB_WR_SEND_WITH_IMM;
	case offsetof(struct keel_frame, datagram.tclass):
	case offsetof(struct keel_frame, datagram.hop_limit):
		return 0xff;
	}
	if ((at >= from && at < from + 3) || (at >= cookie && at < cookie + 8) ||
	    (at >= imm && at < offsetof(struct keel_frame, datagram.unused)))
		return 0xff;
	return 0;
}

/* HOST-3: each bit of the header matters but those that the sender chooses. */
static void host_3_cast_bits(struct kunit *test)
{
	struct keel_frame frame = cast_frame(0);
	u32 at, bit;

	KUNIT_EXPECT_TRUE(test, keel_frame_is_group(&frame, HEAD));
	for (at = 0; at < HEAD; at++)
		for (bit = 1; bit < 0x100; bit <<= 1) {
			frame = cast_frame(0);
			((u8 *)&frame)[at] ^= bit;
			KUNIT_EXPECT_EQ_MSG(test, !!(cast_free_bits(at) & bit),
					    keel_frame_is_group(&frame, HEAD),
					    "byte %u, bits 0x%x", at, bit);
		}
	/* A link carries no such frame. */
	frame = cast_frame(0);
	KUNIT_EXPECT_FALSE(test, keel_frame_is_valid(&frame, HEAD));
}

struct cast_len {
	const char *desc;
	u32 len, bytes;
	bool valid;
};

static const struct cast_len cast_lens[] = {
	{ "no data", 0, HEAD, true },
	{ "one byte", 1, HEAD + 1, true },
	{ "most data", KEEL_CAST_DATA, HEAD + KEEL_CAST_DATA, true },
	{ "one byte more", KEEL_CAST_DATA + 1, HEAD + KEEL_CAST_DATA + 1 },
	{ "nothing", 0, 0 },
	{ "one byte of the header is missing", 0, HEAD - 1 },
	{ "length that wraps to no data", U32_MAX, HEAD - 1 },
	{ "length that wraps to nothing", 0 - HEAD, 0 },
	{ "one byte is missing", 100, HEAD + 99 },
	{ "one byte is too much", 100, HEAD + 101 },
	{ "length that is right in 16 bits", 0x10000 + 100, HEAD + 100 },
};

KUNIT_ARRAY_PARAM_DESC(cast_len, cast_lens, desc);

/* HOST-3: the length is that of what was received. */
static void host_3_cast_len(struct kunit *test)
{
	const struct cast_len *c = test->param_value;
	struct keel_frame frame = cast_frame(c->len);

	KUNIT_EXPECT_EQ(test, c->valid, keel_frame_is_group(&frame, c->bytes));
}

static void cast_nothing(struct work_struct *work)
{
}

static const struct keel_wire_ops cast_ops;

/* Take places until there is none. Return: how many were taken. */
static int cast_take(struct kunit *test, struct keel_cast *cast, const struct keel_user *user)
{
	struct keel_cast_msg *msg;
	int n;

	for (n = 0; n <= KEEL_CAST_SENDS; n++) {
		msg = keel_cast_msg_new(cast, user, 10, GFP_KERNEL);
		if (IS_ERR(msg))
			break;
	}
	KUNIT_EXPECT_EQ(test, -EAGAIN, PTR_ERR(msg));
	return n;
}

/* HOST-4: a user gets half of the places, and something is left for the next one. */
static void host_4_cast_places(struct kunit *test)
	__context_unsafe(/* no other thread has it */)
{
	struct keel_cast *cast = kunit_kzalloc(test, sizeof(*cast), GFP_KERNEL);
	struct keel_user *user = kunit_kzalloc(test, 2 * sizeof(*user), GFP_KERNEL);
	struct keel_cast_msg *msg, *next;

	KUNIT_ASSERT_NOT_NULL(test, cast);
	KUNIT_ASSERT_NOT_NULL(test, user);
	KUNIT_ASSERT_EQ(test, 0, keel_links_start(&cast_ops));
	keel_cast_init(cast, cast_nothing);
	msg = keel_cast_msg_new(cast, user, 10, GFP_KERNEL);
	KUNIT_EXPECT_EQ(test, -ENOLINK, PTR_ERR(msg));
	keel_cast_start(cast);
	msg = keel_cast_msg_new(cast, user, KEEL_CAST_DATA + 1, GFP_KERNEL);
	KUNIT_EXPECT_EQ(test, -EMSGSIZE, PTR_ERR(msg));
	KUNIT_EXPECT_EQ(test, KEEL_CAST_SENDS / 2, cast_take(test, cast, user));
	KUNIT_EXPECT_EQ(test, KEEL_CAST_SENDS / 4, cast_take(test, cast, user + 1));
	KUNIT_EXPECT_EQ(test, KEEL_CAST_SENDS / 8, cast_take(test, cast, NULL));
	KUNIT_EXPECT_EQ(test, KEEL_CAST_SENDS * 7 / 8, cast->nmsgs);
	list_for_each_entry_safe(msg, next, &cast->msgs, node)
		keel_cast_msg_free(msg);
	KUNIT_EXPECT_EQ(test, 0, cast->nmsgs);
	KUNIT_EXPECT_EQ(test, KEEL_CAST_SENDS / 2, cast_take(test, cast, user));
	list_for_each_entry_safe(msg, next, &cast->msgs, node)
		keel_cast_msg_free(msg);
	keel_cast_stop(cast);
	keel_links_stop();
}

static struct kunit_case cast_test_cases[] = {
	KUNIT_CASE(host_3_cast_bits),
	KUNIT_CASE_PARAM(host_3_cast_len, cast_len_gen_params),
	KUNIT_CASE(host_4_cast_places),
	{}
};

static struct kunit_suite cast_suite = {
	.name = "keel_cast",
	.test_cases = cast_test_cases,
};
kunit_test_suite(cast_suite);
