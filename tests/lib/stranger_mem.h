/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory of a stranger: that of a MAD, of the frames that it sends, and of those that it
 * receives. For stranger*.c alone.
 */
#ifndef STRANGER_MEM_H
#define STRANGER_MEM_H

#include "stranger.h"

#define STRANGER_SENDS	64
#define STRANGER_RECVS	160
/* The first slot is that of the MAD. The data of a chunk is behind the last one. */
#define STRANGER_SLOTS	((1 + STRANGER_SENDS + STRANGER_RECVS) * FRAME_ROOM)
#define STRANGER_BYTES	(STRANGER_SLOTS + FRAME_CHUNK)

void stranger_post_recvs(struct stranger *s);

#endif /* STRANGER_MEM_H */
