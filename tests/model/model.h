/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A reference model of keel, and a random walk that compares both.
 *
 * The model is written from the manual pages and the InfiniBand specification. It
 * knows which objects exist, which of them hold others, the state of each queue
 * pair, the work requests in each queue, the completions in each CQ, and all bytes
 * of registered memory. A step makes one call. The model predicts its result, and
 * every difference is a divergence.
 *
 * A step names objects by any number, which counts modulo the objects that exist.
 * So each subsequence of a sequence of steps is a valid sequence.
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/keeldv.h>
#include <infiniband/shpd.h>
#include <infiniband/verbs.h>

#define COUNT(array)	(int)(sizeof(array) / sizeof(*(array)))

/* --- steps.c, dice.c ----------------------------------------------------- */

#define STEP_ARGS	4

struct step {
	uint8_t op;
	uint32_t a[STEP_ARGS];
};

/* Numbers for the details of a step, all of them derived from the step. */
struct dice {
	uint64_t state;
};

struct dice dice_of(uint32_t a, uint32_t b);
uint32_t dice_roll(struct dice *d, uint32_t sides);
/* Return true in @n of @of cases. */
bool dice_chance(struct dice *d, uint32_t n, uint32_t of);

extern const struct op {
	const char *name;
	void (*run)(const uint32_t *a);
	int weight;
} ops[];

struct step step_random(uint64_t *seed);
void step_print(const struct step *s);
/* Return 1, 0 for a line without a step, -1 for a line that is not valid. */
int step_parse(const char *line, struct step *s);

/* --- objects.c ----------------------------------------------------------- */

/* The first ones are the kinds of debugfs. */
enum kind {
	K_DOMAIN, K_PD, K_PARENT, K_TD, K_XDOM, K_SHPD, K_DM, K_MR, K_DM_MR,
	K_MW, K_AH, K_CQ, K_SRQ, K_QP,
	K_TREE,
	K_XRCD = K_TREE,	/* handle of a K_XDOM */
	K_IMPORT,		/* imported PD, MR or DM */
	KINDS
};

#define MAX_LIVE	40
#define MAX_HOLDS	4
#define FILES		2	/* device files */
#define CONTEXTS	3	/* the last one imports the first */

struct obj;

/* Memory of the application or of a buffer, and its predicted contents. */
struct mem {
	uint8_t *want;
	uint64_t off;		/* in the arena; of the DM */
	struct obj *dm;		/* or NULL: the arena */
};

struct pd_part {
	struct ibv_pd *p;
	struct obj *domain;
	bool joined;
};

struct mr_part {
	struct ibv_mr *p;
	uint32_t key;
	unsigned int access;
	uint64_t iova, length;
	struct mem mem;
	bool odp;
	bool spoiled;		/* by ibv_rereg_mr() */
};

struct mw_part {
	struct ibv_mw *p;
	uint32_t key;
	unsigned int access;
	uint64_t iova, length;
	struct mem mem;
	struct obj *mr;		/* it is bound to, or NULL */
	bool ours;		/* the file of @mr has the window, and has bound it */
	struct obj *qp;		/* type 2: that bound it */
};

/* A completion that is expected. */
struct wc {
	uint64_t wr_id;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint32_t why, qpn, src_qp, imm, len, flags;
	bool recv, check_len;
	bool loose;		/* a kernel thread may have added it */
	long step;
};

#define CQ_MAX		1024

struct cq_part {
	struct ibv_cq *p;
	struct obj *parent;
	uint32_t size, added;
	int n;
	struct wc *wc;
};

#define RQ_MAX		64
#define SQ_MAX		32
#define SGES_MAX	4
#define INLINE_MAX	64

struct recv {
	uint64_t wr_id;
	int num_sge;
	struct ibv_sge sge[SGES_MAX];
};

struct rq {
	uint32_t size, max_sge;
	bool wanted;		/* a requester has waited for a receive WQE */
	int n;
	struct recv wr[RQ_MAX];
};

struct send {
	uint64_t wr_id;
	enum ibv_wr_opcode opcode;
	bool signaled, is_inline, type_1;
	int num_sge;
	struct ibv_sge sge[SGES_MAX];
	uint8_t data[INLINE_MAX];
	uint32_t len;		/* of @data */
	uint32_t imm, rkey, srqn;
	uint64_t addr, compare, swap;
	struct obj *ah;
	uint32_t qpn, qkey;
	uint32_t mw_key, new_key, lkey, access;
	uint64_t bind_addr, bind_len;
};

struct srq_part {
	struct ibv_srq *p;
	struct obj *domain, *xdom, *cq;
	uint32_t num;
	struct rq rq;
};

enum wait { WAIT_NONE, WAIT_PEER, WAIT_RECV };

struct qp_part {
	struct ibv_qp *p;
	uint32_t qpn;
	enum ibv_qp_type type;
	enum ibv_qp_state state, seen;	/* @seen: by libibverbs */
	struct obj *domain, *send_cq, *recv_cq, *srq, *xdom;
	bool sig_all;
	uint32_t sq_size, max_sge, max_inline;
	unsigned int access;
	uint32_t dest, sq_psn, rq_psn, qkey;
	uint8_t rd, dest_rd, rnr_retry, timeout;
	uint64_t gen, remote;
	struct rq rq;
	bool have;
	struct recv held;	/* a receive WQE that was taken, and not used */
	int n;
	struct send sq[SQ_MAX];
	enum wait wait;
	bool kicked;
};

struct obj {
	enum kind kind;
	uint64_t born;
	bool dead;		/* the application cannot name it any more */
	int ctx;
	uint32_t handle, id;
	struct obj *holds[MAX_HOLDS];
	struct obj *via;	/* K_XRCD that it was created with */
	union {
		struct pd_part pd;	/* K_PD, K_PARENT */
		struct { struct ibv_td *p; } td;
		struct { struct ibv_xrcd *p; struct obj *dom; } xrcd;
		struct { int inode; } xdom;
		struct { struct ibv_shpd h; uint64_t key; } shpd;
		struct {
			struct ibv_dm *p;
			uint64_t length;
			uint8_t *want;
		} dm;
		struct mr_part mr;
		struct mw_part mw;
		struct { struct ibv_ah *p; struct obj *domain; } ah;
		struct cq_part cq;
		struct srq_part srq;
		struct qp_part qp;
		struct {
			enum kind of;
			void *p;
			bool mapped;
			struct obj *target;
		} import;
	};
};

/* How long kernel threads may take for what a step has started. */
extern int patience_ms;

extern struct world {
	struct ibv_context *ctx[CONTEXTS];
	union ibv_gid gid;
	struct obj *live[KINDS][MAX_LIVE];
	int n[KINDS];
	uint64_t births, gens, wr_ids;
	long step;
	bool loose;		/* kernel threads work for this step */
	bool talk;
} world;

/* Results of a run for its parent, in shared memory. */
extern struct result {
	long steps, good, refused, idle;
	long sends, sends_good, recvs, recvs_good, trees, adopted;
	long by_op[64], good_by_op[64];
	long by_status[32];
	bool diverged;
	long at;
	char text[800];
} *result;

int file_of(int ctx);
struct obj *obj_new(enum kind kind, int ctx);
/* An object that the kernel names in its file. */
struct obj *obj_new_handle(enum kind kind, int ctx, uint32_t handle);
void obj_end(struct obj *o);
bool obj_has_room(enum kind kind);
void obj_hold(struct obj *o, struct obj *target);
int obj_holders(const struct obj *o);
/* Return an object, or NULL if there is none of this kind. */
struct obj *obj_pick(enum kind kind, uint32_t n);
/* Only those of a context. */
struct obj *obj_pick_in(enum kind kind, int ctx, uint32_t n);
/* Return the object with this handle, or NULL. */
struct obj *obj_by_handle(int file, uint32_t handle);
uint32_t handle_next(int file);
/* Return the handle of an object that was destroyed. */
uint32_t handle_stale(uint32_t n);

/* A PD as a context names it: a PD, a parent domain, or an import of either. */
struct pd_ref {
	struct obj *pd;		/* NULL: the handle is stale */
	struct obj *import;	/* that names it, or NULL */
	struct ibv_pd *p;
	int ctx, err;
};

bool pd_pick(uint32_t n, struct pd_ref *ref);
bool pd_pick_in(int ctx, uint32_t n, struct pd_ref *ref);

__attribute__((noreturn, format(printf, 1, 2)))
void diverge(const char *fmt, ...);
/* Describe what the step does; printed by --replay. */
__attribute__((format(printf, 1, 2))) void say(const char *fmt, ...);
const char *errname(int err);
/* Compare the result of a call. Return true if it succeeded. */
bool expect(const char *call, int got, int want);
/* For calls that return a pointer. */
bool expect_ptr(const char *call, const void *got, int want);
/* The step does nothing here. */
void idle(void);

/* --- compare.c ----------------------------------------------------------- */

void tree_compare(void);
/* Wait until the kernel has added all completions that are expected. */
void settle(void);

/* --- bytes.c ------------------------------------------------------------- */

#define ARENA		65536

extern uint8_t *arena;

struct span {
	struct mem mem;
	uint32_t len;
};

struct spans {
	int n;
	uint64_t len;
	bool odp;
	struct span at[SGES_MAX + 1];
};

/* The memory and the rights of a key. */
struct key {
	struct obj *owner, *domain, *qp;
	unsigned int access;
	uint64_t iova, length;
	struct mem mem;
	bool odp;
};

void bytes_init(void);
bool key_find(uint32_t num, struct key *key);
/* Return 0 or enum keeldv_why. */
int key_check(uint32_t num, const struct obj *domain, unsigned int access,
	      uint64_t addr, uint64_t len, struct key *key);
/* Find at most @len bytes of SGEs; return 0 or enum keeldv_why. */
int spans_of_sges(struct spans *s, const struct ibv_sge *sge, int n,
		  uint64_t len, const struct obj *domain, unsigned int access);
void spans_of_key(struct spans *s, const struct key *key, uint64_t addr,
		  uint32_t len);
void spans_of_data(struct spans *s, uint8_t *data, uint32_t len);
void bytes_copy(const struct spans *dst, uint64_t dst_off,
		const struct spans *src);
/* The kernel writes bytes there that the model does not know. */
void bytes_unknown(const struct spans *dst, uint64_t off, uint32_t len);
bool bytes_are_unknown(const struct spans *src);
uint8_t *bytes_at(const struct mem *mem);
/* The address modulo 8, which decides about atomics. */
unsigned int bytes_align(const struct mem *mem);
/* Compare all memory. Kernel threads may still write. */
void bytes_compare(void);
void bytes_write(uint64_t off, uint32_t len, struct dice *d);

/* --- wire.c: queue pairs ------------------------------------------------- */

void wire_init(void);
/* The doorbell rings: run the send queue. */
void wire_run(struct obj *qp);
/* Receive WQEs were posted to a queue. */
void wire_recv_posted(struct obj *qp);
void wire_srq_posted(struct obj *srq);
void wire_fail(struct obj *qp, enum ibv_qp_state state);
void wire_wake_peer(struct obj *qp);
void wire_kick(struct obj *qp);
/* Run the queues that something has woken. */
void wire_drain(void);
void wire_reset(struct obj *qp);
/* Is a second requester about to wait for this SRQ? Their order is not known. */
bool wire_is_contended(const struct obj *qp, uint32_t srqn);
struct obj *wire_peer(const struct obj *qp);
/*
 * Does a send work request that waits name the key? Each doorbell may make keel
 * look at it again, so the result is not defined if the key changes.
 */
bool wire_uses(uint32_t key);
int wire_waiters(const struct obj *srq);
struct obj *qp_by_num(uint32_t qpn);
struct obj *srq_by_num(uint32_t num);

/* window.c: return 0 or enum keeldv_why */
int window_bind(struct obj *qp, const struct send *wr);
int window_invalidate(struct obj *qp, const struct obj *domain, uint32_t rkey);
void window_unbind(struct obj *mw);

/* --- cqes.c -------------------------------------------------------------- */

void cq_add(struct obj *cq, const struct wc *wc);
void cq_forget(struct obj *cq, uint32_t qpn);
/* Poll at most @n completions and compare them. */
void cq_poll(struct obj *cq, int n);
/* How many completions a CQ holds, and may get from posted work requests. */
int cq_need(const struct obj *cq);
/* Make room for all completions that may come. Return false if there is none. */
bool cq_room(struct obj *cq, int more);
bool qp_room(struct obj *qp, int sends, int recvs);

/* --- states.c ------------------------------------------------------------ */

bool state_table_allows(enum ibv_qp_type type, enum ibv_qp_state cur,
			enum ibv_qp_state next, int mask);
int state_required(enum ibv_qp_type type, enum ibv_qp_state cur,
		   enum ibv_qp_state next);

/* --- operations ---------------------------------------------------------- */

void op_alloc_pd(const uint32_t *a);
void op_dealloc_pd(const uint32_t *a);
void op_alloc_parent(const uint32_t *a);
void op_alloc_td(const uint32_t *a);
void op_dealloc_td(const uint32_t *a);
void op_open_xrcd(const uint32_t *a);
void op_close_xrcd(const uint32_t *a);
void op_alloc_shpd(const uint32_t *a);
void op_share_pd(const uint32_t *a);
void op_import(const uint32_t *a);
void op_unimport(const uint32_t *a);
void op_stale(const uint32_t *a);
void op_alloc_dm(const uint32_t *a);
void op_free_dm(const uint32_t *a);
void op_copy_dm(const uint32_t *a);
void op_reg_mr(const uint32_t *a);
void op_reg_dm_mr(const uint32_t *a);
void op_rereg_mr(const uint32_t *a);
void op_dereg_mr(const uint32_t *a);
void op_alloc_mw(const uint32_t *a);
void op_dealloc_mw(const uint32_t *a);
void op_create_ah(const uint32_t *a);
void op_destroy_ah(const uint32_t *a);
void op_create_cq(const uint32_t *a);
void op_resize_cq(const uint32_t *a);
void op_destroy_cq(const uint32_t *a);
void op_create_srq(const uint32_t *a);
void op_modify_srq(const uint32_t *a);
void op_destroy_srq(const uint32_t *a);
void op_create_qp(const uint32_t *a);
void op_destroy_qp(const uint32_t *a);
void op_modify_qp(const uint32_t *a);
void op_connect(const uint32_t *a);
void op_post_send(const uint32_t *a);
void op_bind_mw(const uint32_t *a);
void op_post_recv(const uint32_t *a);
void op_post_srq_recv(const uint32_t *a);
void op_poll(const uint32_t *a);
void op_scribble(const uint32_t *a);

/* --- shrink.c ------------------------------------------------------------ */

/*
 * Run steps in a child process. Return true if they diverged; *result has the
 * details.
 */
bool run_steps(const struct step *steps, long n, bool talk);
/* Has a run left objects in the kernel? Then no other run is possible. */
bool objects_left(void);
/* Remove steps as long as the rest diverges in the same way. */
long shrink(struct step *steps, long n);

#endif /* MODEL_H */
