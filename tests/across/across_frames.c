// SPDX-License-Identifier: GPL-2.0
/*
 * Frames of a host that is not keel, other than requests (across_requests.c): each type, with
 * one member wrong at a time, and what this does. kunit/frame_test.c checks which frames are
 * valid at all, bit by bit.
 */
#include <endian.h>

#include "t.h"
#include "wrong.h"

void t_end(void)
{
	stranger_net_down();
	hosts_down();
}

/* Effects: ENDS; DROPPED: it counts for nothing; else the status of the completion. */
static const struct wrong answer_cases[] = {
	{ "nothing", MEMBER(type), FRAME_ANSWER, STATUS, IBV_WC_SUCCESS },
	{ "a flag", MEMBER(flags), FRAME_FIRST, ENDS },
	{ "data, says the length", MEMBER(len), 1, ENDS },
	{ "to nobody", MEMBER(to), FRAME_MAX, DROPPED },
	{ "to more than 24 bits", BYTE(to, 3), 1, ENDS },
	{ "from another QP", MEMBER(from), PEER + 1, DROPPED },
	{ "from more than 24 bits", BYTE(from, 3), 1, ENDS },
	{ "psn of a packet that was not sent", MEMBER(psn), PSN + 1, DROPPED },
	{ "psn before the first one", MEMBER(psn), PSN - 1, DROPPED },
	{ "psn of more than 24 bits", BYTE(psn, 3), 1, ENDS },
	{ "an SRQ", MEMBER(srqn), 1, ENDS },
	{ "no cookie", MEMBER(cookie), 0, DROPPED },
	{ "another gen", MEMBER(gen), UINT64_MAX, DROPPED },
	{ "result 0", MEMBER(answer.result), 0, ENDS },
	{ "result 4", MEMBER(answer.result), 4, ENDS },
	{ "not ready", MEMBER(answer.result), FRAME_NOT_READY, DROPPED },
	{ "status of an error", MEMBER(answer.status), IBV_WC_REM_ACCESS_ERR, STATUS,
	  IBV_WC_REM_ACCESS_ERR },
	{ "status that is no error of the other side", MEMBER(answer.status),
	  IBV_WC_LOC_PROT_ERR, STATUS, IBV_WC_BAD_RESP_ERR },
	{ "status 255", MEMBER(answer.status), 255, STATUS, IBV_WC_BAD_RESP_ERR },
	{ "rnr", MEMBER(answer.rnr), 255, STATUS, IBV_WC_SUCCESS },
	{ "a chunk, of which it has too few bytes", MEMBER(chunk), 1, ENDS },
	{ "a chunk that was not written", MEMBER(freed), 1, ENDS },
	{ "reserved", MEMBER(reserved), 1, ENDS },
	{ "as many long packets as there are chunks", MEMBER(answer.chunks), FRAME_CHUNKS_N, STATUS,
	  IBV_WC_SUCCESS },
	{ "more long packets than chunks", MEMBER(answer.chunks), FRAME_CHUNKS_N + 1, ENDS },
	{ "why", MEMBER(answer.why), UINT32_MAX, STATUS, IBV_WC_SUCCESS },
	{ "word", MEMBER(answer.word), UINT64_MAX, STATUS, IBV_WC_SUCCESS },
	{ "unused", BYTE(answer.unused, 0), 1, ENDS },
	{ "the last unused byte", BYTE(answer.unused, 31), 0x80, ENDS },
};

static void check_completion(const struct wrong *w, enum ibv_wc_status want)
{
	struct ibv_wc wc = wc_get(wrong_victim.cq);

	if (wc.status != want)
		FAIL("%s: got status %u, want %u", w->what, wc.status, want);
}

/* An answer to a write that the victim has sent. */
static void check_answer_case(const struct wrong *w)
{
	struct frame sent, answer, right;
	struct ibv_wc wc;

	wrong_reset();
	wrong_link();
	post_rdma(wrong_victim.qp, IBV_WR_RDMA_WRITE, 1,
		  (struct mem){ wrong_victim.mem, BYTES, wrong_victim.mr->lkey }, 0, 1);
	if (!stranger_get(&wrong_stranger, FRAME_REQUEST, &sent, LONG_MS))
		FAIL("%s: the victim sends nothing", w->what);
	answer = (struct frame){
		.type = FRAME_ANSWER, .to = sent.from, .from = sent.to, .psn = sent.psn,
		.gen = sent.gen, .answer.result = FRAME_DONE,
	};
	right = answer;
	wrong_send(&answer, 0, w);
	if (w->effect == ENDS) {
		wrong_ends(w);
		return;
	}
	if (w->effect != DROPPED) {
		check_completion(w, w->status);
		return;
	}
	if (!stranger_asks(&wrong_stranger, LONG_MS))
		FAIL("%s: the link has ended", w->what);
	usleep(SHORT_MS * 1000);
	if (ibv_poll_cq(wrong_victim.cq, 1, &wc))
		FAIL("%s: got a completion, status %u", w->what, wc.status);
	/* If it was sent again meanwhile, this is the answer to it. */
	stranger_send(&wrong_stranger, &right, NULL, 0);
	check_completion(w, IBV_WC_SUCCESS);
}

TEST_SLOW(answer, "HOST-3", "an answer with each member wrong ends the link, fails its message, or is dropped", 120)
{
	size_t i;

	wrong_begin(end_new);
	for (i = 0; i < sizeof(answer_cases) / sizeof(*answer_cases); i++)
		check_answer_case(&answer_cases[i]);
	wrong_end();
}

/* SUCCESS: it is delivered; NOT_READY: the sender is told so. */
static const struct wrong datagram_cases[] = {
	{ "nothing", MEMBER(type), FRAME_DATAGRAM, SUCCESS },
	{ "the flag of a first packet", MEMBER(flags), 0x9, ENDS },
	{ "an unknown flag", MEMBER(flags), 0x18, ENDS },
	{ "one byte more than there are", MEMBER(len), BYTES + 1, ENDS },
	{ "to nobody", MEMBER(to), FRAME_MAX, NOT_READY },
	{ "to more than 24 bits", BYTE(to, 3), 1, ENDS },
	{ "from another QP", MEMBER(from), PEER + 1, SUCCESS },
	{ "from more than 24 bits", BYTE(from, 3), 1, ENDS },
	{ "any psn", MEMBER(psn), 0, SUCCESS },
	{ "psn of more than 24 bits", BYTE(psn, 3), 1, ENDS },
	{ "an SRQ", MEMBER(srqn), 1, ENDS },
	{ "no cookie", MEMBER(cookie), 0, DROPPED },
	{ "any gen", MEMBER(gen), UINT64_MAX, SUCCESS },
	{ "a chunk", MEMBER(chunk), 1, ENDS },
	{ "a chunk that was not written", MEMBER(freed), 0x08, ENDS },
	{ "reserved of all frames", MEMBER(reserved), 1, ENDS },
	{ "an RDMA write", MEMBER(datagram.opcode), IBV_WR_RDMA_WRITE, ENDS },
	{ "opcode 255", MEMBER(datagram.opcode), 255, ENDS },
	{ "tclass", MEMBER(datagram.tclass), 255, SUCCESS },
	{ "hop_limit", MEMBER(datagram.hop_limit), 255, SUCCESS },
	{ "reserved", MEMBER(datagram.reserved), 1, ENDS },
	{ "imm", MEMBER(datagram.imm), UINT32_MAX, SUCCESS },
	{ "another Q_Key", MEMBER(datagram.qkey), QP_QKEY + 1, NOT_READY },
	{ "flow_label", MEMBER(datagram.flow_label), UINT32_MAX, SUCCESS },
	{ "unused", BYTE(datagram.unused, 0), 1, ENDS },
	{ "the last unused byte", BYTE(datagram.unused, 31), 0x80, ENDS },
};

static void check_datagram_case(const struct wrong *w)
{
	struct frame frame = {
		.type = FRAME_DATAGRAM, .flags = FRAME_WANTS_ANSWER, .to = wrong_victim.qp->qp_num,
		.from = PEER, .psn = PSN, .gen = 1,
		.datagram = { .opcode = IBV_WR_SEND, .hop_limit = 1, .qkey = QP_QKEY },
	};
	struct ibv_wc wc;

	wrong_reset();
	wrong_link();
	post_recv(wrong_victim.qp, 1, (struct mem){ wrong_victim.mem, 100, wrong_victim.mr->lkey });
	wrong_send(&frame, BYTES, w);
	wrong_effect(w, &frame);
	if (w->effect != SUCCESS) {
		if (ibv_poll_cq(wrong_victim.cq, 1, &wc))
			FAIL("%s: it was delivered", w->what);
		return;
	}
	wc = CHECK_WC(wrong_victim.cq, 1, IBV_WC_SUCCESS);
	CHECK_EQ(wc.byte_len, 40 + BYTES);
	CHECK_EQ(wc.src_qp, frame.from);
	CHECK_MEM(wrong_victim.mem + 40, wrong_data, BYTES);
}

TEST_SLOW(datagram, "HOST-3", "a datagram with each member wrong ends the link, is delivered, or is dropped", 120)
{
	size_t i;

	wrong_begin(end_new_ud);
	for (i = 0; i < sizeof(datagram_cases) / sizeof(*datagram_cases); i++)
		check_datagram_case(&datagram_cases[i]);
	wrong_end();
}

/* Offsets of the members of frames that are for no QP; not those of type and credits. */
static const struct wrong control_cases[] = {
	{ "flags", MEMBER(flags), 1, ENDS },
	{ "len", MEMBER(len), 1, ENDS },
	{ "to", MEMBER(to), 1, ENDS },
	{ "from", MEMBER(from), 1, ENDS },
	{ "psn", MEMBER(psn), 1, ENDS },
	{ "srqn", MEMBER(srqn), 1, ENDS },
	{ "cookie", MEMBER(cookie), 1, DROPPED },
	{ "gen", MEMBER(gen), 1, ENDS },
	{ "chunk", MEMBER(chunk), 1, ENDS },
	{ "freed", MEMBER(freed), 1, ENDS },
	{ "reserved", MEMBER(reserved), 1, ENDS },
	{ "the first other byte", BYTE(request, 0), 1, ENDS },
	{ "the last other byte", BYTE(request, 47), 1, ENDS },
	{ "all credits", MEMBER(credits), 0xffff, ENDS },
};

TEST_SLOW(control, "HOST-3", "frames for no QP with any member set end the link", 120)
{
	struct frame frame;
	uint8_t type;
	size_t i;

	wrong_begin(end_new);
	wrong_reset();
	for (type = FRAME_CREDIT; type <= FRAME_ALIVE; type++)
		for (i = 0; i < sizeof(control_cases) / sizeof(*control_cases); i++) {
			wrong_link();
			frame = (struct frame){ .type = type };
			wrong_send(&frame, 0, &control_cases[i]);
			wrong_effect(&control_cases[i], &frame);
		}
	wrong_end();
}

/* Messages that are no frames, because of their length. */
TEST_SLOW(lengths, "HOST-3", "messages of wrong lengths do nothing, or end the link", 60)
{
	static const struct {
		size_t bytes;
		enum effect effect;
	} cases[] = {
		{ 0, DROPPED }, { 1, DROPPED }, { FRAME_HEAD - 1, DROPPED },
		{ FRAME_HEAD + BYTES - 1, ENDS }, { FRAME_HEAD + BYTES + 1, ENDS },
		{ FRAME_HEAD + FRAME_DATA, ENDS }, { FRAME_HEAD + FRAME_DATA + 1, ENDS },
		{ FRAME_ROOM, ENDS },
	};
	struct wrong none = {};
	char what[40];
	char bytes[FRAME_ROOM] = {};
	struct frame frame;
	size_t i;

	wrong_begin(end_new);
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		snprintf(what, sizeof(what), "%zu bytes", cases[i].bytes);
		none.what = what;
		wrong_reset();
		wrong_link();
		frame = wrong_request(IBV_WR_RDMA_WRITE, FRAME_RC);
		stranger_stamp(&wrong_stranger, &frame, BYTES);
		memcpy(bytes, &frame, FRAME_HEAD);
		stranger_send_raw(&wrong_stranger, bytes, cases[i].bytes);
		if (cases[i].effect == ENDS)
			wrong_ends(&none);
		else
			wrong_no_answer(&none);
	}
	wrong_end();
}

/* The hello that establishes the link. */
TEST_SLOW(hello, "HOST-3", "a host of another version gets no link, and one without credits gets no frame", 60)
{
	struct frame frame;

	wrong_begin(end_new);
	wrong_reset();
	stranger_prepare(&wrong_stranger);
	wrong_stranger.req.hello.version = htole16(HELLO_VERSION + 1);
	CHECK(!stranger_ask(&wrong_stranger, 1000));
	stranger_prepare(&wrong_stranger);
	wrong_stranger.req.hello.magic = 0;
	CHECK(!stranger_ask(&wrong_stranger, 1000));
	stranger_prepare(&wrong_stranger);
	wrong_stranger.req.hello.credits = 0;
	CHECK(stranger_ask(&wrong_stranger, 1000));
	/* No more than a guest can answer. */
	CHECK_EQ(wrong_stranger.granted, 4);
	CHECK(!stranger_asks(&wrong_stranger, 100));
	CHECK(wrong_stranger.up);
	/* One, later. */
	frame = (struct frame){ .type = FRAME_CREDIT };
	wrong_stranger.owed = 1;
	CHECK(stranger_send(&wrong_stranger, &frame, NULL, 0));
	CHECK(stranger_get(&wrong_stranger, FRAME_ALIVE, &frame, LONG_MS));
	wrong_end();
}
