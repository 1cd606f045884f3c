// SPDX-License-Identifier: GPL-2.0
/*
 * Connected processes, and calls with a deadline. See iso.h.
 */
#include <dirent.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "iso.h"
#include "qp.h"
#include "t.h"
#include "tree.h"

#define BYTES	64
/* Value of <linux/sched.h>, found in /proc/PID/stat. */
#define PF_KTHREAD	0x00200000
/* Numbers of threads are smaller: PID_MAX_LIMIT of <linux/threads.h>. */
#define PIDS		(4 << 20)

const char * const iso_types[ISO_TYPES] = { "RC", "UC", "UD", "XRC" };

static const enum ibv_qp_type qp_types[ISO_TYPES] = {
	[ISO_RC] = IBV_QPT_RC, [ISO_UC] = IBV_QPT_UC,
	[ISO_UD] = IBV_QPT_UD, [ISO_XRC] = IBV_QPT_XRC_SEND,
};

static void open_xrc(struct iso_end *e)
{
	struct ibv_xrcd *xrcd = xrcd_new(e->ctx);

	e->srq = srq_new_xrc(e->pd, xrcd, e->cq);
	e->recv_qp = qp_new_xrc_recv(xrcd);
}

/* An RC QP can also post what only ibv_wr_*() can post. */
static struct ibv_qp *open_qp(struct iso_end *e)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = e->cq, .recv_cq = e->cq, .pd = e->pd,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = QP_WRS, .max_recv_wr = QP_WRS,
			 .max_send_sge = QP_SGES, .max_recv_sge = QP_SGES },
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_FLUSH |
				  IBV_QP_EX_WITH_ATOMIC_WRITE,
	};

	if (e->type == ISO_RC)
		return MUST(ibv_create_qp_ex(e->ctx, &init));
	return qp_new(e->pd, e->cq, qp_types[e->type], NULL);
}

void iso_open(struct iso_end *e, const char *dev, struct ibv_context *ctx,
	      enum iso_type type)
{
	*e = (struct iso_end){ .type = type, .ctx = ctx ?: dev_open(dev) };
	e->pd = MUST(ibv_alloc_pd(e->ctx));
	e->channel = MUST(ibv_create_comp_channel(e->ctx));
	e->cq = MUST(ibv_create_cq(e->ctx, 2 * QP_WRS, NULL, e->channel, 0));
	e->qp = open_qp(e);
	e->recv_qp = e->qp;
	if (type == ISO_XRC)
		open_xrc(e);
	if (type == ISO_UD)
		e->ah = ah_self(e->pd);
}

struct iso_addr iso_addr(const struct iso_end *e)
{
	struct iso_addr addr = {
		.qpn = e->qp->qp_num, .recv_qpn = e->recv_qp->qp_num,
	};

	if (e->srq)
		CHECK_OK(ibv_get_srq_num(e->srq, &addr.srqn));
	if (e->mr) {
		addr.rkey = e->mr->rkey;
		addr.addr = (uintptr_t)e->mr->addr;
	}
	return addr;
}

void iso_to_rts_patient(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = 0, .retry_cnt = 7,
		.rnr_retry = 7, .max_rd_atomic = 1,
	};

	CHECK_OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
			       IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void connect_sender(struct iso_end *e)
{
	qp_to_init(e->qp);
	qp_to_rtr(e->qp, e->peer.recv_qpn);
	if (e->patient)
		iso_to_rts_patient(e->qp);
	else
		qp_to_rts(e->qp, 7);
}

int iso_flush_right(void)
{
	return t_kernel("6.1.") ? 0 : IBV_ACCESS_FLUSH_GLOBAL;
}

void iso_connect(struct iso_end *e, const struct iso_addr *peer)
{
	e->peer = *peer;
	connect_sender(e);
	if (e->type == ISO_RC)
		qp_allow(e->qp, IBV_ACCESS_REMOTE_READ |
			 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
			 iso_flush_right());
	if (e->type == ISO_XRC)
		qp_connect(e->recv_qp, peer->qpn);
}

void iso_meet(struct iso_end *e, struct peer *parent)
{
	struct iso_addr addr = iso_addr(e);

	peer_put_var(parent, addr);
	peer_get_var(parent, addr);
	iso_connect(e, &addr);
	peer_tell(parent);
}

void iso_introduce(struct peer *a, struct peer *b)
{
	struct iso_addr addr[2];

	peer_get_var(a, addr[0]);
	peer_get_var(b, addr[1]);
	peer_put_var(a, addr[1]);
	peer_put_var(b, addr[0]);
	peer_wait(a);
	peer_wait(b);
}

struct ibv_mr *iso_mr(struct iso_end *e, void *page, int access)
{
	return MUST(ibv_reg_mr(e->pd, page, ISO_PAGE, ISO_RIGHTS | access));
}

/* Fill the SGEs of a message and return how many there are. */
static int scatter(const struct iso_end *e, const struct ibv_mr *mr,
		   uint32_t len, struct ibv_sge sge[2])
{
	sge[0] = (struct ibv_sge){ (uintptr_t)mr->addr, len, mr->lkey };
	if (!e->split)
		return 1;
	sge[0].length -= BYTES / 2;
	sge[1] = (struct ibv_sge){
		(uintptr_t)e->split->addr, BYTES / 2, e->split->lkey,
	};
	return 2;
}

void iso_post_recv(struct iso_end *e, uint64_t wr_id, struct ibv_mr *mr)
{
	uint32_t len = e->type == ISO_UD ? ISO_GRH + BYTES : BYTES;
	struct ibv_sge sge[2];
	struct ibv_recv_wr wr = {
		.wr_id = wr_id, .sg_list = sge,
		.num_sge = scatter(e, mr, len, sge),
	}, *bad;

	if (e->srq)
		CHECK_OK(ibv_post_srq_recv(e->srq, &wr, &bad));
	else
		CHECK_OK(ibv_post_recv(e->qp, &wr, &bad));
}

int iso_send(struct iso_end *e, uint64_t wr_id, struct ibv_mr *mr)
{
	struct ibv_sge sge[2];
	struct ibv_send_wr wr = {
		.wr_id = wr_id, .opcode = IBV_WR_SEND, .sg_list = sge,
		.num_sge = scatter(e, mr, BYTES, sge),
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	if (e->type == ISO_XRC)
		wr.qp_type.xrc.remote_srqn = e->peer.srqn;
	if (e->type == ISO_UD) {
		wr.wr.ud.ah = e->ah;
		wr.wr.ud.remote_qpn = e->peer.qpn;
		wr.wr.ud.remote_qkey = QP_QKEY;
	}
	return ibv_post_send(e->qp, &wr, &bad);
}

static int wr_rdma(struct iso_end *e, enum ibv_wr_opcode op, uint64_t wr_id)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(e->qp);

	wr_begin(qp, wr_id);
	if (op == IBV_WR_FLUSH)
		ibv_wr_flush(qp, e->peer.rkey, e->peer.addr, BYTES,
			     IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
	else
		ibv_wr_atomic_write(qp, e->peer.rkey, e->peer.addr, "atomics");
	return ibv_wr_complete(qp);
}

int iso_rdma(struct iso_end *e, enum ibv_wr_opcode op, uint64_t wr_id,
	     struct ibv_mr *mr)
{
	struct ibv_send_wr *wr = send_wr(op, wr_id,
			(struct mem){ mr->addr, BYTES, mr->lkey }), *bad;

	if (op == IBV_WR_FLUSH || op == IBV_WR_ATOMIC_WRITE)
		return wr_rdma(e, op, wr_id);
	wr->wr.rdma.remote_addr = e->peer.addr;
	wr->wr.rdma.rkey = e->peer.rkey;
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->sg_list->length = sizeof(uint64_t);
		wr->wr.atomic.remote_addr = e->peer.addr;
		wr->wr.atomic.rkey = e->peer.rkey;
		wr->wr.atomic.compare_add = 1;
	}
	if (e->type == ISO_XRC)
		wr->qp_type.xrc.remote_srqn = e->peer.srqn;
	return ibv_post_send(e->qp, wr, &bad);
}

bool iso_told(struct peer *p, int ms)
{
	struct pollfd fd = { .fd = p->fd, .events = POLLIN };

	if (poll(&fd, 1, ms) <= 0)
		return false;
	peer_wait(p);
	return true;
}

void iso_within(const char *file, int line, struct peer *p, int ms,
		const char *what)
{
	if (!iso_told(p, ms))
		t_fail(file, line, "%s: got nothing in %d ms, want its return",
		       what, ms);
}

void iso_step(const char *file, int line, struct peer *p, const char *what)
{
	peer_tell(p);
	iso_within(file, line, p, ISO_MS, what);
}

void iso_kill(const char *file, int line, struct peer *p, int sig,
	      const char *what)
{
	int ms, status;

	SYS(kill(p->pid, sig));
	for (ms = 0; ms < ISO_MS; ms += 2) {
		if (SYS(waitpid(p->pid, &status, WNOHANG)) > 0) {
			close(p->fd);
			return;
		}
		usleep(2000);
	}
	t_fail(file, line, "%s: got a process that SIG%s did not end in %d ms",
	       what, sigabbrev_np(sig), ISO_MS);
}

/* Return the processor time of a thread group or a kernel thread. */
static uint64_t stat_us(const char *pid, bool *kernel)
{
	unsigned long flags = 0, user = 0, system = 0;
	char path[300], text[1024] = "", *p;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	f = fopen(path, "re");
	/* The process may have ended. */
	if (!f)
		return 0;
	p = fgets(text, sizeof(text), f) ? strrchr(text, ')') : NULL;
	fclose(f);
	if (!p || sscanf(p, ") %*c %*d %*d %*d %*d %*d %lu %*u %*u %*u %*u %lu %lu",
			 &flags, &user, &system) != 3)
		return 0;
	*kernel = flags & PF_KTHREAD;
	return (user + system) * 1000000ULL / sysconf(_SC_CLK_TCK);
}

/*
 * Return the processor time of a thread, or 0 if the kernel has no such file.
 */
static uint64_t schedstat_us(const char *dir, const char *tid)
{
	unsigned long long ns = 0;
	char path[600];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s/schedstat", dir, tid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%llu", &ns) != 1)
		ns = 0;
	fclose(f);
	return ns / 1000;
}

uint64_t iso_process_us(pid_t pid)
{
	char dir[64], name[32];
	struct dirent *entry;
	uint64_t us = 0;
	bool kernel;
	DIR *tasks;

	snprintf(name, sizeof(name), "%d", pid);
	snprintf(dir, sizeof(dir), "/proc/%d/task", pid);
	tasks = MUST(opendir(dir));
	while ((entry = readdir(tasks)))
		us += schedstat_us(dir, entry->d_name);
	closedir(tasks);
	return us ?: stat_us(name, &kernel);
}

void iso_watch(int fd, int waiters)
{
	struct epoll_event event = { .events = EPOLLIN };
	int epoll[ISO_EPOLLS], i;

	for (i = 0; i < ISO_EPOLLS; i++)
		epoll[i] = SYS(epoll_create1(0));
	for (; waiters > 0; waiters -= ISO_EPOLLS) {
		fd = SYS(dup(fd));
		for (i = 0; i < ISO_EPOLLS; i++)
			SYS(epoll_ctl(epoll[i], EPOLL_CTL_ADD, fd, &event));
	}
}

/*
 * The processor time of a kernel thread that is new since the last call. A thread that has
 * ended takes its time along, so the sum of all threads may decrease.
 */
static uint64_t new_us(const char *name, uint64_t us)
{
	static uint64_t last[PIDS];
	int pid = atoi(name);
	uint64_t old;

	CHECK(pid > 0 && pid < PIDS);
	old = last[pid];
	last[pid] = us;
	/* Else another thread has the number now. */
	return us >= old ? us - old : us;
}

uint64_t iso_kernel_us(void)
{
	static uint64_t sum;
	struct dirent *entry;
	uint64_t us, exact;
	bool kernel;
	DIR *proc = MUST(opendir("/proc"));

	while ((entry = readdir(proc))) {
		kernel = false;
		us = stat_us(entry->d_name, &kernel);
		if (!kernel)
			continue;
		exact = schedstat_us("/proc", entry->d_name);
		sum += new_us(entry->d_name, exact ?: us);
	}
	closedir(proc);
	return sum;
}

void iso_check_empty(const char *dev)
{
	char why[300] = "";
	int ms;

	for (ms = 0; ms < ISO_MS; ms += 10) {
		if (tree_is_empty(dev, why, sizeof(why)))
			return;
		usleep(10000);
	}
	FAIL("%s: got \"%s\", want no object", dev, why);
}
