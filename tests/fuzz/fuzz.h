/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A fuzzer of the uapi. An input is a sequence of calls of 8 bytes, and any bytes
 * are a valid sequence. See Documentation/torture.rst.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <rdma/ib_user_ioctl_verbs.h>

#include "../lib/raw.h"

#define PAGE		4096
#define CALL_ARGS	7
#define MAX_CALLS	128

/* One call: a number of the table of operations, and its arguments. */
struct call {
	uint8_t op;
	uint8_t a[CALL_ARGS];
};

#define MAX_INPUT	(MAX_CALLS * sizeof(struct call))

/* A row of the table of operations. */
struct op {
	const char *name;
	void (*run)(const uint8_t *a);
	int weight;		/* how often the mutator chooses it */
};

/* Tables of a fuzzer, which has its own; the order is part of the format of binary inputs. */
struct op_table {
	const struct op *ops;
	const int *count;
};

extern const struct op_table op_tables[];
extern const int op_tables_count;
const struct op *op_of(uint8_t number);
int op_count(void);

extern const struct op object_ops[], handle_ops[], queue_ops[], qp_ops[],
	post_ops[], proc_ops[], kernel_ops[];
extern const int object_ops_count, handle_ops_count, queue_ops_count,
	qp_ops_count, post_ops_count, proc_ops_count, kernel_ops_count;

/*
 * The methods, X(name), whose calls and successes are counted. Each must succeed
 * at least once in a run.
 */
#define METHODS(X)							\
	X(GET_CONTEXT) X(QUERY_DEVICE) X(EX_QUERY_DEVICE) X(QUERY_PORT)	\
	X(QUERY_CONTEXT) X(QUERY_GID_TABLE) X(QUERY_GID_ENTRY)		\
	X(INFO_HANDLES) X(ALLOC_PD) X(DEALLOC_PD) X(PD_SHARE) X(PD_JOIN)	\
	X(PD_ALLOC_PARENT) X(PD_QUERY) X(PD_HOLDERS) X(TD_ALLOC)	\
	X(TD_FREE) X(TD_HOLDERS) X(DM_ALLOC) X(DM_FREE) X(DM_QUERY)	\
	X(DM_MAP) X(DM_HOLDERS) X(MMAP_DM) X(MMAP_STATE) X(OPEN_XRCD)	\
	X(CLOSE_XRCD) X(REG_MR) X(REG_ODP_MR) X(REG_DM_MR)		\
	X(REG_DMABUF_MR) X(REREG_MR) X(DEREG_MR) X(ADVISE_MR)		\
	X(QUERY_MR) X(ALLOC_MW) X(DEALLOC_MW) X(CREATE_AH)		\
	X(DESTROY_AH) X(CREATE_COMP_CHANNEL) X(CREATE_CQ)		\
	X(EX_CREATE_CQ) X(CQ_CREATE) X(RESIZE_CQ) X(DESTROY_CQ)		\
	X(CREATE_SRQ) X(CREATE_XSRQ) X(MODIFY_SRQ) X(QUERY_SRQ)		\
	X(DESTROY_SRQ) X(SRQ_DOORBELL) X(CREATE_QP) X(QP_CREATE)	\
	X(OPEN_QP) X(MODIFY_QP) X(QUERY_QP) X(DESTROY_QP)		\
	X(QP_DOORBELL) X(QP_DOORBELLS) X(ATTACH_MCAST) X(DETACH_MCAST)	\
	X(ASYNC_EVENT)							\
	X(DEVICE_GET_CONTEXT) X(DEVICE_QUERY_PORT) X(MR_REG)		\
	X(SRQ_CREATE) X(EX_CREATE_QP) X(EX_MODIFY_QP) X(SCM_RIGHTS)	\
	X(FORK) X(DEVICE_POLL)

/* Calls of kernel verbs on objects of userspace: a success is a finding. */
#define REFUSED_METHODS(X)						\
	X(POST_SEND) X(POST_RECV) X(POST_SRQ_RECV) X(POLL_CQ)		\
	X(REQ_NOTIFY_CQ)

enum method {
#define METHOD(_name)	M_##_name,
	METHODS(METHOD)
	REFUSED_METHODS(METHOD)
#undef METHOD
	M_COUNT,
};

#define M_FIRST_REFUSED	M_POST_SEND

extern const char *const method_names[M_COUNT];

#define WC_STATUSES	32
/* Work requests of an input whose completions are counted. */
#define POSTED		4096
#define COUNTERS	65536
#define MAX_TEXT	(2 << 20)	/* bytes of the module's code */

/* Memory that the fuzzer and the process that executes the inputs share. */
struct shared {
	atomic_uint turn;		/* number of inputs handed over */
	atomic_uint done;		/* number of inputs executed */
	uint32_t len;
	uint8_t input[MAX_INPUT];
	uint64_t text;			/* address of the module's code */
	bool show;			/* print the calls */
	atomic_ullong calls[M_COUNT];
	atomic_ullong good[M_COUNT];
	atomic_ullong posted;		/* signaled work requests */
	atomic_ullong sent[WC_STATUSES];
	atomic_ullong received[WC_STATUSES];
	atomic_uint wr_ids;
	atomic_uchar posted_as[POSTED];	/* by wr_id, see post.c */
	atomic_ullong late;		/* processes that hung */
	atomic_ullong died;		/* processes that did not end as planned */
	atomic_ullong spoiled;		/* the same, after a fault */
	atomic_bool dies;		/* this input ends its process */
	atomic_bool fault;		/* the kernel may write to any address */
	uint8_t seen[MAX_TEXT / 8];	/* bits: covered code */
	atomic_ullong truncated;	/* traces that were too long */
};

extern struct shared *sh;
extern uint8_t counters[COUNTERS];

/* exec.c: the process that executes inputs, and its threads. */
__attribute__((noreturn)) void exec_run(void);
/* Run these calls in another thread. */
void exec_thread(const struct call *calls, int n);
/* Is this the thread that has others, and may fork? */
bool exec_is_main(void);
/* A child of fork() has no other threads. */
void exec_without_threads(void);

/* kcov.c: each thread has its own. */
struct kcov {
	uint64_t *area;
};

bool kcov_open(struct kcov *k);
void kcov_start(struct kcov *k);
void kcov_collect(struct kcov *k);
/* The same for this thread, which ends. */
void kcov_collect_own(void);

/* proc.c */
void run_calls(const struct call *calls, int n);

/* text.c: inputs as text, and their mutation. */
size_t text_read(const char *path, uint8_t *data);
void text_print(FILE *f, const uint8_t *data, size_t size);
/* The same without the first line. */
void text_calls(FILE *f, const uint8_t *data, size_t size);
uint64_t random_next(uint64_t *seed);

/* cmd.c: issue commands, spoiled or not. */
struct cmd {
	enum method m;
	uint32_t command;
	const void *core;
	size_t core_len;
	void *resp;
	size_t resp_len;
	const void *drv;
	size_t drv_len;
	void *dresp;
	size_t dresp_len;
};

/* Initialisers: the numbers of a command, and what its parts point to. */
#define CMD(_name)		.m = M_##_name,				\
				.command = IB_USER_VERBS_CMD_##_name
#define CMD_EX(_name)		.m = M_EX_##_name,			\
				.command = IB_USER_VERBS_EX_CMD_##_name | \
					   IB_USER_VERBS_CMD_FLAG_EXTENDED
#define CORE_IN(_p)		.core = (_p), .core_len = sizeof(*(_p))
#define CORE_OUT(_p)		.resp = (_p), .resp_len = sizeof(*(_p))
#define DRIVER_IN(_p)		.drv = (_p), .drv_len = sizeof(*(_p))
#define DRIVER_OUT(_p)		.dresp = (_p), .dresp_len = sizeof(*(_p))

/* Run a command of write(); return 0 or a positive errno. */
int cmd_run(const struct cmd *cmd);

/* An attribute of a method. */
struct attr {
	enum { A_END, A_LEFT_OUT, A_OBJ, A_NEW, A_IN, A_OUT } kind;
	uint16_t id, len;
	uint32_t handle;
	void *p;
};

/* Initialisers. A new object writes its handle to *_p. */
#define OBJ(_id, _handle)	{ .kind = A_OBJ, .id = _id, .handle = _handle }
#define OBJ_IF(_obj, _id)						\
	{ .kind = (_obj) ? A_OBJ : A_LEFT_OUT, .id = _id,		\
	  .handle = (_obj) ? (_obj)->handle : 0 }
#define NEW(_id, _p)		{ .kind = A_NEW, .id = _id, .p = _p }
#define IN_IF(_cond, _id, _p)						\
	{ .kind = (_cond) ? A_IN : A_LEFT_OUT, .id = _id,		\
	  .p = (void *)(_p), .len = sizeof(*(_p)) }
#define IN(_id, _p)		IN_IF(true, _id, _p)
#define IN_LEN(_id, _p, _len)						\
	{ .kind = A_IN, .id = _id, .p = _p, .len = _len }
#define OUT_LEN(_id, _p, _len)						\
	{ .kind = (_len) != 0 ? A_OUT : A_LEFT_OUT, .id = _id, .p = _p, .len = _len }
#define OUT(_id, _p)		OUT_LEN(_id, _p, sizeof(*(_p)))
#define ATTRS(...)		((const struct attr[]){ __VA_ARGS__, {} })

/* Run a method; return 0 or a positive errno. */
int cmd_method(enum method m, uint16_t object, uint16_t method,
	       const struct attr *attrs);
void cmd_count(enum method m, bool good);
void cmd_spoil(const uint8_t *a);
/* Forget what the previous calls of this thread have set: an input starts. */
void cmd_reset(void);
/* Is a fault pending? */
bool cmd_has_fault(void);
/* Apply a pending fault to a WQE. */
void cmd_spoil_wqe(void *wqe, size_t len);
/* Send the next commands by write(). */
void cmd_via(bool by_write);
/* The open file, of this thread. */
int cmd_fd(void);
void cmd_set_fd(int fd);

#endif /* FUZZ_H */
