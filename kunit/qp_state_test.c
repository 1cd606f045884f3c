// SPDX-License-Identifier: GPL-2.0
/*
 * States of queue pairs: legal transitions, their required and optional
 * attributes, and the ranges of values. The table is an independent copy of the
 * table of the IBTA specification (Modify Queue Pair).
 */
#include <kunit/test.h>

#include "keel_qp.h"

#define UD	BIT(IB_QPT_UD)
#define UC	BIT(IB_QPT_UC)
#define RC	BIT(IB_QPT_RC)
#define INI	BIT(IB_QPT_XRC_INI)
#define TGT	BIT(IB_QPT_XRC_TGT)
#define GSI	BIT(IB_QPT_GSI)
#define CONN	(UC | RC | INI | TGT)
#define ALL	(CONN | UD | GSI)

#define STATES	(IB_QPS_ERR + 1)
#define FROM_RESET	BIT(IB_QPS_RESET)
#define FROM_INIT	BIT(IB_QPS_INIT)
#define FROM_RTR	BIT(IB_QPS_RTR)
#define FROM_RTS	BIT(IB_QPS_RTS)
#define FROM_SQD	BIT(IB_QPS_SQD)
#define FROM_SQE	BIT(IB_QPS_SQE)
/* All states except RESET. */
#define LIVE	(FROM_INIT | FROM_RTR | FROM_RTS | FROM_SQD | FROM_SQE |	\
		 BIT(IB_QPS_ERR))
#define ATTRS	21	/* of enum ib_qp_attr_mask, IB_QP_STATE among them */

#define PATH	(IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN)
#define RETRY	(IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY)
#define MIGRATE	(IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE)
#define CUR	IB_QP_CUR_STATE
#define ACCESS	IB_QP_ACCESS_FLAGS
#define PKEY	IB_QP_PKEY_INDEX
#define PORT	IB_QP_PORT
#define QKEY	IB_QP_QKEY
#define RNR	IB_QP_MIN_RNR_TIMER
#define RD_OUT	IB_QP_MAX_QP_RD_ATOMIC
#define RD_IN	IB_QP_MAX_DEST_RD_ATOMIC

static const enum ib_qp_type types[] = {
	IB_QPT_UD, IB_QPT_UC, IB_QPT_RC, IB_QPT_XRC_INI, IB_QPT_XRC_TGT,
	IB_QPT_GSI,
};

static const char * const type_names[] = {
	[IB_QPT_UD] = "UD", [IB_QPT_UC] = "UC", [IB_QPT_RC] = "RC",
	[IB_QPT_XRC_INI] = "XRC_SEND", [IB_QPT_XRC_TGT] = "XRC_RECV",
	[IB_QPT_GSI] = "GSI",
};

static const char * const state_names[STATES] = {
	[IB_QPS_RESET] = "RESET", [IB_QPS_INIT] = "INIT", [IB_QPS_RTR] = "RTR",
	[IB_QPS_RTS] = "RTS", [IB_QPS_SQD] = "SQD", [IB_QPS_SQE] = "SQE",
	[IB_QPS_ERR] = "ERR",
};

/**
 * struct rule - a legal transition
 * @types: QP types
 * @from: current states, FROM_ bits
 * @next: next state
 * @must: required attributes
 * @may: optional attributes
 */
struct rule {
	u32 types;
	u32 from;
	enum ib_qp_state next;
	int must, may;
};

static const struct rule rules[] = {
	/* From any state, but RESET to ERR is not legal in Linux. */
	{ ALL, LIVE | FROM_RESET, IB_QPS_RESET, 0, 0 },
	{ ALL, LIVE, IB_QPS_ERR, 0, 0 },

	{ UD, FROM_RESET, IB_QPS_INIT, PKEY | PORT | QKEY, 0 },
	{ CONN, FROM_RESET, IB_QPS_INIT, PKEY | PORT | ACCESS, 0 },
	{ GSI, FROM_RESET, IB_QPS_INIT, PKEY | QKEY, 0 },

	{ UD, FROM_INIT, IB_QPS_INIT, 0, PKEY | PORT | QKEY },
	{ CONN, FROM_INIT, IB_QPS_INIT, 0, PKEY | PORT | ACCESS },
	{ GSI, FROM_INIT, IB_QPS_INIT, 0, PKEY | QKEY },

	{ UD | GSI, FROM_INIT, IB_QPS_RTR, 0, PKEY | QKEY },
	{ UC | INI, FROM_INIT, IB_QPS_RTR, PATH,
	  IB_QP_ALT_PATH | ACCESS | PKEY },
	{ RC | TGT, FROM_INIT, IB_QPS_RTR, PATH | RD_IN | RNR,
	  IB_QP_ALT_PATH | ACCESS | PKEY },

	{ UD | GSI, FROM_RTR, IB_QPS_RTS, IB_QP_SQ_PSN, CUR | QKEY },
	{ UC, FROM_RTR, IB_QPS_RTS, IB_QP_SQ_PSN, CUR | ACCESS | MIGRATE },
	{ RC, FROM_RTR, IB_QPS_RTS, IB_QP_SQ_PSN | RETRY | RD_OUT,
	  CUR | ACCESS | MIGRATE | RNR },
	{ INI, FROM_RTR, IB_QPS_RTS, IB_QP_SQ_PSN | RETRY | RD_OUT,
	  CUR | ACCESS | MIGRATE },
	{ TGT, FROM_RTR, IB_QPS_RTS, IB_QP_SQ_PSN | IB_QP_TIMEOUT,
	  CUR | ACCESS | MIGRATE | RNR },

	{ UD | GSI, FROM_RTS, IB_QPS_RTS, 0, CUR | QKEY },
	{ UC | INI, FROM_RTS, IB_QPS_RTS, 0, CUR | ACCESS | MIGRATE },
	{ RC | TGT, FROM_RTS, IB_QPS_RTS, 0, CUR | ACCESS | MIGRATE | RNR },

	{ ALL, FROM_RTS, IB_QPS_SQD, 0, IB_QP_EN_SQD_ASYNC_NOTIFY },

	{ UD | GSI, FROM_SQD, IB_QPS_RTS, 0, CUR | QKEY },
	{ UC | INI, FROM_SQD, IB_QPS_RTS, 0, CUR | ACCESS | MIGRATE },
	{ RC | TGT, FROM_SQD, IB_QPS_RTS, 0, CUR | ACCESS | MIGRATE | RNR },

	{ UD | GSI, FROM_SQD, IB_QPS_SQD, 0, PKEY | QKEY },
	{ UC, FROM_SQD, IB_QPS_SQD, 0, IB_QP_AV | ACCESS | PKEY | MIGRATE },
	{ RC, FROM_SQD, IB_QPS_SQD, 0, IB_QP_AV | ACCESS | PKEY | MIGRATE |
	  PORT | RETRY | RD_OUT | RD_IN | RNR },
	{ INI, FROM_SQD, IB_QPS_SQD, 0, IB_QP_AV | ACCESS | PKEY | MIGRATE |
	  PORT | RETRY | RD_OUT },
	{ TGT, FROM_SQD, IB_QPS_SQD, 0, IB_QP_AV | ACCESS | PKEY | MIGRATE |
	  PORT | IB_QP_TIMEOUT | RD_IN | RNR },

	/* Reliable QPs are never in SQE. */
	{ UD | GSI, FROM_SQE, IB_QPS_RTS, 0, CUR | QKEY },
	{ UC, FROM_SQE, IB_QPS_RTS, 0, CUR | ACCESS },
};

/* A case: all transitions of a QP type from a state. */
struct state_case {
	enum ib_qp_type type;
	enum ib_qp_state cur;
};

/* Every combination of type and state is a case. */
static const void *state_gen_params(struct kunit *test, const void *prev,
				    char *desc)
{
	static struct state_case cases[ARRAY_SIZE(types) * STATES];
	struct state_case *c = prev ? (struct state_case *)prev + 1 : cases;
	int i = c - cases;

	if (i == ARRAY_SIZE(cases))
		return NULL;
	c->type = types[i / STATES];
	c->cur = i % STATES;
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "%s in %s", type_names[c->type],
		 state_names[c->cur]);
	return c;
}

static const struct rule *rule_find(const struct state_case *c,
				    enum ib_qp_state next)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(rules); i++)
		if (rules[i].types & BIT(c->type) &&
		    rules[i].from & BIT(c->cur) && rules[i].next == next)
			return &rules[i];
	return NULL;
}

/* Check a transition with attributes that are in range. */
static int check(struct kunit *test, const struct state_case *c,
		 enum ib_qp_state next, int mask)
{
	struct keel_qp *qp = test->priv;
	struct ib_qp_attr attr = {
		.qp_state = next, .cur_qp_state = c->cur, .port_num = 1,
		.path_mtu = IB_MTU_1024, .path_mig_state = IB_MIG_MIGRATED,
	};

	qp->type = c->type;
	qp->state = c->cur;
	return keel_qp_check(qp, &attr, mask);
}

static void expect(struct kunit *test, const struct state_case *c, int want,
		   enum ib_qp_state next, int mask)
{
	KUNIT_EXPECT_EQ_MSG(test, want, check(test, c, next, mask),
			    "to %s with 0x%x", state_names[next], mask);
}

static void rule_holds(struct kunit *test, const struct state_case *c,
		       const struct rule *rule)
{
	int bit, full = IB_QP_STATE | rule->must;

	expect(test, c, 0, rule->next, full);
	expect(test, c, 0, rule->next, full | (rule->may & ~IB_QP_ALT_PATH));
	for (bit = 1; bit < ATTRS; bit++) {
		if (rule->must & BIT(bit))
			expect(test, c, -EINVAL, rule->next, full ^ BIT(bit));
		else if (!(rule->may & BIT(bit)))
			expect(test, c, -EINVAL, rule->next, full | BIT(bit));
		else if (BIT(bit) == IB_QP_ALT_PATH)
			expect(test, c, -EOPNOTSUPP, rule->next,
			       full | BIT(bit));
		else
			expect(test, c, 0, rule->next, full | BIT(bit));
	}
}

/* An illegal transition is refused with any attributes. */
static void no_rule_holds(struct kunit *test, const struct state_case *c,
			  enum ib_qp_state next)
{
	int i;

	expect(test, c, -EINVAL, next, IB_QP_STATE);
	for (i = 0; i < ARRAY_SIZE(rules); i++)
		if (rules[i].next == next)
			expect(test, c, -EINVAL, next,
			       IB_QP_STATE | rules[i].must);
}

static void qp_transitions(struct kunit *test)
{
	const struct state_case *c = test->param_value;
	const struct rule *rule;
	int next;

	for (next = 0; next < STATES; next++) {
		rule = rule_find(c, next);
		if (rule)
			rule_holds(test, c, rule);
		else if (c->cur != IB_QPS_SQE || next != IB_QPS_RTS)
			no_rule_holds(test, c, next);
	}
}

/* Without IB_QP_STATE, a QP keeps its state, and the same rules apply. */
static void qp_stays(struct kunit *test)
{
	const struct state_case *c = test->param_value;
	const struct rule *rule = rule_find(c, c->cur);
	struct keel_qp *qp = test->priv;
	int bit, want;

	for (bit = 1; bit < ATTRS; bit++) {
		want = rule && rule->may & BIT(bit) ? 0 : -EINVAL;
		if (!want && BIT(bit) == IB_QP_ALT_PATH)
			want = -EOPNOTSUPP;
		KUNIT_EXPECT_EQ_MSG(test, want, check(test, c, c->cur, BIT(bit)),
				    "bit %d", bit);
	}
	/* A check does not change the state. */
	KUNIT_EXPECT_EQ(test, c->cur, qp->state);
}

/* IB_QP_CUR_STATE is not the state of the QP. */
static void qp_other_state(struct kunit *test)
{
	const struct state_case *c = test->param_value;
	struct keel_qp *qp = test->priv;
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RTS };
	const struct rule *rule = rule_find(c, IB_QPS_RTS);
	int cur;

	if (!rule || !(rule->may & CUR))
		return;
	qp->type = c->type;
	qp->state = c->cur;
	for (cur = 0; cur < STATES; cur++) {
		attr.cur_qp_state = cur;
		KUNIT_EXPECT_EQ_MSG(test, cur == c->cur ? 0 : -EINVAL,
				    keel_qp_check(qp, &attr, IB_QP_STATE | CUR |
						  rule->must),
				    "as if in %s", state_names[cur]);
	}
}

struct range_case {
	const char *desc;
	struct ib_qp_attr attr;
	enum ib_qp_state cur;
	int mask, want;
};

#define SQD(name, field, value, bit, its_want)				\
	{ .desc = name, .attr = { .qp_state = IB_QPS_SQD, .field = value },\
	  .cur = IB_QPS_SQD, .mask = bit, .want = its_want }
#define RTR(name, its_field, value, its_want)				\
	{ .desc = name, .cur = IB_QPS_INIT, .want = its_want,		\
	  .mask = PATH | RD_IN | RNR,					\
	  .attr = { .path_mtu = IB_MTU_256, .qp_state = IB_QPS_RTR,	\
		    .its_field = value } }
#define RTR_MTU(name, value, its_want)					\
	{ .desc = name, .cur = IB_QPS_INIT, .want = its_want,		\
	  .mask = PATH | RD_IN | RNR,					\
	  .attr = { .path_mtu = value, .qp_state = IB_QPS_RTR } }

static const struct range_case range_cases[] = {
	SQD("port 0", port_num, 0, PORT, -EINVAL),
	SQD("port 1", port_num, 1, PORT, 0),
	SQD("port 2", port_num, 2, PORT, -EINVAL),
	SQD("P_Key index 0", pkey_index, 0, PKEY, 0),
	SQD("P_Key index behind the last", pkey_index, KEEL_PKEYS, PKEY,
	    -EINVAL),
	SQD("P_Key index that is largest", pkey_index, U16_MAX, PKEY, -EINVAL),
	SQD("timeout 0", timeout, 0, IB_QP_TIMEOUT, 0),
	SQD("timeout 31", timeout, 31, IB_QP_TIMEOUT, 0),
	SQD("timeout 32", timeout, 32, IB_QP_TIMEOUT, -EINVAL),
	SQD("retry_cnt 7", retry_cnt, 7, IB_QP_RETRY_CNT, 0),
	SQD("retry_cnt 8", retry_cnt, 8, IB_QP_RETRY_CNT, -EINVAL),
	SQD("rnr_retry 7", rnr_retry, 7, IB_QP_RNR_RETRY, 0),
	SQD("rnr_retry 8", rnr_retry, 8, IB_QP_RNR_RETRY, -EINVAL),
	SQD("min_rnr_timer 31", min_rnr_timer, 31, RNR, 0),
	SQD("min_rnr_timer 32", min_rnr_timer, 32, RNR, -EINVAL),
	SQD("no reads", max_rd_atomic, 0, RD_OUT, 0),
	SQD("128 reads", max_rd_atomic, 128, RD_OUT, 0),
	SQD("129 reads", max_rd_atomic, 129, RD_OUT, -EINVAL),
	SQD("128 reads of the peer", max_dest_rd_atomic, 128, RD_IN, 0),
	SQD("129 reads of the peer", max_dest_rd_atomic, 129, RD_IN, -EINVAL),
	SQD("migrated", path_mig_state, IB_MIG_MIGRATED, IB_QP_PATH_MIG_STATE,
	    0),
	SQD("to be migrated", path_mig_state, IB_MIG_REARM,
	    IB_QP_PATH_MIG_STATE, -EOPNOTSUPP),
	SQD("attribute that there is not", port_num, 1, BIT(31), -EOPNOTSUPP),
	SQD("rate limit", rate_limit, 1, IB_QP_RATE_LIMIT, -EOPNOTSUPP),
	RTR_MTU("MTU 0", 0, -EINVAL),
	RTR_MTU("MTU 256", IB_MTU_256, 0),
	RTR_MTU("MTU 4096", IB_MTU_4096, 0),
	RTR_MTU("MTU beyond 4096", IB_MTU_4096 + 1, -EINVAL),
	RTR("QP number 0", dest_qp_num, 0, 0),
	RTR("last QP number", dest_qp_num, 0xffffff, 0),
	RTR("QP number of 25 bits", dest_qp_num, 0x1000000, -EINVAL),
};
KUNIT_ARRAY_PARAM_DESC(range, range_cases, desc);

static void qp_ranges(struct kunit *test)
{
	const struct range_case *c = test->param_value;
	struct keel_qp *qp = test->priv;

	qp->type = IB_QPT_RC;
	qp->state = c->cur;
	KUNIT_EXPECT_EQ(test, c->want,
			keel_qp_check(qp, &c->attr, IB_QP_STATE | c->mask));
}

/* An error between the check and the commit: the commit is refused. */
static void qp_commit_refused(struct kunit *test)
{
	const struct ib_qp_attr attr = {
		.dest_qp_num = 7, .qkey = 8, .max_dest_rd_atomic = 9,
		.ah_attr.port_num = 1,
	};
	const int mask = IB_QP_STATE | PATH | QKEY | RD_IN;
	const struct keel_av av = { .local = true, .sl = 5 };
	struct keel_qp *qp = test->priv;
	int state;

	spin_lock_init(&qp->state_lock);
	for (state = 0; state < STATES; state++) {
		if (state == IB_QPS_INIT)
			continue;
		qp->state = state;
		qp->sq.drained = true;
		KUNIT_EXPECT_EQ(test, -EINVAL,
				keel_qp_commit(qp, IB_QPS_INIT, IB_QPS_RTR,
					       &attr, mask, &av));
		KUNIT_EXPECT_EQ(test, -EINVAL,
				keel_qp_commit(qp, IB_QPS_INIT, IB_QPS_SQD,
					       &attr, mask, &av));
		KUNIT_EXPECT_EQ(test, state, qp->state);
		KUNIT_EXPECT_TRUE(test, qp->sq.drained);
		KUNIT_EXPECT_NULL(test, memchr_inv(&qp->attr, 0,
						   sizeof(qp->attr)));
		KUNIT_EXPECT_NULL(test, memchr_inv(&qp->av, 0,
						   sizeof(qp->av)));
	}
	qp->state = IB_QPS_INIT;
	KUNIT_EXPECT_EQ(test, 0, keel_qp_commit(qp, IB_QPS_INIT, IB_QPS_RTR,
						&attr, mask, &av));
	KUNIT_EXPECT_EQ(test, IB_QPS_RTR, qp->state);
	KUNIT_EXPECT_EQ(test, 7, qp->attr.dest_qp_num);
	KUNIT_EXPECT_EQ(test, 8, qp->attr.qkey);
	KUNIT_EXPECT_EQ(test, 9, qp->attr.max_dest_rd_atomic);
	KUNIT_EXPECT_EQ(test, 1, qp->attr.ah_attr.port_num);
	KUNIT_EXPECT_EQ(test, 5, qp->av.sl);
	KUNIT_EXPECT_TRUE(test, qp->local);
}

/*
 * DEV-2: the RNR timers of the IBTA specification. 20 us and 30 us are doubled again and
 * again; 0 follows after 31.
 */
static void dev_2_rnr_timers(struct kunit *test)
{
	u64 us;
	int i;

	KUNIT_EXPECT_EQ(test, 10000ULL, keel_rnr_ns(1));
	for (i = 2; i <= 32; i++) {
		us = (i % 2 ? 30ULL : 20ULL) << (i / 2 - 1);
		KUNIT_EXPECT_EQ_MSG(test, us * NSEC_PER_USEC,
				    keel_rnr_ns(i % 32), "timer %d", i % 32);
	}
	/* A timer has five bits. */
	KUNIT_EXPECT_EQ(test, keel_rnr_ns(31), keel_rnr_ns(63));
}

static int qp_state_init(struct kunit *test)
{
	test->priv = kunit_kzalloc(test, sizeof(struct keel_qp), GFP_KERNEL);
	return test->priv ? 0 : -ENOMEM;
}

static struct kunit_case qp_state_cases[] = {
	KUNIT_CASE_PARAM(qp_transitions, state_gen_params),
	KUNIT_CASE_PARAM(qp_stays, state_gen_params),
	KUNIT_CASE_PARAM(qp_other_state, state_gen_params),
	KUNIT_CASE_PARAM(qp_ranges, range_gen_params),
	KUNIT_CASE(qp_commit_refused),
	KUNIT_CASE(dev_2_rnr_timers),
	{}
};

static struct kunit_suite qp_state_suite = {
	.name = "keel_qp_state",
	.init = qp_state_init,
	.test_cases = qp_state_cases,
};
kunit_test_suite(qp_state_suite);
