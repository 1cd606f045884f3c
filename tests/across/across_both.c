// SPDX-License-Identifier: GPL-2.0
/*
 * Many messages under way between two hosts, in both directions at once. Their bytes tell whether
 * a buffer of the link was written to before its message had left.
 */
#include <stdbool.h>
#include <stdlib.h>

#include "hosts.h"
#include "qp.h"
#include "t.h"

/* The wr_id of the first receive. */
#define RECVS	1000000

/**
 * struct load - the messages of a test
 * @n: their number, in each direction
 * @max: they are shorter than this; at most 256 KiB
 * @depth: number of those that are under way, in each direction; the others wait for them
 */
struct load {
	uint32_t n, max, depth;
};

/**
 * struct way - an end, and its messages
 * @e: the end; in the lower half of its memory are the messages to send
 * @sent: number of sends that were posted
 * @done: number of those that are completed
 * @posted: number of receives that were posted
 * @got: number of those that are completed
 */
struct way {
	struct end e;
	uint32_t sent, done, posted, got;
};

static struct way ways[HOSTS];
static const struct load *load;

void t_end(void)
{
	hosts_down();
}

static uint32_t slot_bytes(void)
{
	return END_HALF / load->depth;
}

static struct mem slot(const struct way *w, size_t half, uint32_t i, uint32_t len)
{
	return (struct mem){
		w->e.mem + half + i % load->depth * slot_bytes(), len, w->e.mr->lkey,
	};
}

/* Each word tells its message, and its place. */
static void fill(struct mem m, uint32_t i)
{
	uint32_t *words = (uint32_t *)(uintptr_t)m.addr, n;

	for (n = 0; n < m.len / 4; n++)
		words[n] = i << 16 | n;
}

static void check(struct mem m, uint32_t i)
{
	const uint32_t *words = m.addr;
	uint32_t n;

	for (n = 0; n < m.len / 4; n++)
		CHECK_EQ(words[n], i << 16 | n);
}

static uint32_t len_of(uint32_t i)
{
	return 64 + i * 68404 % (load->max - 64) / 4 * 4;
}

static void post_all(struct way *w)
{
	struct mem m;

	for (; w->posted < load->n && w->posted - w->got < load->depth; w->posted++)
		post_recv(w->e.qp, RECVS + w->posted,
			  slot(w, END_HALF, w->posted, slot_bytes()));
	for (; w->sent < load->n && w->sent - w->done < load->depth; w->sent++) {
		m = slot(w, 0, w->sent, len_of(w->sent));
		fill(m, w->sent);
		post_send(w->e.qp, w->sent, m);
	}
}

static void poll_one(struct way *w)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(w->e.cq, 1, &wc) != 1)
		return;
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	if (wc.wr_id < RECVS) {
		CHECK_EQ(wc.wr_id, w->done);
		w->done++;
		return;
	}
	CHECK_EQ(wc.wr_id, RECVS + w->got);
	CHECK_EQ(wc.byte_len, len_of(w->got));
	check(slot(w, END_HALF, w->got, wc.byte_len), w->got);
	w->got++;
}

static bool is_over(void)
{
	int i;

	for (i = 0; i < HOSTS; i++)
		if (ways[i].done < load->n || ways[i].got < load->n)
			return false;
	return true;
}

static void both(const struct load *l)
{
	int i;

	load = l;
	hosts_up();
	for (i = 0; i < HOSTS; i++)
		ways[i] = (struct way){ .e = end_new(i) };
	ends_join(&ways[0].e, &ways[1].e, &joint_usual);
	while (!is_over()) {
		for (i = 0; i < HOSTS; i++) {
			post_all(&ways[i]);
			poll_one(&ways[i]);
		}
	}
	for (i = 0; i < HOSTS; i++)
		end_free(&ways[i].e);
}

TEST(small, "HOST-1", "many small sends in both directions at once arrive in order")
{
	both(&(struct load){ 2000, 512, 16 });
}

TEST(frames, "HOST-1", "many sends of up to a page in both directions at once arrive in order")
{
	both(&(struct load){ 2000, 4097, 16 });
}

TEST(packets, "HOST-1", "many sends of two packets in both directions at once arrive in order")
{
	both(&(struct load){ 1000, 8193, 16 });
}

TEST(longs, "HOST-1", "many long sends in both directions at once arrive in order")
{
	both(&(struct load){ 300, 250000, 2 });
}

/*
 * Messages of both hosts arrive so many milliseconds later. A failed test may leave this: the
 * next one is slower then.
 */
static void slow(const struct load *l)
{
	int i;

	hosts_up();
	for (i = 0; i < HOSTS; i++)
		free(host_shell(i, "tc qdisc replace dev keel_%c root netem delay 2ms limit 10000",
				'a' + i));
	both(l);
	for (i = 0; i < HOSTS; i++)
		free(host_shell(i, "tc qdisc delete dev keel_%c root", 'a' + i));
}

TEST(slow_frames, "HOST-1", "many sends of up to a page arrive in order by a slow network")
{
	slow(&(struct load){ 500, 4097, 16 });
}

TEST(slow_packets, "HOST-1", "many sends of two packets arrive in order by a slow network")
{
	slow(&(struct load){ 500, 8193, 16 });
}

TEST(slow_longs, "HOST-1", "many long sends arrive in order by a slow network")
{
	slow(&(struct load){ 100, 250000, 2 });
}
