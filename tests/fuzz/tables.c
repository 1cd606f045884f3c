// SPDX-License-Identifier: GPL-2.0
/*
 * The operations of the fuzzer of the uapi.
 */
#include "fuzz.h"

const struct op_table op_tables[] = {
	{ object_ops, &object_ops_count }, { handle_ops, &handle_ops_count },
	{ queue_ops, &queue_ops_count }, { qp_ops, &qp_ops_count },
	{ post_ops, &post_ops_count }, { proc_ops, &proc_ops_count },
	{ kernel_ops, &kernel_ops_count },
};

const int op_tables_count = sizeof(op_tables) / sizeof(*op_tables);
