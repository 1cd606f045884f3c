/* SPDX-License-Identifier: GPL-2.0 */
/*
 * keel's own methods as data, and objects to call them on, for the tests of
 * hostile input.
 */
#ifndef METHODS_H
#define METHODS_H

#include "raw.h"
#include "t.h"

enum arg_kind {
	ARG_OBJ,	/* handle of an object */
	ARG_NEW,	/* handle of the new object */
	ARG_IN,		/* number of at most 8 bytes */
	ARG_OUT,	/* structure; may be longer than the kernel's */
	ARG_OUT_FIXED,	/* number of exactly this length */
	ARG_OUT_LIST,	/* array; a multiple of this length */
};

struct arg {
	uint16_t id;
	enum arg_kind kind;
	uint16_t len;
	bool optional;
	uint16_t object;	/* ARG_OBJ: type of the object */
};

#define METHOD_ARGS	4

struct method {
	const char *name;
	uint16_t object;
	uint16_t method;
	bool once;		/* destroys the object */
	int args_count;
	struct arg args[METHOD_ARGS];
};

extern const struct method methods[];
extern const int methods_count;

/* One object of each type with a holder, and one of each without. */
struct objects {
	struct ibv_context *ctx;
	struct ibv_pd *pd, *parent, *free_pd;
	struct ibv_td *td, *free_td;
	struct ibv_dm *dm, *free_dm;
	struct ibv_mr *mr, *dm_mr;
	uint32_t td_handle, free_td_handle;
};

/* Does the kernel write to the command or to a buffer? */
bool method_has_output(const struct method *m);

void objects_make(struct objects *o);
uint32_t objects_handle(const struct objects *o, uint16_t object, bool fresh);

/* Buffers for outputs. */
extern unsigned char method_out[METHOD_ARGS][512];

/* Build a command that succeeds unless the test spoils it. */
void method_build(const struct method *m, const struct objects *o,
		  struct raw_cmd *cmd);
/* Check the result of a command; @spoiled names the fault for the message. */
void method_check(const struct method *m, const struct objects *o,
		  struct raw_cmd *cmd, const char *spoiled, int want);

#endif /* METHODS_H */
