// SPDX-License-Identifier: GPL-2.0
/*
 * The operations of the fuzzer of links.
 */
#include "world.h"

const struct op_table op_tables[] = {
	{ frame_ops, &frame_ops_count }, { batch_ops, &batch_ops_count },
	{ cast_ops, &cast_ops_count }, { victim_ops, &victim_ops_count },
	{ group_ops, &group_ops_count },
};

const int op_tables_count = sizeof(op_tables) / sizeof(*op_tables);
