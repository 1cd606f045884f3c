/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Messages between two processes: over two connected queue pairs, and to the
 * other process's shared receive queue in an XRC domain.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "talk.h"

static const char path[] = "/tmp/mailbox";
static const char hello[] = "a message over a connection";
static const char letter[] = "a message to a shared receive queue by its number";

static char buffer[4096];

/* Two processes exchange these numbers before they connect. */
struct numbers {
	uint32_t rc, xrc, srq;
};

static struct numbers swap(int sock, struct numbers mine)
{
	struct numbers theirs;

	must(write(sock, &mine, sizeof(mine)) == sizeof(mine));
	must(read(sock, &theirs, sizeof(theirs)) == sizeof(theirs));
	return theirs;
}

static struct ibv_xrcd *open_domain(struct ibv_context *context)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = open(path, O_RDONLY | O_CREAT, 0600),
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &attr);

	must(xrcd);
	close(attr.fd);
	return xrcd;
}

static struct ibv_sge piece(struct ibv_mr *mr, uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)mr->addr, .length = length,
				 .lkey = mr->lkey };
}

/* Receive a text, which must be the expected one. */
static void receive(struct ibv_cq *cq, const char *where, const char *text)
{
	struct ibv_wc wc = next_wc(cq);

	must(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
	did("%s: %u bytes: \"%s\"", where, wc.byte_len, buffer);
	must(wc.byte_len == strlen(text) + 1 && !strcmp(buffer, text));
}

static int receiver(int sock)
{
	struct ibv_context *context = open_keel();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = new_cq(context), *srq_cq = new_cq(context);
	struct ibv_xrcd *xrcd = open_domain(context);
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof(buffer),
				       IBV_ACCESS_LOCAL_WRITE);
	struct ibv_srq_init_attr_ex srq_attr = {
		.attr = { .max_wr = 8, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC, .pd = pd, .xrcd = xrcd, .cq = srq_cq,
	};
	struct ibv_qp_init_attr_ex xrc_attr = {
		.qp_type = IBV_QPT_XRC_RECV, .xrcd = xrcd,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
	};
	struct ibv_sge sge;
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };
	struct ibv_qp *rc, *xrc;
	struct numbers mine, theirs;
	struct ibv_srq *srq;

	must(pd && mr);
	rc = new_qp(pd, cq, IBV_QPT_RC);
	xrc = ibv_create_qp_ex(context, &xrc_attr);
	srq = ibv_create_srq_ex(context, &srq_attr);
	must(xrc && srq);
	mine = (struct numbers){ .rc = rc->qp_num, .xrc = xrc->qp_num };
	must(!ibv_get_srq_num(srq, &mine.srq));
	did("receives at RC %u, and at shared receive queue %u", mine.rc,
	    mine.srq);
	theirs = swap(sock, mine);
	connect_to(rc, theirs.rc);
	connect_to(xrc, theirs.xrc);

	sge = piece(mr, sizeof(buffer));
	must(!ibv_post_recv(rc, &wr, &bad));
	receive(cq, "from the connection", hello);
	tell(sock);
	must(!ibv_post_srq_recv(srq, &wr, &bad));
	receive(srq_cq, "from the shared receive queue", letter);
	tell(sock);
	return 0;
}

static void send_text(struct ibv_qp *qp, struct ibv_mr *mr, const char *text,
		      uint32_t srq)
{
	struct ibv_sge sge = piece(mr, strlen(text) + 1);
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.qp_type.xrc.remote_srqn = srq,
	};
	struct ibv_wc wc;

	strcpy(buffer, text);
	must(!ibv_post_send(qp, &wr, &bad));
	wc = next_wc(qp->send_cq);
	did("ibv_post_send() -> %s", ibv_wc_status_str(wc.status));
	must(wc.status == IBV_WC_SUCCESS);
}

int main(void)
{
	struct numbers mine, theirs;
	struct ibv_context *context;
	struct ibv_qp *rc, *xrc;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	int sock[2], status;
	pid_t child;

	must(!socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
	child = fork();
	if (!child)
		exit(receiver(sock[1]));
	say("Two processes make queue pairs, and tell each other their numbers.");
	context = open_keel();
	pd = ibv_alloc_pd(context);
	must(pd);
	cq = new_cq(context);
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), 0);
	must(mr);
	rc = new_qp(pd, cq, IBV_QPT_RC);
	xrc = new_qp(pd, cq, IBV_QPT_XRC_SEND);
	mine = (struct numbers){ .rc = rc->qp_num, .xrc = xrc->qp_num };
	theirs = swap(sock[0], mine);
	connect_to(rc, theirs.rc);
	connect_to(xrc, theirs.xrc);

	say("One sends to the queue pair that it is connected to ...");
	send_text(rc, mr, hello, 0);
	wait_for(sock[0]);
	say("... and one names the shared receive queue that it wants.");
	send_text(xrc, mr, letter, theirs.srq);
	wait_for(sock[0]);
	must(waitpid(child, &status, 0) == child && !status);
	unlink(path);
	return 0;
}
