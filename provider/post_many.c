/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * keeldv_post_sends(): posting to several queue pairs, with one system call for their
 * doorbells.
 */
#include <errno.h>

#include "keel.h"
#include "keeldv.h"

/* Ring the doorbells of QPs of a context. Returns 0, or the first error. */
static int ring_doorbells(struct ibv_context *ibctx, const uint32_t *qpns,
			  uint32_t n)
{
	DECLARE_COMMAND_BUFFER(cmdb, UVERBS_OBJECT_QP, KEEL_METHOD_QP_DOORBELLS, 1);
	int ret;

	fill_attr_in(cmdb, KEEL_ATTR_QP_DOORBELLS_QPNS, qpns, n * sizeof(*qpns));
	do {
		ret = execute_ioctl(ibctx, cmdb);
	} while (ret == EINTR);
	return ret;
}

/*
 * Ring for posts of one context, those whose bits are set. If the call fails, each gets the
 * error of a doorbell of its own.
 */
static void ring_posts(struct keeldv_post *posts, unsigned int n, uint64_t mask)
{
	uint32_t qpns[KEEL_UAPI_DOORBELLS];
	uint32_t rings = 0;
	unsigned int i;

	for (i = 0; i < n; i++)
		if (mask >> i & 1)
			qpns[rings++] = posts[i].qp->qp_num;
	if (!rings || !ring_doorbells(posts->qp->context, qpns, rings))
		return;
	for (i = 0; i < n; i++)
		if (mask >> i & 1)
			posts[i].ret = keel_ring_sends(posts[i].qp, posts[i].ret,
						       posts[i].wr,
						       &posts[i].bad_wr);
}

static int put_post(struct keeldv_post *post, bool *posted)
{
	*posted = false;
	post->bad_wr = post->wr;
	if (!post->qp || !post->wr)
		return EINVAL;
	if (!keel_is_ours(post->qp->context->device))
		return EOPNOTSUPP;
	post->bad_wr = NULL;
	return keel_put_sends(post->qp, post->wr, &post->bad_wr, posted);
}

static bool same_context(const struct keeldv_post *a, const struct keeldv_post *b)
{
	return a->qp && b->qp && a->qp->context == b->qp->context;
}

/* Returns the number of posts from the start that one doorbell can be for. */
static unsigned int post_some(struct keeldv_post *posts, unsigned int n)
{
	uint64_t mask = 0;
	unsigned int i;
	bool posted;

	for (i = 0; i < n && i < KEEL_UAPI_DOORBELLS; i++) {
		if (i && !same_context(posts, &posts[i]))
			break;
		posts[i].ret = put_post(&posts[i], &posted);
		if (posted && !keel_is_polled(to_kqp(posts[i].qp)))
			mask |= (uint64_t)1 << i;
	}
	ring_posts(posts, i, mask);
	return i;
}

int keeldv_post_sends(struct keeldv_post *posts, unsigned int n)
{
	unsigned int done, i;

	static_assert(KEEL_UAPI_DOORBELLS <= 64, "a bit for each");
	if (n && !posts)
		return EINVAL;
	for (done = 0; done < n;)
		done += post_some(posts + done, n - done);
	for (i = 0; i < n; i++)
		if (posts[i].ret)
			return posts[i].ret;
	return 0;
}
