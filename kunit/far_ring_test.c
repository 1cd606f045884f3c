// SPDX-License-Identifier: GPL-2.0
/* Memory for the data of packets, compared with a simple model: an array of units. */
#include <kunit/test.h>
#include <linux/prandom.h>

#include "keel_far_ring.h"

#define STEPS	100000
#define UNITS	(KEEL_FAR_RING / KEEL_FAR_UNIT)
#define LIVE	(KEEL_FAR_BYTES / KEEL_FAR_UNIT)
#define SEED	0x6b65656cULL

struct ring_packet {
	u32 at, bytes;
};

struct ring_model {
	struct keel_far_ring ring;
	struct rnd_state rnd;
	/* Is a unit in use? */
	bool used[UNITS];
	/* The packets, in their order, from @first % LIVE on. */
	struct ring_packet live[LIVE];
	u32 first, n, bytes;
	/* Number of packets that had no room, and of those that began at 0 again. */
	u32 full, wraps;
};

static u32 model_below(struct ring_model *m, u32 n)
{
	return prandom_u32_state(&m->rnd) % n;
}

static struct ring_packet *model_packet(struct ring_model *m, u32 i)
{
	return &m->live[(m->first + i) % LIVE];
}

/* Return: false if a unit is not as it was. */
static bool model_set(struct ring_model *m, const struct ring_packet *packet, bool used)
{
	u32 unit;

	for (unit = packet->at / KEEL_FAR_UNIT;
	     unit < (packet->at + packet->bytes) / KEEL_FAR_UNIT; unit++) {
		if (m->used[unit] == used)
			return false;
		m->used[unit] = used;
	}
	return true;
}

static void model_add(struct kunit *test, struct ring_model *m, u32 bytes)
{
	struct ring_packet packet = { .bytes = bytes };
	bool room = m->bytes + bytes <= KEEL_FAR_BYTES;

	KUNIT_ASSERT_EQ(test, room, keel_far_ring_add(&m->ring, bytes, &packet.at));
	if (!room) {
		m->full++;
		return;
	}
	KUNIT_ASSERT_LE(test, packet.at + bytes, KEEL_FAR_RING);
	KUNIT_ASSERT_TRUE(test, model_set(m, &packet, true));
	m->wraps += m->n && !packet.at;
	m->bytes += bytes;
	*model_packet(m, m->n++) = packet;
}

static void model_drop(struct kunit *test, struct ring_model *m)
{
	struct ring_packet *packet = model_packet(m, 0);

	if (!m->n)
		return;
	keel_far_ring_drop(&m->ring, packet->bytes);
	KUNIT_ASSERT_TRUE(test, model_set(m, packet, false));
	m->bytes -= packet->bytes;
	m->first++;
	m->n--;
}

static void model_keep(struct kunit *test, struct ring_model *m)
{
	struct ring_packet *packet = model_packet(m, 0);

	if (!m->n)
		return;
	keel_far_ring_keep(&m->ring, packet->at, packet->bytes);
	while (m->n > 1)
		KUNIT_ASSERT_TRUE(test, model_set(m, model_packet(m, --m->n), false));
	m->bytes = packet->bytes;
}

/* Bytes of a packet: any, or one of those that most packets have. */
static u32 model_bytes(struct ring_model *m)
{
	switch (model_below(m, 4)) {
	case 0:
		return keel_far_bytes(KEEL_FRAME_DATA);
	case 1:
		return keel_far_bytes(model_below(m, 2 * KEEL_FAR_UNIT));
	default:
		return keel_far_bytes(model_below(m, KEEL_FRAME_DATA + 1));
	}
}

/* HOST-2: packets have room as long as their sum allows it, and never overlap. */
static void host_2_model(struct kunit *test)
{
	struct ring_model *m = kunit_kzalloc(test, sizeof(*m), GFP_KERNEL);
	u32 i, step;

	KUNIT_ASSERT_NOT_NULL(test, m);
	prandom_seed_state(&m->rnd, SEED);
	for (i = 0; i < STEPS; i++) {
		step = model_below(m, 1000);
		/* Nearly empty for a while, and then nearly full. */
		if (step < 2)
			model_keep(test, m);
		else if (step < (i / 1000 % 2 ? 450 : 550))
			model_add(test, m, model_bytes(m));
		else
			model_drop(test, m);
	}
	KUNIT_EXPECT_GT(test, m->full, STEPS / 1000);
	KUNIT_EXPECT_GT(test, m->wraps, STEPS / 1000);
}

/* HOST-2: whole packets, and the shortest ones, fill the memory exactly, wherever they begin. */
static void host_2_exact(struct kunit *test)
{
	struct ring_model *m = kunit_kzalloc(test, sizeof(*m), GFP_KERNEL);
	u32 i, round;

	KUNIT_ASSERT_NOT_NULL(test, m);
	model_add(test, m, KEEL_FAR_UNIT);
	for (round = 0; round < 2 * LIVE; round++) {
		for (i = 0; i < KEEL_FAR_BYTES / KEEL_FRAME_DATA - 1; i++)
			model_add(test, m, KEEL_FRAME_DATA);
		for (i = 1; i < KEEL_FRAME_DATA / KEEL_FAR_UNIT; i++)
			model_add(test, m, KEEL_FAR_UNIT);
		KUNIT_EXPECT_EQ(test, KEEL_FAR_BYTES, m->bytes);
		model_add(test, m, KEEL_FAR_UNIT);
		KUNIT_EXPECT_EQ(test, round + 1, m->full);
		/* The last one stays, so that the next round begins somewhere else. */
		while (m->n > 1)
			model_drop(test, m);
	}
}

/* HOST-2: a packet without memory of the ring leaves the whole of it. */
static void host_2_keep_none(struct kunit *test)
{
	struct keel_far_ring ring = {};
	u32 i, at;

	for (i = 0; i < KEEL_FAR_BYTES / KEEL_FRAME_DATA; i++)
		KUNIT_EXPECT_TRUE(test, keel_far_ring_add(&ring, KEEL_FRAME_DATA, &at));
	keel_far_ring_keep(&ring, 0, 0);
	for (i = 0; i < KEEL_FAR_BYTES / KEEL_FRAME_DATA; i++) {
		KUNIT_EXPECT_TRUE(test, keel_far_ring_add(&ring, KEEL_FRAME_DATA, &at));
		KUNIT_EXPECT_EQ(test, i * KEEL_FRAME_DATA, at);
	}
	KUNIT_EXPECT_FALSE(test, keel_far_ring_add(&ring, KEEL_FAR_UNIT, &at));
}

static struct kunit_case far_ring_cases[] = {
	KUNIT_CASE(host_2_model),
	KUNIT_CASE(host_2_exact),
	KUNIT_CASE(host_2_keep_none),
	{}
};

static struct kunit_suite far_ring_suite = {
	.name = "keel_far_ring",
	.test_cases = far_ring_cases,
};
kunit_test_suite(far_ring_suite);
