/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two calls that race until each of them has come first several times.
 *
 * Both are called at the same time, but one of them waits a moment before. If it
 * came first anyway, it waits longer in the next round, else shorter. So most
 * rounds are near the point where the order changes.
 */
#ifndef DUEL_H
#define DUEL_H

#include <stdbool.h>

enum duel_first { DUEL_A, DUEL_B, DUEL_SIDES };

/**
 * struct duel - a race
 * @prepare: create what a round needs, or NULL
 * @a: one side, called in the thread of the test
 * @b: the other side, called in another thread
 * @judge: check both results, clean up, and return which side came first
 * @slow: a round takes seconds: a fifth of the rounds is enough
 * @delay: turns of a loop for which side A waits first; if negative, side B waits.
 *	duel_run() leaves that of the last round here.
 */
struct duel {
	void (*prepare)(void);
	void (*a)(void);
	void (*b)(void);
	enum duel_first (*judge)(void);
	bool slow;
	long delay;
};

/*
 * Run rounds until each side came first DUEL_GOAL times (from the environment; 5 by
 * default), and print how often. Fail if one side always comes first.
 */
void duel_run(struct duel *d);
/* The same for short rounds. */
void duel_short(void (*prepare)(void), void (*a)(void), void (*b)(void),
		enum duel_first (*judge)(void));

#endif /* DUEL_H */
