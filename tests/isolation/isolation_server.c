// SPDX-License-Identifier: GPL-2.0
/*
 * A server answers datagrams through one UD QP. The memory of one client's
 * request or answer cannot be faulted in. The server must still answer the
 * other clients.
 */
#include "iso.h"
#include "qp.h"
#include "stall.h"
#include "t.h"

#define CLIENTS		7
#define RECVS		32
#define REQUEST		100
#define ANSWER		200

static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));
/* Number of the server's QP. */
static uint32_t *server_qpn;

static void server_answer(struct iso_end *e, uint32_t qpn)
{
	e->peer.qpn = qpn;
	CHECK_OK(iso_send(e, ANSWER, e->mr));
}

/* Serve until the test kills this process. */
static void server(struct peer *parent)
{
	struct iso_end e;
	struct ibv_wc wc;
	int i;

	iso_open(&e, KEEL0, NULL, ISO_UD);
	e.mr = iso_mr(&e, page, 0);
	iso_connect(&e, &(struct iso_addr){});
	for (i = 0; i < RECVS; i++)
		iso_post_recv(&e, REQUEST, e.mr);
	*server_qpn = e.qp->qp_num;
	peer_tell(parent);
	for (;;) {
		wc = wc_get(e.cq);
		if (wc.wr_id != REQUEST || wc.status != IBV_WC_SUCCESS)
			continue;
		iso_post_recv(&e, REQUEST, e.mr);
		server_answer(&e, wc.src_qp);
	}
}

static void client_open(struct iso_end *e)
{
	iso_open(e, KEEL0, NULL, ISO_UD);
	e->mr = iso_mr(e, page, 0);
	iso_connect(e, &(struct iso_addr){ .qpn = *server_qpn });
}

static void client(struct peer *parent)
{
	struct iso_end e;
	struct ibv_wc wc;

	client_open(&e);
	iso_post_recv(&e, ANSWER, e.mr);
	peer_tell(parent);
	peer_wait(parent);
	CHECK_OK(iso_send(&e, REQUEST, e.mr));
	do
		wc = wc_get(e.cq);
	while (wc.wr_id != ANSWER);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.src_qp, *server_qpn);
	peer_tell(parent);
	peer_wait(parent);
}

/* A client whose answer cannot be stored. */
static void bad_receiver(struct peer *parent)
{
	struct iso_end e;

	client_open(&e);
	iso_post_recv(&e, ANSWER, iso_mr(&e, stall_memory(ISO_PAGE),
					 IBV_ACCESS_ON_DEMAND));
	stall_hold();
	peer_tell(parent);
	iso_send(&e, REQUEST, e.mr);
	pause();
}

/* A client whose request cannot be read. */
static void bad_sender(struct peer *parent)
{
	struct ibv_mr *mr;
	struct iso_end e;

	client_open(&e);
	mr = iso_mr(&e, stall_memory(ISO_PAGE), IBV_ACCESS_ON_DEMAND);
	stall_hold();
	peer_tell(parent);
	iso_send(&e, REQUEST, mr);
	pause();
}

static void check_served(void (*bad)(struct peer *parent))
{
	struct peer srv, c[CLIENTS];
	struct stall s;
	int i;

	server_qpn = peer_shared(sizeof(*server_qpn));
	peer_start(&srv, server);
	peer_wait(&srv);
	for (i = 0; i < CLIENTS; i++) {
		peer_start(&c[i], client);
		peer_wait(&c[i]);
	}
	stall_start(&s, bad);
	peer_wait(&s.peer);
	stall_settle(&s);
	for (i = 0; i < CLIENTS; i++)
		CHECK_STEP(&c[i], "the answer to another client");
	for (i = 0; i < CLIENTS; i++)
		CHECK_KILL(&c[i], "a client that was answered");
	CHECK_TERM(&srv, "the server");
	stall_end(&s);
	iso_check_empty(KEEL0);
}

TEST(stalled_answer, "ISO-1", "while an answer cannot be stored, a server with one UD QP answers seven other clients and obeys SIGTERM within 1 s")
{
	check_served(bad_receiver);
}

TEST(stalled_request, "ISO-1", "while a request cannot be read, a server with one UD QP answers seven other clients and obeys SIGTERM within 1 s")
{
	check_served(bad_sender);
}

static const union ibv_gid group = {
	.raw = { [10] = 0xff, 0xff, 224, 0, 2, 9 },
};

/* Join the group with a receive WQE of @mr. */
static void member_open(struct iso_end *e, struct ibv_mr *mr)
{
	CHECK_OK(ibv_attach_mcast(e->qp, &group, 0));
	iso_post_recv(e, ANSWER, mr);
}

static void bad_member(struct peer *parent)
{
	struct iso_end e;

	client_open(&e);
	member_open(&e, iso_mr(&e, stall_memory(ISO_PAGE),
			       IBV_ACCESS_ON_DEMAND));
	stall_hold();
	peer_tell(parent);
	pause();
}

static void member(struct peer *parent)
{
	struct iso_end e;

	client_open(&e);
	member_open(&e, e.mr);
	peer_tell(parent);
	CHECK_WC(e.cq, ANSWER, IBV_WC_SUCCESS);
	peer_tell(parent);
	peer_wait(parent);
}

static void multicaster(struct peer *parent)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1, .grh.dgid = group,
	};
	struct iso_end e;

	client_open(&e);
	e.ah = MUST(ibv_create_ah(e.pd, &attr));
	e.peer.qpn = 0xffffff;
	peer_wait(parent);
	CHECK_OK(iso_send(&e, REQUEST, e.mr));
	peer_tell(parent);
	peer_wait(parent);
}

TEST(multicast, "ISO-1", "while a group member cannot store a datagram, ibv_post_send() returns and other members get it within 1 s")
{
	struct peer first, last, from;
	struct stall s;

	server_qpn = peer_shared(sizeof(*server_qpn));
	peer_start(&from, multicaster);
	peer_start(&first, member);
	peer_wait(&first);
	stall_start(&s, bad_member);
	peer_wait(&s.peer);
	peer_start(&last, member);
	peer_wait(&last);
	CHECK_STEP(&from, "ibv_post_send()");
	CHECK_WITHIN(&first, "the datagram of a member that came first");
	CHECK_WITHIN(&last, "the datagram of a member that came last");
	CHECK_KILL(&from, "the sender");
	CHECK_KILL(&first, "a member");
	CHECK_KILL(&last, "another member");
	stall_end(&s);
	iso_check_empty(KEEL0);
}

TEST(own_death, "ISO-1,PD-3", "a killed process that holds its own mmap_lock exits within 1 s after its file system ends, and its peer can be killed")
{
	struct peer srv;
	struct stall s;

	server_qpn = peer_shared(sizeof(*server_qpn));
	peer_start(&srv, server);
	peer_wait(&srv);
	stall_start(&s, bad_sender);
	peer_wait(&s.peer);
	stall_settle(&s);
	SYS(kill(s.peer.pid, SIGKILL));
	/* The process may wait for its own file system. */
	stall_gone(&s, 100);
	CHECK_KILL(&srv, "the server");
	stall_abort(&s);
	CHECK(!s.peer.pid || stall_gone(&s, ISO_MS));
	stall_end(&s);
	iso_check_empty(KEEL0);
}
