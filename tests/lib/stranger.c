// SPDX-License-Identifier: GPL-2.0
/*
 * A host that user space plays: its network, its device, and the handshake. See stranger.h,
 * and stranger_frames.c.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include "hosts.h"
#include "qp.h"
#include "stranger.h"
#include "stranger_mem.h"
#include "t.h"

/* Bytes of the headers in front of a MAD: IPv4, UDP, BTH, DETH. */
#define BTH_AT		(20 + 8)
#define MAD_AT		(BTH_AT + 12 + 8)
/* Opcode of a datagram. */
#define BTH_UD_SEND	0x64
#define FIRST_PSN	0x1234

void stranger_net_down(void)
{
	t_shell_status("{ rdma link delete rxe_c; ip netns delete keel_c; } >/dev/null 2>&1");
}

void stranger_net_up(void)
{
	if (!t_shell_status("ls /sys/class/infiniband/rxe_c /run/netns/keel_c >/dev/null 2>&1"))
		return;
	t_shell_status("ip netns delete keel_c >/dev/null 2>&1");
	free(t_shell("ip netns add keel_c"));
	free(t_shell("ip link add keel_r netns keel_b mtu 5000 type veth "
		     "peer name keel_c netns keel_c mtu 5000"));
	free(host_shell(1, "sysctl -qw net.ipv4.ip_forward=1"));
	free(host_shell(1, "ip address add 10.9.1.1/24 dev keel_r"));
	free(host_shell(1, "ip link set keel_r up"));
	free(t_shell("ip netns exec keel_c sh -c '"
		     "sysctl -qw net.ipv6.conf.all.accept_dad=0 && ip link set lo up && "
		     "ip address add 10.9.1.2/24 dev keel_c && ip link set keel_c up && "
		     "ip route add default via 10.9.1.1 && "
		     "rdma link add rxe_c type rxe netdev keel_c'"));
	free(host_shell(0, "ip route replace 10.9.1.0/24 via 10.9.0.2"));
	/* Requests of hosts behind an unknown one are ignored. */
	free(host_shell(0, "ip neigh replace 10.9.0.2 dev keel_a nud permanent lladdr "
			"$(ip netns exec keel_b cat /sys/class/net/keel_b/address)"));
}

static int find_sgid(struct ibv_context *ctx)
{
	union ibv_gid want = gid_of_ipv4(STRANGER_IPV4);
	struct ibv_gid_entry entry;
	int ms, i;

	for (ms = 0; ms < 5000; ms += 20) {
		for (i = 0; i < 16; i++)
			if (!ibv_query_gid_ex(ctx, 1, i, &entry, 0) &&
			    !memcmp(&entry.gid, &want, sizeof(want)))
				return i;
		usleep(20000);
	}
	FAIL("the stranger has no address");
}

/* A socket that gets a copy of each datagram of UD that arrives in the namespace. */
static int udp_open(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, BTH_AT),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, BTH_UD_SEND, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 0x10000),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(*code), code };
	int own = SYS(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
	int other = SYS(open("/run/netns/keel_c", O_RDONLY | O_CLOEXEC));
	int fd;

	SYS(setns(other, CLONE_NEWNET));
	fd = SYS(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP));
	SYS(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)));
	SYS(setns(own, CLONE_NEWNET));
	close(own);
	close(other);
	return fd;
}

static void gsi_open(struct stranger *s)
{
	struct ibv_ah_attr to = {
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = gid_of_ipv4(VICTIM_IPV4), .sgid_index = s->sgid,
			 .hop_limit = 64 },
	};

	s->gsi_cq = cq_new(s->ctx);
	s->gsi = qp_new(s->pd, s->gsi_cq, IBV_QPT_UD, NULL);
	s->ah = MUST(ibv_create_ah(s->pd, &to));
	qp_ud_ready(s->gsi, GSI_QKEY);
}

struct stranger stranger_new(void)
{
	struct stranger s = { .ctx = dev_open("rxe_c") };

	s.sgid = find_sgid(s.ctx);
	s.pd = MUST(ibv_alloc_pd(s.ctx));
	s.mem = mmap(NULL, STRANGER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		     -1, 0);
	CHECK(s.mem != MAP_FAILED);
	s.mr = MUST(ibv_reg_mr(s.pd, s.mem, STRANGER_BYTES, IBV_ACCESS_LOCAL_WRITE));
	s.chunks = mmap(NULL, FRAME_CHUNKS_N * FRAME_CHUNK, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(s.chunks != MAP_FAILED);
	s.chunks_mr = MUST(ibv_reg_mr(s.pd, s.chunks, FRAME_CHUNKS_N * FRAME_CHUNK,
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	s.scq = MUST(ibv_create_cq(s.ctx, 2 * STRANGER_SENDS, NULL, NULL, 0));
	s.rcq = MUST(ibv_create_cq(s.ctx, 2 * STRANGER_RECVS, NULL, NULL, 0));
	s.udp = udp_open();
	gsi_open(&s);
	return s;
}

void stranger_free(struct stranger *s)
{
	stranger_drop(s);
	close(s->udp);
	CHECK_OK(ibv_destroy_ah(s->ah));
	CHECK_OK(ibv_destroy_qp(s->gsi));
	CHECK_OK(ibv_destroy_cq(s->gsi_cq));
	CHECK_OK(ibv_destroy_cq(s->scq));
	CHECK_OK(ibv_destroy_cq(s->rcq));
	CHECK_OK(ibv_dereg_mr(s->mr));
	CHECK_OK(ibv_dereg_mr(s->chunks_mr));
	CHECK_OK(ibv_dealloc_pd(s->pd));
	CHECK_OK(ibv_close_device(s->ctx));
	munmap(s->mem, STRANGER_BYTES);
	munmap(s->chunks, FRAME_CHUNKS_N * FRAME_CHUNK);
}

static void send_mad(struct stranger *s, const void *mad)
{
	struct ibv_send_wr *wr;

	memcpy(s->mem, mad, MAD_BYTES);
	wr = send_wr(IBV_WR_SEND, 1, (struct mem){ s->mem, MAD_BYTES, s->mr->lkey });
	wr->wr.ud.ah = s->ah;
	wr->wr.ud.remote_qpn = GSI_QPN;
	wr->wr.ud.remote_qkey = GSI_QKEY;
	post(s->gsi, wr);
	CHECK_WC(s->gsi_cq, 1, IBV_WC_SUCCESS);
}

void stranger_cm(struct stranger *s, uint16_t attr_id)
{
	struct cm_other mad = cm_other_of(attr_id, s->id, s->peer_id);

	/* DREQ: the number of the QP of its receiver; REJ: of which message. */
	if (attr_id == CM_DREQ)
		mad.more = htonl(s->qpn << 8);
	else if (attr_id == CM_REJ)
		mad.more = htonl(1 << 30);
	send_mad(s, &mad);
}

void stranger_drop(struct stranger *s)
{
	struct ibv_wc wc;

	s->up = false;
	if (!s->qp)
		return;
	CHECK_OK(ibv_destroy_qp(s->qp));
	s->qp = NULL;
	while (ibv_poll_cq(s->scq, 1, &wc) > 0 || ibv_poll_cq(s->rcq, 1, &wc) > 0)
		;
}

void stranger_prepare(struct stranger *s)
{
	struct ibv_qp_init_attr init = {
		.send_cq = s->scq, .recv_cq = s->rcq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = STRANGER_SENDS, .max_recv_wr = STRANGER_RECVS,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	static uint64_t seed;

	/* ib_cm remembers the numbers of connections that have ended, also of others. */
	if (!seed)
		seed = (uint64_t)getpid() << 32 ^ time(NULL);
	stranger_drop(s);
	s->qp = MUST(ibv_create_qp(s->pd, &init));
	s->req = cm_req_of(STRANGER_IPV4, VICTIM_IPV4);
	s->req.ca_guid = t_random(&seed);
	s->id = t_random(&seed) & 0x7fffffff;
	s->req.comm_id = htonl(s->id);
	s->req.head.tid = htobe64(s->id);
	s->req.qpn_resources = htonl(s->qp->qp_num << 8 | 1);
	s->req.psn_timeout = htonl(FIRST_PSN << 8 | 18 << 3 | 7);
	s->posted = 0;
	s->sent = 0;
	s->owed = 0;
	s->chunks_rkey = 0;
	s->freed = 0;
	s->read = 0;
	s->batch_len = 0;
	s->batch_at = 0;
}

/* Return the next message of ib_cm about this connection, or NULL. */
static const struct cm_other *next_mad(struct stranger *s, char *packet)
{
	const struct cm_other *mad = (const void *)(packet + MAD_AT);
	ssize_t n;

	while ((n = recv(s->udp, packet, FRAME_ROOM, 0)) > 0)
		if (n >= MAD_AT + MAD_BYTES && mad->head.mgmt_class == 7 &&
		    mad->peer_id == htonl(s->id))
			return mad;
	return NULL;
}

bool stranger_ended(struct stranger *s, int ms)
{
	const struct cm_other *mad;
	char packet[FRAME_ROOM];
	int i;

	for (i = 0; s->up && i <= ms; i++) {
		while ((mad = next_mad(s, packet)))
			if (mad->head.attr_id == htons(CM_DREQ))
				s->up = false;
		if (s->up && i < ms)
			usleep(1000);
	}
	return !s->up;
}

/* Move the QP to RTS, with a time of 1 s for a packet. */
static void connect_qp(struct stranger *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_4096,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.dest_qp_num = s->qpn, .rq_psn = FIRST_PSN, .sq_psn = s->psn,
		.max_dest_rd_atomic = 1, .max_rd_atomic = 1, .min_rnr_timer = 12,
		.timeout = 15, .retry_cnt = 6, .rnr_retry = 6,
		.ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = { .dgid = gid_of_ipv4(VICTIM_IPV4), .sgid_index = s->sgid,
				 .hop_limit = 64 },
		},
	};

	CHECK_OK(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					     IBV_QP_ACCESS_FLAGS));
	stranger_post_recvs(s);
	attr.qp_state = IBV_QPS_RTR;
	CHECK_OK(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			       IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	CHECK_OK(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

bool stranger_ask(struct stranger *s, int ms)
{
	const struct cm_rep *rep;
	char packet[FRAME_ROOM];
	int i;

	/* Messages for connections of before. */
	while (recv(s->udp, packet, sizeof(packet), 0) > 0)
		;
	send_mad(s, &s->req);
	for (i = 0; i < ms; i++) {
		rep = (const void *)next_mad(s, packet);
		if (!rep) {
			usleep(1000);
			continue;
		}
		if (rep->head.attr_id == htons(CM_REJ))
			return false;
		if (rep->head.attr_id != htons(CM_REP))
			continue;
		s->peer_id = ntohl(rep->comm_id);
		s->qpn = ntohl(rep->qpn) >> 8;
		s->psn = ntohl(rep->psn) >> 8;
		s->cookie = le64toh(rep->hello.cookie);
		s->granted = le16toh(rep->hello.credits);
		connect_qp(s);
		s->up = true;
		stranger_cm(s, CM_RTU);
		return true;
	}
	return false;
}

void stranger_connect(struct stranger *s)
{
	int i;

	for (i = 0; i < 10; i++) {
		stranger_prepare(s);
		if (stranger_ask(s, 1000))
			return;
	}
	FAIL("the victim accepts no connection");
}
