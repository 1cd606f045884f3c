// SPDX-License-Identifier: GPL-2.0
/*
 * Messages over a link, and their verification. See link.h.
 *
 * Every message has a seed, which determines all its bytes.
 */
#include <arpa/inet.h>
#include <stdarg.h>
#include <sys/mman.h>

#include "link.h"
#include "t.h"

#define GRH		40
#define HEADER		12	/* seed, length, slot */
#define INLINE_MAX	256
#define LOST_NS		2000000000ULL
/* wr_id: a slot, or one of these values */
#define WR_RECV		0x100
#define WR_BIND		0x200
#define WR_STALE	0x300

bool link_can(enum link_type type, enum link_op op)
{
	switch (op) {
	case LINK_SEND:
	case LINK_SEND_IMM:
	case LINK_INLINE:
		return true;
	case LINK_WRITE:
	case LINK_WRITE_IMM:
		return type != LINK_UD;
	case LINK_INVALIDATE:
		return type == LINK_RC;
	default:
		return type == LINK_RC || type == LINK_XRC;
	}
}

void link_mismatch(struct link_end *e, const char *fmt, ...)
{
	char text[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (atomic_fetch_add(&e->stats->mismatches, 1) < 20)
		t_note("MISMATCH: %s link, %s memory: %s",
		       link_types[e->type], link_mems[e->mem], text);
}

static uint32_t pattern(uint32_t seed, uint32_t len, uint32_t slot, uint32_t i)
{
	switch (i) {
	case 0:
		return seed;
	case 1:
		return len;
	case 2:
		return slot;
	default:
		return (seed ^ i * 0x9e3779b9) * 0x85ebca6b;
	}
}

static void fill(unsigned char *p, uint32_t seed, uint32_t len, uint32_t slot)
{
	uint32_t i, word;

	for (i = 0; i < len; i += 4) {
		word = pattern(seed, len, slot, i / 4);
		memcpy(p + i, &word, len - i < 4 ? len - i : 4);
	}
}

/* Check that the bytes are those of the message with this seed. */
static bool verify(struct link_end *e, const char *what,
		   const unsigned char *p, uint32_t seed, uint32_t len,
		   uint32_t slot)
{
	uint32_t i, word;

	for (i = 0; i < len; i += 4) {
		word = pattern(seed, len, slot, i / 4);
		if (!memcmp(p + i, &word, len - i < 4 ? len - i : 4))
			continue;
		memcpy(&word, p + i, len - i < 4 ? len - i : 4);
		link_mismatch(e, "%s of %u bytes, seed %08x slot %u: got %08x at %u, want %08x",
			      what, len, seed, slot, word, i,
			      pattern(seed, len, slot, i / 4));
		return false;
	}
	return true;
}

static void count(struct link_end *e, enum link_op op, uint32_t len)
{
	e->stats->done[e->type][op]++;
	e->stats->mem[e->mem]++;
	e->stats->messages++;
	e->stats->bytes += len;
}

/* Drop pages of on-demand memory while they hold no message. */
static void forget(struct link_end *e, uint32_t offset)
{
	if (e->mem == LINK_ODP && t_random(&e->random) % 4 == 0)
		SYS(madvise(e->base + offset, LINK_MSG, MADV_DONTNEED));
}

void link_recv(struct link_end *e, int slot)
{
	uint32_t offset = LINK_RX + slot * LINK_MSG;
	uint32_t first = 1 + t_random(&e->random) % (LINK_MSG - 1);
	uint64_t addr = e->key_base + offset;
	struct ibv_sge sge[] = {
		{ .addr = addr, .length = first, .lkey = e->mr->lkey },
		{ .addr = addr + first, .length = LINK_MSG - first,
		  .lkey = e->mr->lkey },
	};
	struct ibv_recv_wr *bad, wr = {
		.wr_id = WR_RECV + slot, .sg_list = sge, .num_sge = 2,
	};

	forget(e, offset);
	if (e->srq)
		CHECK_OK(ibv_post_srq_recv(e->srq, &wr, &bad));
	else
		CHECK_OK(ibv_post_recv(e->qp, &wr, &bad));
}

void link_open_traffic(struct link_end *e)
{
	memset(e->slots, 0, sizeof(e->slots));
	e->word = 0;
	e->atomic_busy = false;
	e->mw_bound = 0;
}

static void bind_window(struct link_end *e)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = WR_BIND, .opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = e->mw, .rkey = ibv_inc_rkey(e->mw->rkey),
			.bind_info = {
				.mr = e->mr, .addr = e->key_base + LINK_WINDOW,
				.length = LINK_SLOTS * LINK_MSG,
				.mw_access_flags = IBV_ACCESS_REMOTE_WRITE |
						   IBV_ACCESS_REMOTE_READ,
			},
		},
	};

	e->mw_bound = wr.bind_mw.rkey;
	CHECK_OK(ibv_post_send(e->qp, &wr, &bad));
	e->mw->rkey = e->mw_bound;
}

/* A message in the window, announced by immediate data. */
static void got_write(struct link_end *e, uint32_t imm)
{
	uint32_t slot = imm % LINK_SLOTS, head[3];
	uint32_t offset = LINK_WINDOW + slot * LINK_MSG;
	unsigned char *p = e->base + offset;

	memcpy(head, p, sizeof(head));
	if ((head[0] & 0xffffff) != imm >> 8 || head[1] > LINK_MSG ||
	    head[2] != slot) {
		link_mismatch(e, "write_imm: got %08x %u %u in the window, want seed %06x slot %u",
			      head[0], head[1], head[2], imm >> 8, slot);
		return;
	}
	if (verify(e, "write_imm", p, head[0], head[1], slot))
		count(e, LINK_WRITE_IMM, head[1]);
	forget(e, offset);
	atomic_store(&e->me->acked[slot], head[0]);
}

static void got_message(struct link_end *e, const struct ibv_wc *wc, int slot)
{
	uint32_t grh = e->type == LINK_UD ? GRH : 0, head[3];
	uint32_t len = wc->byte_len - grh;
	unsigned char *p = e->base + LINK_RX + slot * LINK_MSG + grh;
	enum link_op op = LINK_SEND;

	memcpy(head, p, sizeof(head));
	if (wc->byte_len < grh + HEADER || head[1] != len ||
	    head[2] >= LINK_SLOTS) {
		link_mismatch(e, "send: got %u bytes that say %08x %u %u",
			      len, head[0], head[1], head[2]);
		return;
	}
	if (wc->wc_flags & IBV_WC_WITH_IMM) {
		op = LINK_SEND_IMM;
		if (ntohl(wc->imm_data) != head[0])
			link_mismatch(e, "immediate: got %08x, want %08x",
				      ntohl(wc->imm_data), head[0]);
	}
	if (wc->wc_flags & IBV_WC_WITH_INV) {
		op = LINK_INVALIDATE;
		if (wc->invalidated_rkey != e->mw_bound)
			link_mismatch(e, "invalidated: got %08x, want %08x",
				      wc->invalidated_rkey, e->mw_bound);
		e->mw_bound = 0;
	}
	if (verify(e, "send", p, head[0], len, head[2]))
		count(e, op, len);
	atomic_store(&e->me->acked[head[2]], head[0]);
}

/* Return true if the slot stays busy until the peer has seen the message. */
static bool wants_ack(const struct link_end *e, const struct link_slot *s)
{
	if (e->type == LINK_UC || e->type == LINK_UD)
		return true;
	return s->op == LINK_WRITE_IMM;
}

static void sent(struct link_end *e, int slot)
{
	struct link_slot *s = &e->slots[slot];
	unsigned char *back = e->base + LINK_BACK + slot * LINK_MSG;
	uint64_t got;

	s->completed = true;
	if (!wants_ack(e, s))
		s->busy = false;
	switch (s->op) {
	case LINK_WRITE:
		if (e->type != LINK_UC &&
		    verify(e, "read", back, s->seed, s->len, slot))
			count(e, s->op, 2 * s->len);
		break;
	case LINK_FETCH_ADD:
	case LINK_CMP_SWAP:
		memcpy(&got, back, sizeof(got));
		if (got != e->word)
			link_mismatch(e, "%s: got %016llx, want %016llx",
				      link_ops[s->op], (unsigned long long)got,
				      (unsigned long long)e->word);
		else
			count(e, s->op, sizeof(got));
		e->word = s->op == LINK_FETCH_ADD ? e->word + s->seed :
			  (uint64_t)s->seed << 32 | s->len;
		e->atomic_busy = false;
		break;
	case LINK_INVALIDATE:
		verify(e, "read through a window", back, s->seed, s->len, slot);
		break;
	case LINK_INLINE:
		/*
		 * The peer counts the message as a send: it cannot see the
		 * difference.
		 */
		e->stats->done[e->type][s->op]++;
		break;
	default:
		break;
	}
}

static void done(struct link_end *e, const struct ibv_wc *wc)
{
	int slot = wc->wr_id & 0xff;

	if (wc->wr_id == WR_STALE) {
		if (wc->status == IBV_WC_SUCCESS)
			link_mismatch(e, "a key that was deregistered worked");
		return;
	}
	if (wc->status != IBV_WC_SUCCESS) {
		e->stats->errors++;
		if (!e->broken) {
			e->broken = link_now();
			e->status = wc->status;
		}
		return;
	}
	/* Ignore messages that were in-flight when this end harmed itself. */
	if (e->state == LINK_HURT)
		return;
	if (wc->wr_id == WR_BIND) {
		atomic_store(&e->me->mw_rkey, e->mw_bound);
		return;
	}
	if (!(wc->wr_id & WR_RECV)) {
		sent(e, slot);
		return;
	}
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		got_write(e, ntohl(wc->imm_data));
	else
		got_message(e, wc, slot);
	if (!e->broken)
		link_recv(e, slot);
}

bool link_poll(struct link_end *e)
{
	struct ibv_wc wc[8];
	int i, n = ibv_poll_cq(e->cq, 8, wc);

	if (n < 0)
		FAIL("ibv_poll_cq: got %d on a %s link", n,
		     link_types[e->type]);
	for (i = 0; i < n; i++)
		done(e, &wc[i]);
	return n;
}

/* Free slots whose message the peer has seen, or UC and UD may have lost. */
static void collect(struct link_end *e)
{
	struct link_slot *s;
	int i;

	for (i = 0; i < LINK_SLOTS; i++) {
		s = &e->slots[i];
		if (!s->busy || !s->completed)
			continue;
		if (atomic_load(&e->peer->acked[i]) == s->seed) {
			if (e->type == LINK_UC && s->op == LINK_WRITE)
				count(e, s->op, s->len);
			s->busy = false;
		} else if (link_now() - s->since > LOST_NS &&
			   (e->type == LINK_UD || e->type == LINK_UC)) {
			/* A late write must not overwrite the next message. */
			if (s->op == LINK_WRITE || s->op == LINK_WRITE_IMM)
				continue;
			e->stats->lost++;
			s->busy = false;
		}
	}
}

/* Split a message into up to three SGEs. */
static int pieces(struct link_end *e, struct ibv_sge *sge, uint64_t addr,
		  uint32_t len)
{
	int i, n = 1 + t_random(&e->random) % 3;
	uint32_t part;

	for (i = 0; i < n; i++) {
		part = i == n - 1 ? len : t_random(&e->random) % (len + 1);
		sge[i].addr = addr;
		sge[i].length = part;
		sge[i].lkey = e->mr->lkey;
		addr += part;
		len -= part;
	}
	/* Leave out SGEs of length 0, which some NICs take for 2^31 bytes. */
	for (i = 0, part = 0; i < n; i++)
		if (sge[i].length)
			sge[part++] = sge[i];
	return part;
}

static void address(struct link_end *e, struct ibv_send_wr *wr)
{
	if (e->type == LINK_UD) {
		wr->wr.ud.ah = e->ah;
		wr->wr.ud.remote_qpn = e->qpn;
		wr->wr.ud.remote_qkey = 0x4711;
	}
	if (e->type == LINK_XRC)
		wr->qp_type.xrc.remote_srqn = e->srqn;
}

static void rdma(struct ibv_send_wr *wr, enum ibv_wr_opcode opcode,
		 uint64_t addr, uint32_t rkey)
{
	wr->opcode = opcode;
	wr->wr.rdma.remote_addr = addr;
	wr->wr.rdma.rkey = rkey;
}

static void atomic_op(struct link_end *e, struct ibv_send_wr *wr,
		      const struct link_slot *s)
{
	wr->wr.atomic.remote_addr = e->addr + LINK_WORD;
	wr->wr.atomic.rkey = e->rkey;
	wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr->wr.atomic.compare_add = s->seed;
	if (s->op == LINK_CMP_SWAP) {
		wr->opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
		wr->wr.atomic.compare_add = e->word;
		wr->wr.atomic.swap = (uint64_t)s->seed << 32 | s->len;
	}
	wr->sg_list->length = 8;
	wr->num_sge = 1;
	e->atomic_busy = true;
}

/*
 * Build the work requests of one message in the zeroed @wr and @sge; return how
 * many there are.
 */
static int build(struct link_end *e, int slot, struct ibv_send_wr *wr,
		 struct ibv_sge (*sge)[3])
{
	struct link_slot *s = &e->slots[slot];
	uint64_t window = e->addr + LINK_WINDOW + slot * LINK_MSG;
	uint32_t rkey = e->rkey, imm = htonl(s->seed << 8 | slot);
	uint64_t back = e->key_base + LINK_BACK + slot * LINK_MSG;

	wr[0].sg_list = sge[0];
	wr[0].num_sge = pieces(e, sge[0], e->key_base + LINK_TX +
			       slot * LINK_MSG, s->len);
	wr[0].opcode = IBV_WR_SEND;
	switch (s->op) {
	case LINK_SEND_IMM:
		wr[0].opcode = IBV_WR_SEND_WITH_IMM;
		wr[0].imm_data = htonl(s->seed);
		return 1;
	case LINK_INLINE:
		wr[0].send_flags = IBV_SEND_INLINE;
		sge[0][0].addr = (uintptr_t)e->base + LINK_TX + slot * LINK_MSG;
		sge[0][0].length = s->len;
		wr[0].num_sge = 1;
		return 1;
	case LINK_WRITE_IMM:
		rdma(wr, IBV_WR_RDMA_WRITE_WITH_IMM, window, rkey);
		wr[0].imm_data = imm;
		return 1;
	case LINK_FETCH_ADD:
	case LINK_CMP_SWAP:
		sge[0][0] = (struct ibv_sge){ .addr = back,
					      .lkey = e->mr->lkey };
		atomic_op(e, wr, s);
		return 1;
	case LINK_INVALIDATE:
		rkey = atomic_exchange(&e->peer->mw_rkey, 0);
		wr[2].sg_list = sge[2];
		wr[2].num_sge = pieces(e, sge[2], sge[0][0].addr, s->len);
		wr[2].opcode = IBV_WR_SEND_WITH_INV;
		wr[2].invalidate_rkey = rkey;
		break;
	case LINK_WRITE:
		break;
	default:
		return 1;
	}
	rdma(&wr[0], IBV_WR_RDMA_WRITE, window, rkey);
	if (e->type == LINK_UC) {
		/* UC cannot read the bytes back: the peer verifies them. */
		rdma(&wr[1], IBV_WR_RDMA_WRITE_WITH_IMM, window, rkey);
		wr[1].imm_data = imm;
		return 2;
	}
	rdma(&wr[1], IBV_WR_RDMA_READ, window, rkey);
	wr[1].sg_list = sge[1];
	wr[1].num_sge = pieces(e, sge[1], back, s->len);
	return s->op == LINK_INVALIDATE ? 3 : 2;
}

static void post(struct link_end *e, int slot)
{
	struct ibv_sge sge[3][3] = {};
	struct ibv_send_wr wr[3] = {}, *bad;
	int i, n = build(e, slot, wr, sge);

	for (i = 0; i < n; i++) {
		wr[i].wr_id = slot;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		address(e, &wr[i]);
	}
	wr[n - 1].send_flags |= IBV_SEND_SIGNALED;
	CHECK_OK(ibv_post_send(e->qp, wr, &bad));
}

static bool choose(struct link_end *e, struct link_slot *s)
{
	uint32_t max = LINK_MSG;

	s->op = t_random(&e->random) % LINK_OPS;
	if (!link_can(e->type, s->op))
		return false;
	if ((s->op == LINK_FETCH_ADD || s->op == LINK_CMP_SWAP) &&
	    e->atomic_busy)
		return false;
	if (s->op == LINK_INVALIDATE && !atomic_load(&e->peer->mw_rkey))
		return false;
	if (s->op == LINK_INLINE)
		max = INLINE_MAX;
	else if (e->type == LINK_UD)
		max = 4096;
	if (t_random(&e->random) % 2)
		max = max < 512 ? max : 512;
	s->len = HEADER + t_random(&e->random) % (max - HEADER + 1);
	/* An unused slot has seed 0. */
	s->seed = (uint32_t)t_random(&e->random) | 1;
	return true;
}

bool link_send(struct link_end *e)
{
	struct link_slot *s;
	int slot;

	if (e->mw && !e->mw_bound)
		bind_window(e);
	collect(e);
	slot = t_random(&e->random) % LINK_SLOTS;
	s = &e->slots[slot];
	if (s->busy || !choose(e, s))
		return false;
	s->busy = true;
	s->completed = false;
	s->since = link_now();
	forget(e, LINK_TX + slot * LINK_MSG);
	fill(e->base + LINK_TX + slot * LINK_MSG, s->seed, s->len, slot);
	post(e, slot);
	return true;
}

void link_send_stale(struct link_end *e)
{
	uint64_t addr = e->key_base + LINK_TX;
	struct ibv_sge sge = { .addr = addr, .length = 64,
			       .lkey = e->me->rkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = WR_STALE, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
	};

	address(e, &wr);
	CHECK_OK(ibv_post_send(e->qp, &wr, &bad));
}
