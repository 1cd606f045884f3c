/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Frames of which one member is wrong, from a stranger to a QP of host 0, and what they do.
 */
#ifndef WRONG_H
#define WRONG_H

#include "hosts.h"
#include "qp.h"
#include "stranger.h"

/* The QP that the stranger claims to have, and the first packet. */
#define PEER		0x77
#define PSN		0x123456
#define BYTES		8
/* Waits that end early in a test that succeeds, and one that does not. */
#define LONG_MS		5000
#define SHORT_MS	20

/* Effects of a frame. */
enum effect {
	ENDS,		/* the link ends */
	DROPPED,	/* nothing */
	NOT_READY,	/* it is answered so */
	RNR,		/* likewise */
	SUCCESS,	/* it is executed, with or without the wrong member */
	REFUSED,	/* it is answered with the status, and the QP is in ERR */
	STATUS,		/* it is answered with the status, and that is all */
};

/* @value: of @width bytes at @at, for a frame that is right otherwise. */
struct wrong {
	const char *what;
	size_t at, width;
	uint64_t value;
	enum effect effect;
	enum ibv_wc_status status;
};

#define MEMBER(_m)	\
	.at = offsetof(struct frame, _m), .width = sizeof(((struct frame *)0)->_m)
#define BYTE(_m, _n)	.at = offsetof(struct frame, _m) + (_n), .width = 1
#define FRAME_MAX	0xffffff

extern struct end wrong_victim;
extern struct stranger wrong_stranger;
/* Bytes of all frames. */
extern const uint8_t wrong_data[FRAME_DATA];

/* Make hosts, the stranger, and the QP; and destroy the latter two. */
void wrong_begin(struct end (*new)(int host));
void wrong_end(void);
/* Connect the QP of the victim again. It knows no packet then. */
void wrong_reset(void);
/* Have a connection over which nothing is under way. */
void wrong_link(void);
/* A request with BYTES bytes, which is right. */
struct frame wrong_request(uint8_t opcode, uint8_t transport);
/* Send a frame of which a member is wrong, also one that stranger_send() sets. */
void wrong_send(struct frame *frame, uint32_t len, const struct wrong *w);
/* Check that the link ends, or that there is no answer, and that it does not end. */
void wrong_ends(const struct wrong *w);
void wrong_no_answer(const struct wrong *w);
/* Check the effect of a frame on the link and on the QP, but not its data. */
void wrong_effect(const struct wrong *w, const struct frame *sent);

#endif /* WRONG_H */
