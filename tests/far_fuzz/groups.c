// SPDX-License-Identifier: GPL-2.0
/*
 * Calls: what the victim does with groups.
 */
#include <pthread.h>

#include "groups.h"
#include "qp.h"
#include "t.h"
#include "world.h"

const union ibv_gid world_groups[W_GROUPS] = {
	[W_FOUR] = { .raw = { [10] = 0xff, 0xff, 239, 9, 0, 1 } },
	[W_SIX] = { .raw = { 0xff, 0x0e, [15] = 9 } },
	[W_THIRD] = { .raw = { [10] = 0xff, 0xff, 239, 9, 0, 4 } },
	[W_LATE] = { .raw = { [10] = 0xff, 0xff, 239, 9, 0, 5 } },
};

static const uint32_t lengths[] = { 8, 0, 1, 64, 4000, 4001, 928, 4096 };

/* The thread that attaches and detaches. */
static struct {
	bool runs;
	pthread_t thread;
	struct ibv_qp *qp;
	int group, n;
} churn;

/* Some group has changed. */
static bool changed;

/* 0: the member */
static struct ibv_qp *pick(uint8_t arg)
{
	int i = arg ? arg % W_QPS : W_MEMBER;

	w.dirty |= 1 << i;
	return w.qp[i];
}

void groups_leave(struct ibv_qp *qp)
{
	int i;

	groups_end();
	for (i = 0; i < W_GROUPS; i++)
		ibv_detach_mcast(qp, &world_groups[i], 0);
	changed = true;
}

/* The address of the victim that can be the source of packets to the group. */
static int sgid_for(int group)
{
	union ibv_gid gid;
	int i;

	for (i = 0; group == W_SIX && i < 16; i++)
		if (!ibv_query_gid(w.ctx, 1, i, &gid) && gid.raw[0] == 0xfe)
			return i;
	return w.sgid;
}

void groups_open(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1, .grh = { .hop_limit = 5, .traffic_class = 0x28 },
	};
	int i;

	for (i = 0; i < W_GROUPS; i++) {
		attr.grh.dgid = world_groups[i];
		attr.grh.sgid_index = sgid_for(i);
		w.group_ah[i] = MUST(ibv_create_ah(w.pd, &attr));
	}
	changed = true;
	groups_begin();
}

void groups_close(void)
{
	int i;

	for (i = 0; i < W_GROUPS; i++)
		CHECK_OK(ibv_destroy_ah(w.group_ah[i]));
}

void groups_begin(void)
{
	struct ibv_qp *qp = w.qp[W_MEMBER];

	if (!changed)
		return;
	groups_leave(w.qp[W_UD]);
	CHECK_OK(ibv_attach_mcast(qp, &world_groups[W_FOUR], 0));
	CHECK_OK(ibv_attach_mcast(qp, &world_groups[W_SIX], 0));
	ibv_detach_mcast(qp, &world_groups[W_THIRD], 0);
	ibv_detach_mcast(qp, &world_groups[W_LATE], 0);
	changed = false;
}

static void *churn_run(void *unused)
{
	const union ibv_gid *group = &world_groups[churn.group];
	int i;

	for (i = 0; i < churn.n; i++) {
		ibv_attach_mcast(churn.qp, group, 0);
		ibv_detach_mcast(churn.qp, group, 0);
	}
	return NULL;
}

void groups_end(void)
{
	if (churn.runs)
		CHECK_EQ(pthread_join(churn.thread, NULL), 0);
	churn.runs = false;
}

/* attach QP GROUP */
static void op_attach(const uint8_t *a)
{
	ibv_attach_mcast(pick(a[0]), &world_groups[a[1] % W_GROUPS], 0);
	changed = true;
}

/* detach QP GROUP */
static void op_detach(const uint8_t *a)
{
	ibv_detach_mcast(pick(a[0]), &world_groups[a[1] % W_GROUPS], 0);
	changed = true;
}

/* churn QP GROUP NUMBER: it is attached and detached so often during the next calls */
static void op_churn(const uint8_t *a)
{
	groups_end();
	churn.qp = pick(a[0]);
	churn.group = a[1] % W_GROUPS;
	churn.n = a[2] % 32 + 1;
	churn.runs = !pthread_create(&churn.thread, NULL, churn_run, NULL);
	changed = true;
}

/* say GROUP LENGTH QKEY NUMBER: the member sends datagrams to a group */
static void op_say(const uint8_t *a)
{
	struct ibv_sge sge = { (uintptr_t)w.mem, lengths[a[1] % 8], w.mr[W_ALL]->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = {
			.ah = w.group_ah[a[0] % W_GROUPS], .remote_qpn = MULTICAST_QPN,
			.remote_qkey = QP_QKEY + a[2],
		},
	}, *bad;
	struct ibv_qp *qp = pick(0);
	int n;

	for (n = 0; n <= a[3] % QP_WRS; n++)
		ibv_post_send(qp, &wr, &bad);
}

const struct op group_ops[] = {
	{ "attach", op_attach, 2 },
	{ "detach", op_detach, 2 },
	{ "churn", op_churn, 2 },
	{ "say", op_say, 3 },
};

const int group_ops_count = sizeof(group_ops) / sizeof(*group_ops);
