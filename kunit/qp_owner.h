/* SPDX-License-Identifier: GPL-2.0 */
/*
 * QPs that have the worker of a process. The process is that of the test, whose thread
 * gets memory of its own. In all else the QPs are those of a kernel consumer.
 */
#ifndef KEEL_QP_OWNER_H
#define KEEL_QP_OWNER_H

#include "pair.h"
#include "worker_jobs.h"

#define OWNER_LEN	100

/**
 * struct owner - what a test has
 * @p: the QPs
 * @t: the first worker of the test
 * @ctx: a context, which has nothing but workers
 * @mine: the worker of the test in @ctx, or NULL
 * @user: a user who has an object, or NULL
 * @visits: how often the thread of the test has left the send queue of the requester
 * @refs: references on the requester at the first visit
 */
struct owner {
	struct pair *p;
	struct worker_test t;
	struct keel_ib_ctx ctx;
	struct keel_worker *mine;
	struct keel_user *user;
	int visits;
	unsigned int refs;
};

/* The test that runs, or NULL: stubs and hooks have no argument. */
extern struct owner *owner;

/* For suites: test->priv is a struct pair. */
int owner_init(struct kunit *test);
void owner_exit(struct kunit *test);

/* Give the thread of the test a worker in each of three lists. */
void owner_open(struct owner *o);
/* Give a QP a worker. The destroy of the QP drops the reference. */
void owner_give(const struct end *end, struct keel_worker *worker);
/* Charge an object to a user, once in a test, as if a process had created it. */
void owner_charge(struct owner *o, struct keel_obj *obj);
/* Connect two QPs. The requester belongs to a user, and to a process that is dead. */
struct keel_qp *owner_dies(struct owner *o, enum ib_qp_type type);
/* Let the work of orphans take some steps, and return whether it has ended. */
bool owner_steps(struct owner *o, int steps);

#endif /* KEEL_QP_OWNER_H */
