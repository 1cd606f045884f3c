// SPDX-License-Identifier: GPL-2.0
/*
 * Completions that are expected, and their comparison with those that come.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "model.h"

void cq_add(struct obj *cq, const struct wc *wc)
{
	struct wc *to;

	if (cq->cq.n == CQ_MAX)
		diverge("the model has no room in a CQ");
	to = &cq->cq.wc[cq->cq.n++];
	*to = *wc;
	to->step = world.step;
	cq->cq.added++;
	result->by_status[wc->status]++;
	if (wc->recv) {
		result->recvs++;
		result->recvs_good += !wc->status;
	}
}

void cq_forget(struct obj *cq, uint32_t qpn)
{
	int i, n = 0;

	for (i = 0; i < cq->cq.n; i++)
		if (cq->cq.wc[i].qpn != qpn)
			cq->cq.wc[n++] = cq->cq.wc[i];
	cq->cq.n = n;
}

static void differ(const struct ibv_wc *wc, const char *what, uint64_t got,
		   uint64_t want)
{
	diverge("completion of %lu, status \"%s\": %s: got %lu, want %lu",
		(unsigned long)wc->wr_id, ibv_wc_status_str(wc->status), what,
		(unsigned long)got, (unsigned long)want);
}

static void check_wc(const struct ibv_wc *wc, const struct wc *want)
{
	if (wc->status != want->status)
		diverge("completion of %lu (%s): got \"%s\" (%s), want \"%s\" (%s)",
			(unsigned long)wc->wr_id,
			want->recv ? "receive" : "send",
			ibv_wc_status_str(wc->status),
			keeldv_why_str(wc->vendor_err),
			ibv_wc_status_str(want->status),
			keeldv_why_str(want->why));
	if (wc->vendor_err != want->why)
		differ(wc, "vendor_err", wc->vendor_err, want->why);
	if (wc->qp_num != want->qpn)
		differ(wc, "qp_num", wc->qp_num, want->qpn);
	if (wc->opcode != want->opcode)
		differ(wc, "opcode", wc->opcode, want->opcode);
	if (wc->status)
		return;
	if (want->check_len && wc->byte_len != want->len)
		differ(wc, "byte_len", wc->byte_len, want->len);
	if (wc->wc_flags != want->flags)
		differ(wc, "wc_flags", wc->wc_flags, want->flags);
	if (want->flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV) &&
	    wc->invalidated_rkey != want->imm)
		differ(wc, "imm_data", wc->invalidated_rkey, want->imm);
	if (want->flags & IBV_WC_GRH && wc->src_qp != want->src_qp)
		differ(wc, "src_qp", wc->src_qp, want->src_qp);
}

/*
 * Completions come in the order of the model. Those that kernel threads add in the
 * same step come in any order, except within a queue.
 */
static int find(const struct obj *cq, uint64_t wr_id)
{
	const struct wc *of = cq->cq.wc, *before;
	int i, j;

	for (i = 0; i < cq->cq.n && of[i].wr_id != wr_id; i++)
		;
	if (i == cq->cq.n)
		return -1;
	for (j = 0; j < i; j++) {
		before = &of[j];
		if (!before->loose || !of[i].loose ||
		    before->step != of[i].step ||
		    (before->qpn == of[i].qpn && before->recv == of[i].recv))
			diverge("completion: got that of %lu, want that of %lu first",
				(unsigned long)wr_id,
				(unsigned long)before->wr_id);
	}
	return i;
}

static void take(struct obj *cq, const struct ibv_wc *wc)
{
	int i = find(cq, wc->wr_id);
	struct wc want;

	if (i < 0)
		diverge("completion of %lu, status \"%s\" (%s): want none",
			(unsigned long)wc->wr_id,
			ibv_wc_status_str(wc->status),
			keeldv_why_str(wc->vendor_err));
	want = cq->cq.wc[i];
	memmove(&cq->cq.wc[i], &cq->cq.wc[i + 1],
		(--cq->cq.n - i) * sizeof(want));
	check_wc(wc, &want);
}

void cq_poll(struct obj *cq, int n)
{
	struct ibv_wc wc[16];
	int got, i, ms = 0, batch;

	say("poll cq %lu: %d of %d", (unsigned long)cq->born, n, cq->cq.n);
	while (n > 0) {
		batch = n < COUNT(wc) ? n : COUNT(wc);
		got = ibv_poll_cq(cq->cq.p, batch, wc);
		if (got < 0)
			diverge("ibv_poll_cq(): got %s, want success",
				errname(-got));
		for (i = 0; i < got; i++)
			take(cq, &wc[i]);
		n -= got;
		if (got == batch)
			continue;
		if (!cq->cq.n)
			return;
		if (ms++ == patience_ms)
			diverge("completion of %lu, status \"%s\" (%s): got none",
				(unsigned long)cq->cq.wc[0].wr_id,
				ibv_wc_status_str(cq->cq.wc[0].status),
				keeldv_why_str(cq->cq.wc[0].why));
		usleep(1000);
	}
}

/* How many completions the posted work requests can add. */
int cq_need(const struct obj *cq)
{
	const struct obj *o;
	int i, n = cq->cq.n;

	for (i = 0; i < world.n[K_QP]; i++) {
		o = world.live[K_QP][i];
		if (o->qp.send_cq == cq)
			n += o->qp.n;
		if (o->qp.recv_cq == cq)
			n += o->qp.rq.n + o->qp.have +
			     (o->qp.srq ? o->qp.srq->srq.rq.n : 0);
	}
	for (i = 0; i < world.n[K_SRQ]; i++) {
		o = world.live[K_SRQ][i];
		if (o->srq.cq == cq)
			n += o->srq.rq.n;
	}
	return n;
}

bool cq_room(struct obj *cq, int more)
{
	if (!cq || cq_need(cq) + more <= (int)cq->cq.size)
		return true;
	cq_poll(cq, cq->cq.n);
	return cq_need(cq) + more <= (int)cq->cq.size;
}

bool qp_room(struct obj *qp, int sends, int recvs)
{
	return cq_room(qp->qp.send_cq, sends +
		       (qp->qp.recv_cq == qp->qp.send_cq ? recvs : 0)) &&
	       cq_room(qp->qp.recv_cq, recvs);
}
