// SPDX-License-Identifier: GPL-2.0
/*
 * Calls: what the stranger sends. Without "spoil" and its like, frames are such as keel sends
 * them, with the numbers that the victim expects.
 */
#include "qp.h"
#include "t.h"
#include "world.h"

/* Errors of the next frame. */
static struct {
	bool set;
	uint8_t at, how;
	uint32_t value;
} faults[4];
static int nfaults;
/* To be added to the length of the next message. */
static int more_bytes;
/* The chunk of the victim that the next data is in, or 0; and it is written there before. */
static int next_chunk;
static bool next_written;
/* Of the next frame, if it is another one than usual. */
static struct way next_way;
static bool next_detours;
static char data[FRAME_ROOM];

static const uint8_t opcodes[] = {
	IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
	IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
	IBV_WR_SEND_WITH_INV, IBV_WR_FLUSH, IBV_WR_ATOMIC_WRITE, IBV_WR_BIND_MW,
	IBV_WR_LOCAL_INV, IBV_WR_TSO, 255,
};

static const uint32_t lengths[] = {
	8, 0, 1, 64, FRAME_DATA, FRAME_DATA - 1, 100, 2 * FRAME_DATA, 20000, 1 << 20,
};

void frames_begin(void)
{
	nfaults = 0;
	more_bytes = 0;
	next_chunk = 0;
	next_detours = false;
	w.nkept = 0;
	batch_begin();
}

/* Interesting numbers, by the upper bits of @how; the lower ones are the width. */
static uint64_t fault_value(uint8_t how, uint32_t value)
{
	switch (how >> 4) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX;
	case 2:
		return 1ULL << value % 64;
	case 3:
		return (1ULL << value % 64) - 1;
	case 4:
		return -(uint64_t)value;
	case 5:
		return (uint64_t)value << 32;
	case 6:
		return value % 16;
	default:
		return value;
	}
}

static void apply_faults(char *bytes)
{
	uint64_t value;
	size_t width;
	int i;

	for (i = 0; i < nfaults; i++) {
		width = 1 << faults[i].how % 4;
		value = fault_value(faults[i].how, faults[i].value);
		/* In half of the cases it is one bit. */
		if (faults[i].how & 8)
			bytes[faults[i].at % FRAME_HEAD] ^= 1 << faults[i].how % 8;
		else
			memcpy(bytes + faults[i].at % (FRAME_HEAD / width) * width, &value, width);
	}
	nfaults = 0;
}

static void send_kept(const struct kept *k)
{
	/* It is that of another connection since, or the other credits count twice. */
	if (batch_takes(k))
		return;
	if (k->way.cast)
		forger_send(k->way, k->bytes, k->n);
	else
		stranger_send_raw(w.s, k->bytes, k->n);
}

/* Return: bytes behind the header. */
static uint32_t use_chunk(struct frame *frame, uint32_t len)
{
	static char long_data[FRAME_CHUNK];

	if (!next_chunk || len <= FRAME_DATA)
		return len;
	if (next_written && w.s->chunks_rkey)
		stranger_write(w.s, (next_chunk - 1) % FRAME_CHUNKS_N * FRAME_CHUNK, long_data, len);
	frame->chunk = next_chunk;
	return 0;
}

/* Most bytes of data that the next frame may have. */
static uint32_t most_bytes(void)
{
	return next_chunk ? FRAME_CHUNK : FRAME_DATA;
}

void frames_detour(struct way way)
{
	next_way = way;
	next_detours = true;
}

void frames_send(struct frame *frame, uint32_t len, struct way way)
{
	struct kept *k = &w.kept[w.nkept++ % KEPT];
	uint32_t behind;
	int n;

	if (next_detours)
		way = way.cast ? (struct way){} : next_way;
	next_detours = false;
	k->way = way;
	frame->len = len;
	if (!way.cast)
		stranger_stamp(w.s, frame, len);
	behind = use_chunk(frame, len);
	n = FRAME_HEAD + behind + more_bytes;
	memcpy(k->bytes, frame, FRAME_HEAD);
	memcpy(k->bytes + FRAME_HEAD, data, behind);
	apply_faults(k->bytes);
	k->n = n < 0 ? 0 : n > FRAME_ROOM ? FRAME_ROOM : n;
	more_bytes = 0;
	next_chunk = 0;
	send_kept(k);
}

static void send_frame(struct frame *frame, uint32_t len)
{
	frames_send(frame, len, (struct way){});
}

void frames_collect(void)
{
	char bytes[FRAME_ROOM];
	struct frame frame;
	uint32_t i;

	while (stranger_poll(w.s, bytes)) {
		memcpy(&frame, bytes, FRAME_HEAD);
		i = frame.to - PEER_QPN;
		if (frame.type == FRAME_REQUEST && i < W_QPS && w.npending[i] < PENDING)
			w.pending[i][w.npending[i]++] = frame;
	}
	stranger_ended(w.s, 0);
}

static uint8_t transport_of(int i)
{
	return i == W_UC ? FRAME_UC : i == W_XRC_RECV || i == W_XRC_SEND ? FRAME_XRC : FRAME_RC;
}

/* The members of a request that do not change from packet to packet. */
static struct frame request_of(int i, const uint8_t *a)
{
	uint8_t opcode = opcodes[a[1] % sizeof(opcodes)];
	struct frame frame = {
		.type = FRAME_REQUEST, .to = w.qp[i]->qp_num, .from = PEER_QPN + i,
		.gen = w.gen[i], .srqn = transport_of(i) == FRAME_XRC ? w.xsrqn : 0,
		.request = {
			.opcode = opcode, .transport = transport_of(i),
			.imm = opcode == IBV_WR_SEND_WITH_INV ? w.mw->rkey : a[5],
			.rkey = world_rkey(a[4]), .a = a[5], .b = a[6],
			.addr = (uintptr_t)w.mem + a[4] % 8 % W_MW * (WORLD_BYTES / 4) +
				a[5] * 64,
			.kind = opcode == IBV_WR_FLUSH ? 1 << (a[5] & 1) | (a[5] & 2) << 7 : 0,
		},
	};

	if (a[4] % 8 == W_MW)
		frame.request.addr = (uintptr_t)w.mem + a[5];
	return frame;
}

/* Send the next packet of the message that has begun; @how is that of "request". */
static void send_packet(int i, uint8_t how, int8_t psn)
{
	struct frame frame = w.begun[i];
	bool read = frame.request.opcode == IBV_WR_RDMA_READ;
	uint32_t n = w.left[i] < most_bytes() ? w.left[i] : most_bytes();
	uint64_t sent = frame.request.left - w.left[i];
	uint32_t len = n;

	frame.flags = (sent ? 0 : FRAME_FIRST) | (n == w.left[i] ? FRAME_LAST : 0) |
		      (how & 4 ? FRAME_SOLICITED : 0);
	frame.psn = (w.psn[i] + psn) & 0xffffff;
	frame.request.left = w.left[i];
	frame.request.addr += sent;
	if (read) {
		frame.request.bytes = n;
		len = 0;
	}
	switch (frame.request.opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_FLUSH:
		frame.flags |= FRAME_FIRST | FRAME_LAST;
		n = w.left[i];
		len = 0;
		break;
	case IBV_WR_ATOMIC_WRITE:
		frame.flags |= FRAME_FIRST | FRAME_LAST;
		n = w.left[i];
		len = 8;
		break;
	default:
		break;
	}
	send_frame(&frame, len);
	w.left[i] -= n;
	if (!psn)
		w.psn[i] = (w.psn[i] + 1) & 0xffffff;
}

/* request QP OPCODE HOW LENGTH REGION OFFSET PSN: all packets, or only the first one. */
static void op_request(const uint8_t *a)
{
	int i = a[0] % W_QPS, n = 0;

	w.dirty |= 1 << i;
	w.begun[i] = request_of(i, a);
	w.begun[i].request.left = lengths[a[3] % (sizeof(lengths) / sizeof(*lengths))];
	w.left[i] = w.begun[i].request.left;
	do
		send_packet(i, a[2], a[6]);
	while (w.left[i] && !(a[2] & 1) && n++ < 8);
}

/* more QP NUMBER: packets of the message that has begun */
static void op_more(const uint8_t *a)
{
	int i = a[0] % W_QPS, n;

	for (n = 0; n <= a[1] % 8 && w.left[i]; n++)
		send_packet(i, a[2], a[3]);
}

/* answer QP RESULT STATUS WHY PSN LENGTH: to the oldest request of the QP */
static void op_answer(const uint8_t *a)
{
	static const uint8_t results[] = { FRAME_DONE, FRAME_DONE, FRAME_RNR, FRAME_NOT_READY };
	int i = a[0] % W_QPS;
	struct frame request = {
		.from = w.qp[i]->qp_num, .to = PEER_QPN + i, .psn = WORLD_PSN,
	}, frame;

	w.dirty |= 1 << i;
	frames_collect();
	if (w.npending[i]) {
		request = w.pending[i][0];
		w.npending[i]--;
		memmove(w.pending[i], w.pending[i] + 1, w.npending[i] * sizeof(request));
	}
	frame = (struct frame){
		.type = FRAME_ANSWER, .to = request.from, .from = request.to,
		.psn = (request.psn + (int8_t)a[4]) & 0xffffff, .gen = request.gen,
		.answer = { .result = results[a[1] % 4], .status = a[2], .why = a[3],
			    .rnr = a[3], .word = a[5], .chunks = 3 },
	};
	if (request.request.opcode == IBV_WR_RDMA_READ && request.request.bytes > FRAME_DATA &&
	    !next_chunk)
		next_chunk = 1;
	send_frame(&frame, (request.request.opcode == IBV_WR_RDMA_READ && !a[2] ?
			    request.request.bytes : 0) + a[5]);
}

/* datagram QP FLAGS OPCODE LENGTH QKEY NUMBER */
static void op_datagram(const uint8_t *a)
{
	int i = a[0] ? a[0] % W_QPS : W_UD, n;
	struct frame frame = {
		.type = FRAME_DATAGRAM, .flags = a[1] & 0xc, .to = w.qp[i]->qp_num,
		.from = PEER_QPN + i, .psn = w.psn[i]++ & 0xffffff, .gen = w.gen[i],
		.datagram = {
			.opcode = a[2] & 1 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
			.tclass = a[2], .hop_limit = a[3], .imm = a[4], .flow_label = a[3],
			.qkey = QP_QKEY + a[4],
		},
	};

	w.dirty |= 1 << i;
	for (n = 0; n <= a[5] % 80; n++)
		send_frame(&frame, lengths[a[3] % 7] % (FRAME_DATA + 1));
}

/* control TYPE CREDITS, or 3: where the chunks of the stranger are */
static void op_control(const uint8_t *a)
{
	struct frame frame = { .type = FRAME_CREDIT + a[0] % 3 };

	if (a[0] % 4 == 3) {
		stranger_tell_chunks(w.s);
		return;
	}

	w.s->owed += a[1];
	send_frame(&frame, 0);
}

/* chunk NUMBER HOW: the next packet is long, and in a chunk */
static void op_chunk(const uint8_t *a)
{
	next_chunk = 1 + a[0] % (FRAME_CHUNKS_N + 1);
	next_written = !(a[1] & 1);
}

/* spoil AT HOW VALUE...: a member of the next frame is wrong */
static void op_spoil(const uint8_t *a)
{
	if (nfaults == sizeof(faults) / sizeof(*faults))
		return;
	faults[nfaults].at = a[0];
	faults[nfaults].how = a[1];
	memcpy(&faults[nfaults].value, &a[2], sizeof(uint32_t));
	nfaults++;
}

#define MEMBER(_m)	{ offsetof(struct frame, _m), sizeof(((struct frame *)0)->_m) }

static const struct {
	uint8_t at, width;
} members[] = {
	MEMBER(type), MEMBER(flags), MEMBER(credits), MEMBER(len), MEMBER(to), MEMBER(from),
	MEMBER(psn), MEMBER(srqn), MEMBER(gen), MEMBER(chunk), MEMBER(freed),
	MEMBER(request.opcode),
	MEMBER(request.transport), MEMBER(request.kind), MEMBER(request.imm),
	MEMBER(request.rkey), MEMBER(request.bytes), MEMBER(request.addr),
	MEMBER(request.left), MEMBER(request.a), MEMBER(answer.result),
	MEMBER(answer.status), MEMBER(answer.chunks), MEMBER(answer.why),
	MEMBER(datagram.qkey), MEMBER(chunks.addr), MEMBER(chunks.rkey), MEMBER(cookie),
	MEMBER(reserved), MEMBER(datagram.opcode), MEMBER(datagram.reserved),
};

/* member NUMBER HOW VALUE...: the same, for a whole member */
static void op_member(const uint8_t *a)
{
	size_t i = a[0] % (sizeof(members) / sizeof(*members));
	uint8_t spoil[] = {
		members[i].at / members[i].width,
		(a[1] & 0xf0) | __builtin_ctz(members[i].width), a[2], a[3], a[4], a[5],
	};

	op_spoil(spoil);
}

/* length N UNITS: the next message is longer, or shorter */
static void op_length(const uint8_t *a)
{
	more_bytes = (int8_t)a[0] * (a[1] & 1 ? 64 : 1);
}

/* replay AGE: a frame of before comes again */
static void op_replay(const uint8_t *a)
{
	unsigned int age = a[0] % KEPT + 1;

	if (age <= w.nkept)
		send_kept(&w.kept[(w.nkept - age) % KEPT]);
}

/* flood NUMBER: the last frame comes again and again */
static void op_flood(const uint8_t *a)
{
	int n;

	for (n = 0; w.nkept && w.s->up && n < a[0]; n++) {
		send_kept(&w.kept[(w.nkept - 1) % KEPT]);
		frames_collect();
	}
}

/* wait N: 0.1 ms each */
static void op_wait(const uint8_t *a)
{
	batch_send();
	usleep(a[0] % 64 * 100);
	frames_collect();
}

/* Send from another connection, which is a rival of the one before. */
static void op_rival(const uint8_t *a)
{
	w.s = w.s == &w.one ? &w.other : &w.one;
	if (stranger_ended(w.s, 0) || a[0] & 1)
		stranger_connect(w.s);
}

/* drop HOW: the connection ends without a word, with DREQ, or with an invalid frame */
static void op_drop(const uint8_t *a)
{
	if (w.s->up && a[0] % 3 == 1)
		stranger_cm(w.s, CM_DREQ);
	else if (w.s->up && a[0] % 3 == 2)
		stranger_send_raw(w.s, data, FRAME_HEAD);
	stranger_drop(w.s);
	stranger_connect(w.s);
}

/* hello AT VALUE VALUE: connect with another hello */
static void op_hello(const uint8_t *a)
{
	uint16_t value = a[1] | a[2] << 8;

	stranger_prepare(w.s);
	memcpy((char *)&w.s->req.hello + a[0] % 8 * 2, &value, sizeof(value));
	stranger_ask(w.s, 50);
}

/* req AT VALUE: connect with another byte of the REQ */
static void op_req(const uint8_t *a)
{
	stranger_prepare(w.s);
	((uint8_t *)&w.s->req)[24 + a[0] % (MAD_BYTES - 24)] ^= a[1];
	stranger_ask(w.s, 50);
}

/* cm TYPE: a message of ib_cm that says something else */
static void op_cm(const uint8_t *a)
{
	static const uint16_t types[] = { CM_RTU, CM_DREQ, CM_REJ, CM_REP };

	if (w.s->qp)
		stranger_cm(w.s, types[a[0] % 4]);
}

const struct op frame_ops[] = {
	{ "request", op_request, 20 },
	{ "more", op_more, 8 },
	{ "answer", op_answer, 14 },
	{ "datagram", op_datagram, 8 },
	{ "control", op_control, 4 },
	{ "chunk", op_chunk, 8 },
	{ "spoil", op_spoil, 5 },
	{ "member", op_member, 10 },
	{ "length", op_length, 1 },
	{ "replay", op_replay, 5 },
	{ "flood", op_flood, 2 },
	{ "wait", op_wait, 8 },
	{ "rival", op_rival, 1 },
	{ "drop", op_drop, 1 },
	{ "hello", op_hello, 1 },
	{ "req", op_req, 1 },
	{ "cm", op_cm, 2 },
};

const int frame_ops_count = sizeof(frame_ops) / sizeof(*frame_ops);
