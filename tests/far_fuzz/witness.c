// SPDX-License-Identifier: GPL-2.0
/*
 * The witness: a member of a group on the victim's host. Of what the forger sends, it may get
 * only datagrams that an honest host could have sent, each once, with the data that was sent.
 */
#include <netinet/ip.h>

#include "groups.h"
#include "qp.h"
#include "t.h"
#include "world.h"

/* struct keel_frame and all data are in one packet. */
#define MOST		4096
/* Datagrams of a batch that differ. */
#define MAX_SENT	8192

static struct end witness;

/* Datagrams that were sent, and not received. */
static struct sent {
	uint32_t from, len, imm;
	uint8_t opcode;
	unsigned int n;
} sent[MAX_SENT];
static unsigned int nsent;

void witness_open(void)
{
	unsigned int i;

	witness = end_new_ud(0);
	qp_ud_ready(witness.qp, QP_QKEY);
	for (i = 0; i < QP_WRS; i++)
		member_receive(&witness, i);
	group_join(&witness, &world_groups[W_FOUR]);
	nsent = 0;
}

void witness_close(void)
{
	group_leave(&witness, &world_groups[W_FOUR]);
	end_free(&witness);
}

/* May the witness get it? across-hosts.rst has the format. */
static bool is_honest(const struct frame *f, size_t n)
{
	struct frame want = {
		.type = FRAME_GROUP, .flags = f->flags & FRAME_SOLICITED,
		.credits = HELLO_VERSION, .len = n - FRAME_HEAD, .to = MULTICAST_QPN,
		.from = f->from & 0xffffff, .cookie = f->cookie,
		.datagram = {
			.opcode = f->datagram.opcode == IBV_WR_SEND ? IBV_WR_SEND :
				  IBV_WR_SEND_WITH_IMM,
			.tclass = f->datagram.tclass, .hop_limit = f->datagram.hop_limit,
			.imm = f->datagram.imm, .qkey = QP_QKEY,
			.flow_label = f->datagram.flow_label,
		},
	};

	return n <= MOST && !memcmp(f, &want, FRAME_HEAD);
}

static struct sent *find(const struct sent *like)
{
	unsigned int i;

	for (i = 0; i < nsent; i++)
		if (sent[i].from == like->from && sent[i].len == like->len &&
		    sent[i].imm == like->imm && sent[i].opcode == like->opcode)
			return &sent[i];
	return NULL;
}

void witness_sent(const void *bytes, size_t n)
{
	struct frame frame;
	struct sent s, *at;

	if (n < FRAME_HEAD)
		return;
	memcpy(&frame, bytes, FRAME_HEAD);
	if (!is_honest(&frame, n))
		return;
	s = (struct sent){
		.from = frame.from, .len = frame.len, .opcode = frame.datagram.opcode,
		.imm = frame.datagram.opcode == IBV_WR_SEND ? 0 : frame.datagram.imm,
	};
	at = find(&s);
	if (!at) {
		CHECK(nsent < MAX_SENT);
		at = &sent[nsent++];
		*at = s;
	}
	at->n++;
}

/* Has the forger sent it? Others are those of the victim, and those that came over a link. */
static bool is_forged(const char *grh)
{
	const struct ip *ip = (const void *)(grh + GRH - sizeof(*ip));

	return !memcmp(&ip->ip_dst, world_groups[W_FOUR].raw + 12, sizeof(ip->ip_dst)) &&
	       ip->ip_src.s_addr != htonl(VICTIM_IPV4);
}

static void check(const struct ibv_wc *wc)
{
	const char *grh = witness.mem + wc->wr_id * MEMBER_SLOT;
	bool imm = wc->wc_flags & IBV_WC_WITH_IMM;
	uint32_t len = wc->byte_len - GRH;
	struct sent *at = find(&(struct sent){
		.from = wc->src_qp, .len = len, .imm = imm ? wc->imm_data : 0,
		.opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
	});

	CHECK_EQ(wc->status, IBV_WC_SUCCESS);
	CHECK_ALL(grh + GRH + len, 0xee, 64);
	if (!is_forged(grh))
		return;
	if (!at || !at->n)
		FAIL("a datagram of %u bytes of QP 0x%x arrives, and was %s", len, wc->src_qp,
		     at ? "received before" : "never sent");
	at->n--;
	CHECK_ALL(grh + GRH, 0, len);
}

void witness_check(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(witness.cq, 1, &wc) > 0) {
		check(&wc);
		member_receive(&witness, wc.wr_id);
	}
}
