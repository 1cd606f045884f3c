// SPDX-License-Identifier: GPL-2.0
/*
 * Steps: their operations, random ones, and their text.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* Weights: of how many steps out of all. */
const struct op ops[] = {
	{ "alloc_pd", op_alloc_pd, 12 },
	{ "dealloc_pd", op_dealloc_pd, 10 },
	{ "alloc_parent", op_alloc_parent, 8 },
	{ "alloc_td", op_alloc_td, 6 },
	{ "dealloc_td", op_dealloc_td, 6 },
	{ "open_xrcd", op_open_xrcd, 12 },
	{ "close_xrcd", op_close_xrcd, 7 },
	{ "alloc_shpd", op_alloc_shpd, 5 },
	{ "share_pd", op_share_pd, 7 },
	{ "import", op_import, 7 },
	{ "unimport", op_unimport, 6 },
	{ "stale", op_stale, 10 },
	{ "alloc_dm", op_alloc_dm, 10 },
	{ "free_dm", op_free_dm, 7 },
	{ "copy_dm", op_copy_dm, 10 },
	{ "reg_mr", op_reg_mr, 30 },
	{ "reg_dm_mr", op_reg_dm_mr, 12 },
	{ "rereg_mr", op_rereg_mr, 8 },
	{ "dereg_mr", op_dereg_mr, 20 },
	{ "alloc_mw", op_alloc_mw, 12 },
	{ "dealloc_mw", op_dealloc_mw, 7 },
	{ "create_ah", op_create_ah, 8 },
	{ "destroy_ah", op_destroy_ah, 6 },
	{ "create_cq", op_create_cq, 10 },
	{ "resize_cq", op_resize_cq, 8 },
	{ "destroy_cq", op_destroy_cq, 7 },
	{ "create_srq", op_create_srq, 10 },
	{ "modify_srq", op_modify_srq, 8 },
	{ "destroy_srq", op_destroy_srq, 6 },
	{ "create_qp", op_create_qp, 26 },
	{ "destroy_qp", op_destroy_qp, 12 },
	{ "modify_qp", op_modify_qp, 30 },
	{ "connect", op_connect, 60 },
	{ "post_send", op_post_send, 330 },
	{ "bind_mw", op_bind_mw, 12 },
	{ "post_recv", op_post_recv, 150 },
	{ "post_srq_recv", op_post_srq_recv, 60 },
	{ "poll", op_poll, 90 },
	{ "scribble", op_scribble, 20 },
	{ }
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9;
	x ^= x >> 27;
	x *= 0x94d049bb133111eb;
	return x ^ x >> 31;
}

struct dice dice_of(uint32_t a, uint32_t b)
{
	return (struct dice){ mix((uint64_t)a << 32 | b) };
}

uint32_t dice_roll(struct dice *d, uint32_t sides)
{
	d->state += 0x9e3779b97f4a7c15;
	return (mix(d->state) >> 32) % sides;
}

bool dice_chance(struct dice *d, uint32_t n, uint32_t of)
{
	return dice_roll(d, of) < n;
}

static uint32_t random_32(uint64_t *seed)
{
	*seed += 0x9e3779b97f4a7c15;
	return mix(*seed) >> 32;
}

struct step step_random(uint64_t *seed)
{
	struct step s;
	int i, at, all = 0;

	for (i = 0; ops[i].name; i++)
		all += ops[i].weight;
	at = random_32(seed) % all;
	for (i = 0; at >= ops[i].weight; i++)
		at -= ops[i].weight;
	s.op = i;
	/* Short numbers are easier to read. */
	for (i = 0; i < STEP_ARGS; i++)
		s.a[i] = random_32(seed) & 0xffff;
	return s;
}

void step_print(const struct step *s)
{
	int i;

	printf("%s", ops[s->op].name);
	for (i = 0; i < STEP_ARGS; i++)
		printf(" %u", s->a[i]);
}

int step_parse(const char *line, struct step *s)
{
	char name[32];
	int i;

	line += strspn(line, " \t");
	if (*line == '#' || *line == '\n' || !*line)
		return 0;
	if (sscanf(line, "%31s %u %u %u %u", name, &s->a[0], &s->a[1], &s->a[2],
		   &s->a[3]) != 1 + STEP_ARGS)
		return -1;
	for (i = 0; ops[i].name; i++)
		if (!strcmp(ops[i].name, name)) {
			s->op = i;
			return 1;
		}
	return -1;
}
