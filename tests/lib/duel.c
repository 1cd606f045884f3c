// SPDX-License-Identifier: GPL-2.0
/*
 * Two calls that race. See duel.h.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "duel.h"
#include "t.h"

#define GOAL		5
/* Rounds for each time that a side is to come first. */
#define PATIENCE	2000
/*
 * A delay changes by a random power of two, at most 2^19 turns of a loop. While the
 * same side comes first, this doubles each time.
 */
#define SHIFTS		20
#define MAX_SHIFT	31
/*
 * The longest delay, some seconds, and how often a side may come first in a row with
 * it. A debug kernel needs a half second to delete a link.
 */
#define MAX_DELAY	2000000000L
#define MAX_IN_A_ROW	60

/**
 * struct field - where both sides meet
 * @duel: the race
 * @here: number of arrivals
 * @last: the side that came first in the last round
 * @in_a_row: for how many rounds before that
 * @seed: for random numbers
 * @over: no further round
 */
struct field {
	struct duel *duel;
	atomic_uint here;
	enum duel_first last;
	int in_a_row;
	unsigned int seed;
	bool over;
};

/* Wait for the other side. A thread that slept would start much later. */
static void meet(struct field *f)
{
	unsigned int all = (atomic_fetch_add(&f->here, 1) | 1) + 1;
	unsigned int turns = 0;

	while ((int)(atomic_load(&f->here) - all) < 0)
		if (!(++turns % 1024))
			sched_yield();
}

static void wait_turns(long n)
{
	volatile long i;

	for (i = 0; i < n; i++)
		;
}

static void *other_side(void *arg)
{
	struct field *f = arg;

	for (;;) {
		meet(f);
		if (f->over)
			return NULL;
		wait_turns(-f->duel->delay);
		f->duel->b();
		meet(f);
	}
}

static enum duel_first one_round(struct field *f)
{
	if (f->duel->prepare)
		f->duel->prepare();
	meet(f);
	wait_turns(f->duel->delay);
	f->duel->a();
	meet(f);
	return f->duel->judge();
}

static int goal(const struct duel *d)
{
	const char *text = getenv("DUEL_GOAL");
	int n = text ? atoi(text) : GOAL;

	if (n < 1)
		FAIL("DUEL_GOAL: got %s, want a number", text);
	return d->slow ? (n + 4) / 5 : n;
}

/* Change the delay so that the other side may come first in the next round. */
static void change_delay(struct field *f, enum duel_first side)
{
	int shift = rand_r(&f->seed) % SHIFTS;
	long step;

	f->in_a_row = side == f->last ? f->in_a_row + 1 : 0;
	f->last = side;
	shift += f->in_a_row;
	step = 1L << (shift < MAX_SHIFT ? shift : MAX_SHIFT);
	f->duel->delay += side == DUEL_A ? step : -step;
	if (f->duel->delay > MAX_DELAY)
		f->duel->delay = MAX_DELAY;
	if (f->duel->delay < -MAX_DELAY)
		f->duel->delay = -MAX_DELAY;
	if (f->in_a_row == MAX_IN_A_ROW)
		FAIL("%s came first %d times in a row, although it waited %ld turns",
		     side == DUEL_A ? "A" : "B", MAX_IN_A_ROW,
		     labs(f->duel->delay));
}

void duel_run(struct duel *d)
{
	struct field f = { .duel = d, .seed = getpid() };
	int first[DUEL_SIDES] = {}, n = goal(d);
	enum duel_first side;
	pthread_t thread;
	int rounds;

	CHECK_OK(pthread_create(&thread, NULL, other_side, &f));
	for (rounds = 0; first[DUEL_A] < n || first[DUEL_B] < n; rounds++) {
		if (rounds == n * PATIENCE)
			FAIL("A came first %d times, B %d times, want %d each",
			     first[DUEL_A], first[DUEL_B], n);
		side = one_round(&f);
		first[side]++;
		change_delay(&f, side);
	}
	f.over = true;
	meet(&f);
	CHECK_OK(pthread_join(thread, NULL));
	t_note("A came first %d times, B %d times", first[DUEL_A], first[DUEL_B]);
}

void duel_short(void (*prepare)(void), void (*a)(void), void (*b)(void),
		enum duel_first (*judge)(void))
{
	struct duel d = {
		.prepare = prepare, .a = a, .b = b, .judge = judge,
	};

	duel_run(&d);
}
