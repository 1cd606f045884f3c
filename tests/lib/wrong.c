// SPDX-License-Identifier: GPL-2.0
/*
 * Frames of which one member is wrong. See wrong.h.
 */
#include "t.h"
#include "wrong.h"

struct end wrong_victim;
struct stranger wrong_stranger;
const uint8_t wrong_data[FRAME_DATA] = "8 bytes";

void wrong_begin(struct end (*new)(int host))
{
	hosts_up();
	stranger_net_up();
	wrong_victim = new(0);
	wrong_stranger = stranger_new();
}

void wrong_end(void)
{
	stranger_free(&wrong_stranger);
	end_free(&wrong_victim);
}

void wrong_reset(void)
{
	struct ibv_qp peer = { .qp_num = PEER };
	struct end to = { .qp = &peer, .gid = gid_of_ipv4(STRANGER_IPV4) };

	qp_to(wrong_victim.qp, IBV_QPS_RESET);
	if (wrong_victim.qp->qp_type == IBV_QPT_UD)
		qp_connect(wrong_victim.qp, 0);
	else
		end_connect(&wrong_victim, &to, &joint_patient);
	memset(wrong_victim.mem, 0, 2 * FRAME_DATA);
}

void wrong_link(void)
{
	if (!wrong_stranger.up || !stranger_asks(&wrong_stranger, LONG_MS)) {
		stranger_connect(&wrong_stranger);
		if (!stranger_asks(&wrong_stranger, LONG_MS))
			FAIL("a new connection carries no frame");
	}
}

static void spoil(struct frame *frame, const struct wrong *w)
{
	memcpy((char *)frame + w->at, &w->value, w->width);
}

struct frame wrong_request(uint8_t opcode, uint8_t transport)
{
	return (struct frame){
		.type = FRAME_REQUEST, .flags = FRAME_FIRST | FRAME_LAST,
		.to = wrong_victim.qp->qp_num, .from = PEER, .psn = PSN, .gen = 1,
		.request = {
			.opcode = opcode, .transport = transport, .left = BYTES,
			.rkey = wrong_victim.mr->rkey, .addr = (uintptr_t)wrong_victim.mem,
		},
	};
}

void wrong_send(struct frame *frame, uint32_t len, const struct wrong *w)
{
	char bytes[FRAME_HEAD + FRAME_DATA];

	stranger_stamp(&wrong_stranger, frame, len);
	spoil(frame, w);
	memcpy(bytes, frame, FRAME_HEAD);
	memcpy(bytes + FRAME_HEAD, wrong_data, len);
	stranger_send_raw(&wrong_stranger, bytes, FRAME_HEAD + len);
}

void wrong_ends(const struct wrong *w)
{
	/* ib_cm sends its message once. If that is lost, nothing answers this QP, and it fails. */
	if (!stranger_ended(&wrong_stranger, LONG_MS) &&
	    (stranger_asks(&wrong_stranger, LONG_MS) || wrong_stranger.up))
		FAIL("%s: the link does not end", w->what);
}

void wrong_no_answer(const struct wrong *w)
{
	struct frame answer;

	if (stranger_get(&wrong_stranger, FRAME_ANSWER, &answer, SHORT_MS))
		FAIL("%s: got an answer, result %u, status %u", w->what, answer.answer.result,
		     answer.answer.status);
	if (!wrong_stranger.up || !stranger_asks(&wrong_stranger, LONG_MS))
		FAIL("%s: the link has ended", w->what);
}

static void wrong_answer(const struct wrong *w, const struct frame *sent)
{
	enum ibv_wc_status status = w->effect == REFUSED || w->effect == STATUS ?
				    w->status : IBV_WC_SUCCESS;
	uint8_t result = w->effect == NOT_READY ? FRAME_NOT_READY :
			 w->effect == RNR ? FRAME_RNR : FRAME_DONE;
	struct frame answer;

	if (!stranger_get(&wrong_stranger, FRAME_ANSWER, &answer, LONG_MS))
		FAIL("%s: got no answer", w->what);
	if (answer.answer.result != result || answer.answer.status != status)
		FAIL("%s: got result %u, status %u, want %u, %u", w->what, answer.answer.result,
		     answer.answer.status, result, status);
	if (answer.to != sent->from || answer.from != sent->to || answer.psn != sent->psn ||
	    answer.gen != sent->gen)
		FAIL("%s: the answer is that of another frame", w->what);
}

void wrong_effect(const struct wrong *w, const struct frame *sent)
{
	enum ibv_qp_state want = w->effect == REFUSED ? IBV_QPS_ERR : IBV_QPS_RTS, state;

	if (w->effect == ENDS)
		wrong_ends(w);
	else if (w->effect == DROPPED)
		wrong_no_answer(w);
	else
		wrong_answer(w, sent);
	state = qp_state(wrong_victim.qp);
	if (state != want)
		FAIL("%s: got state %u, want %u", w->what, state, want);
}
