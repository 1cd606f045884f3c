// SPDX-License-Identifier: GPL-2.0
/*
 * Requests of a host that is not keel: with one member wrong at a time, and what this does.
 */
#include "t.h"
#include "wrong.h"

void t_end(void)
{
	stranger_net_down();
	hosts_down();
}

static void check_requests(const struct wrong *cases, int n, struct frame (*base)(void))
{
	struct frame frame;
	uint32_t len;
	bool written, wanted;
	int i;

	for (i = 0; i < n; i++) {
		wrong_reset();
		wrong_link();
		frame = base();
		len = frame.request.opcode == IBV_WR_RDMA_WRITE ||
		      frame.request.opcode == IBV_WR_SEND ? frame.request.left : 0;
		wrong_send(&frame, len, &cases[i]);
		wrong_effect(&cases[i], &frame);
		written = !memcmp(wrong_victim.mem, wrong_data, BYTES);
		wanted = cases[i].effect == SUCCESS;
		if (frame.request.opcode == IBV_WR_RDMA_WRITE && written != wanted)
			FAIL("%s: %swritten", cases[i].what, written ? "" : "not ");
		if (written)
			CHECK_ALL(wrong_victim.mem + BYTES, 0, FRAME_DATA);
	}
}

#define CHECK_REQUESTS(_cases, _base)	\
	check_requests(_cases, sizeof(_cases) / sizeof(*(_cases)), _base)

/* Members of all frames; the base is a request. */
#define WRONG_HEADERS							\
	{ "type 0", MEMBER(type), 0, ENDS },				\
	{ "type 10", MEMBER(type), FRAME_TYPES, ENDS },			\
	{ "type 255", MEMBER(type), 255, ENDS },			\
	{ "answer with members of a request", MEMBER(type), FRAME_ANSWER, ENDS }, \
	{ "credit with members of a request", MEMBER(type), FRAME_CREDIT, ENDS }, \
	{ "an unknown flag", MEMBER(flags), 0xb, ENDS },		\
	{ "more credits than there can be", MEMBER(credits), 0xffff, ENDS }, \
	{ "one byte less than there are", MEMBER(len), BYTES - 1, ENDS }, \
	{ "one byte more than there are", MEMBER(len), BYTES + 1, ENDS }, \
	{ "2^32 - 1 bytes", MEMBER(len), UINT32_MAX, ENDS },		\
	{ "to more than 24 bits", BYTE(to, 3), 1, ENDS },		\
	{ "from more than 24 bits", BYTE(from, 3), 1, ENDS },		\
	{ "psn of more than 24 bits", BYTE(psn, 3), 1, ENDS },		\
	{ "an SRQ", MEMBER(srqn), 1, ENDS },				\
	{ "no cookie", MEMBER(cookie), 0, DROPPED },			\
	{ "to nobody", MEMBER(to), FRAME_MAX, NOT_READY },		\
	{ "from another QP", MEMBER(from), PEER + 1, NOT_READY },	\
	{ "transport 3", MEMBER(request.transport), 3, ENDS },		\
	{ "transport XRC", MEMBER(request.transport), FRAME_XRC, NOT_READY }

static const struct wrong write_cases[] = {
	WRONG_HEADERS,
	{ "nothing", MEMBER(type), FRAME_REQUEST, SUCCESS },
	{ "some credits", MEMBER(credits), 3, SUCCESS },
	{ "transport UC", MEMBER(request.transport), FRAME_UC, NOT_READY },
	{ "not the first packet", MEMBER(flags), FRAME_LAST, REFUSED, IBV_WC_REM_INV_REQ_ERR },
	{ "not the last packet", MEMBER(flags), FRAME_FIRST, REFUSED, IBV_WC_REM_INV_REQ_ERR },
	{ "solicited", MEMBER(flags), 7, SUCCESS },
	{ "the next psn", MEMBER(psn), PSN + 1, DROPPED },
	{ "the psn before", MEMBER(psn), PSN - 1, DROPPED },
	{ "any gen", MEMBER(gen), UINT64_MAX, SUCCESS },
	{ "opcode 255", MEMBER(request.opcode), 255, REFUSED, IBV_WC_REM_INV_REQ_ERR },
	{ "a local opcode", MEMBER(request.opcode), IBV_WR_BIND_MW, REFUSED,
	  IBV_WC_REM_INV_REQ_ERR },
	{ "kind", MEMBER(request.kind), 0xffff, SUCCESS },
	{ "imm", MEMBER(request.imm), 0xffffffff, SUCCESS },
	{ "a", MEMBER(request.a), UINT64_MAX, SUCCESS },
	{ "b", MEMBER(request.b), UINT64_MAX, SUCCESS },
	{ "bytes", MEMBER(request.bytes), 1, REFUSED, IBV_WC_REM_INV_REQ_ERR },
	{ "too many bytes", MEMBER(request.bytes), FRAME_CHUNK + 1, ENDS },
	{ "an rkey that is no key", MEMBER(request.rkey), 0xffffffff, REFUSED,
	  IBV_WC_REM_ACCESS_ERR },
	{ "an address of no region", MEMBER(request.addr), UINT64_MAX - 4, REFUSED,
	  IBV_WC_REM_ACCESS_ERR },
	{ "address 0", MEMBER(request.addr), 0, REFUSED, IBV_WC_REM_ACCESS_ERR },
	{ "more left than there is", MEMBER(request.left), BYTES + 1, REFUSED,
	  IBV_WC_REM_INV_REQ_ERR },
	{ "nothing left", MEMBER(request.left), 0, REFUSED, IBV_WC_REM_INV_REQ_ERR },
	{ "2^64 - 1 bytes left", MEMBER(request.left), UINT64_MAX, REFUSED,
	  IBV_WC_REM_INV_REQ_ERR },
};

static struct frame rc_write(void)
{
	return wrong_request(IBV_WR_RDMA_WRITE, FRAME_RC);
}

TEST_SLOW(write, "HOST-3", "an RDMA write with each member wrong ends the link, fails its QP, or does nothing", 120)
{
	wrong_begin(end_new);
	CHECK_REQUESTS(write_cases, rc_write);
	wrong_end();
}

static const struct wrong uc_cases[] = {
	WRONG_HEADERS,
	{ "nothing", MEMBER(type), FRAME_REQUEST, SUCCESS },
	{ "transport RC", MEMBER(request.transport), FRAME_RC, NOT_READY },
	{ "not the first packet", MEMBER(flags), FRAME_LAST, STATUS, IBV_WC_REM_INV_REQ_ERR },
	{ "not the last packet", MEMBER(flags), FRAME_FIRST, STATUS, IBV_WC_REM_INV_REQ_ERR },
	{ "another psn", MEMBER(psn), PSN + 9, SUCCESS },
	{ "opcode 255", MEMBER(request.opcode), 255, STATUS, IBV_WC_REM_INV_REQ_ERR },
	{ "an RDMA read", MEMBER(request.opcode), IBV_WR_RDMA_READ, STATUS,
	  IBV_WC_REM_INV_REQ_ERR },
	{ "bytes", MEMBER(request.bytes), 1, STATUS, IBV_WC_REM_INV_REQ_ERR },
	{ "more left than there is", MEMBER(request.left), BYTES + 1, STATUS,
	  IBV_WC_REM_INV_REQ_ERR },
};

static struct frame uc_write(void)
{
	return wrong_request(IBV_WR_RDMA_WRITE, FRAME_UC);
}

TEST_SLOW(uc, "HOST-3", "a packet of UC with each member wrong ends the link, or is dropped", 120)
{
	wrong_begin(end_new_uc);
	CHECK_REQUESTS(uc_cases, uc_write);
	wrong_end();
}

static const struct wrong send_cases[] = {
	{ "no receive WQE", MEMBER(type), FRAME_REQUEST, RNR },
	{ "a key to invalidate, but no receive WQE", MEMBER(request.opcode), IBV_WR_SEND_WITH_INV,
	  RNR },
	{ "2 GiB", MEMBER(request.left), 1ULL << 31, REFUSED, IBV_WC_REM_INV_REQ_ERR },
};

static struct frame rc_send(void)
{
	return wrong_request(IBV_WR_SEND, FRAME_RC);
}

TEST_SLOW(send, "HOST-3", "a send without a receive WQE waits, and with wrong lengths fails its QP", 60)
{
	wrong_begin(end_new);
	CHECK_REQUESTS(send_cases, rc_send);
	wrong_end();
}

static const struct wrong read_cases[] = {
	{ "nothing", MEMBER(type), FRAME_REQUEST, SUCCESS },
	{ "fewer bytes than left", MEMBER(request.left), BYTES + 1, REFUSED,
	  IBV_WC_REM_INV_REQ_ERR },
	{ "no bytes", MEMBER(request.bytes), 0, REFUSED, IBV_WC_REM_INV_REQ_ERR },
	{ "too many bytes", MEMBER(request.bytes), FRAME_CHUNK + 1, ENDS },
	{ "not the last packet, which is short", MEMBER(flags), FRAME_FIRST, REFUSED,
	  IBV_WC_REM_INV_REQ_ERR },
	{ "an rkey that is no key", MEMBER(request.rkey), 0, REFUSED, IBV_WC_REM_ACCESS_ERR },
	{ "an address of no region", MEMBER(request.addr), 0, REFUSED, IBV_WC_REM_ACCESS_ERR },
};

static struct frame rc_read(void)
{
	struct frame frame = wrong_request(IBV_WR_RDMA_READ, FRAME_RC);

	frame.request.bytes = BYTES;
	return frame;
}

TEST_SLOW(read, "HOST-3", "an RDMA read with each member wrong ends the link, or fails its QP", 60)
{
	wrong_begin(end_new);
	CHECK_REQUESTS(read_cases, rc_read);
	wrong_end();
}

static const struct wrong atomic_cases[] = {
	{ "nothing", MEMBER(type), FRAME_REQUEST, SUCCESS },
	{ "not the first packet", MEMBER(flags), FRAME_LAST, REFUSED, IBV_WC_REM_INV_REQ_ERR },
	{ "not the last packet", MEMBER(flags), FRAME_FIRST, REFUSED, IBV_WC_REM_INV_REQ_ERR },
	{ "bytes", MEMBER(request.bytes), BYTES, REFUSED, IBV_WC_REM_INV_REQ_ERR },
	{ "an rkey that is no key", MEMBER(request.rkey), 0, REFUSED, IBV_WC_REM_ACCESS_ERR },
	{ "an address of no region", MEMBER(request.addr), 8, REFUSED, IBV_WC_REM_ACCESS_ERR },
	{ "an odd address", MEMBER(request.addr), 9, REFUSED, IBV_WC_REM_INV_REQ_ERR },
};

static struct frame rc_atomic(void)
{
	return wrong_request(IBV_WR_ATOMIC_FETCH_AND_ADD, FRAME_RC);
}

TEST_SLOW(atomic, "HOST-3", "an atomic operation with each member wrong fails its QP", 60)
{
	wrong_begin(end_new);
	CHECK_REQUESTS(atomic_cases, rc_atomic);
	wrong_end();
}
