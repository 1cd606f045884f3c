// SPDX-License-Identifier: GPL-2.0
/*
 * The thread of a link executes short messages: also for a process that is stopped, and with
 * real-time priority unless the administrator does not want that.
 */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "hosts.h"
#include "peer.h"
#include "qp.h"
#include "t.h"

#define PERCENT		"/sys/module/keel/parameters/urgent_percent"
/* On-demand memory that operations of other hosts change. */
#define ODP_RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |	\
			 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ON_DEMAND)
/* The priority of works of ib_core. */
#define NICE		(-20)
/* Bytes of a short message, and of one that the worker of the process executes. */
#define SHORT		4096
#define LONGER		4097

/* Where operations of the other host have their memory. */
enum { AT_WORD = 0, AT_WRITE = 0x2000, AT_READ = 0x4000, AT_LATE = 0x6000, AT_RECV = 0x10000 };

/* A QP that another process has. */
struct far_qp {
	uint32_t qpn, rkey;
	uint64_t addr;
	union ibv_gid gid;
};

void t_end(void)
{
	hosts_down();
}

void t_after(void)
{
	t_write_file(PERCENT, "50");
}

static struct far_qp far_of(const struct end *e)
{
	return (struct far_qp){ e->qp->qp_num, e->mr->rkey, (uintptr_t)e->mem, e->gid };
}

static void connect_to(struct end *e, const struct far_qp *far)
{
	struct ibv_qp qp = { .qp_num = far->qpn };
	struct end peer = { .qp = &qp, .gid = far->gid };

	end_connect(e, &peer, &joint_usual);
}

static struct mem part(const struct end *e, size_t at, uint32_t len)
{
	return (struct mem){ e->mem + at, len, e->mr->lkey };
}

/* The process that is stopped. All that it was sent meanwhile is there afterwards. */
static void run_stopped(struct peer *parent)
{
	struct end e = end_new(1);
	struct far_qp mine = far_of(&e), other;
	int i;

	memset(e.mem + AT_READ, 'r', SHORT);
	*(uint64_t *)(e.mem + AT_WORD) = 40;
	peer_put_var(parent, mine);
	peer_get_var(parent, other);
	connect_to(&e, &other);
	for (i = 0; i < 2; i++)
		post_recv(e.qp, i, part(&e, AT_RECV + i * SHORT, SHORT));
	peer_tell(parent);
	peer_wait(parent);
	CHECK_EQ(CHECK_WC(e.cq, 0, IBV_WC_SUCCESS).byte_len, SHORT);
	CHECK_EQ(CHECK_WC(e.cq, 1, IBV_WC_SUCCESS).byte_len, 64);
	CHECK_ALL(e.mem + AT_RECV, 's', SHORT);
	CHECK_ALL(e.mem + AT_RECV + SHORT, 's', 64);
	CHECK_ALL(e.mem + AT_WRITE, 'w', SHORT);
	CHECK_ALL(e.mem + AT_LATE, 'w', LONGER);
	CHECK_EQ(*(uint64_t *)(e.mem + AT_WORD), 42);
	end_free(&e);
}

/* All operations that are short, in their order. */
static void check_short(struct end *e, const struct far_qp *far)
{
	uint64_t *word = (uint64_t *)(e->mem + AT_WORD);

	memset(e->mem + AT_RECV, 's', SHORT);
	post_send(e->qp, 1, part(e, AT_RECV, SHORT));
	CHECK_WC(e->cq, 1, IBV_WC_SUCCESS);
	post_send(e->qp, 2, part(e, AT_RECV, 64));
	CHECK_WC(e->cq, 2, IBV_WC_SUCCESS);
	memset(e->mem + AT_WRITE, 'w', LONGER);
	post_rdma(e->qp, IBV_WR_RDMA_WRITE, 3, part(e, AT_WRITE, SHORT), far->addr + AT_WRITE,
		  far->rkey);
	CHECK_WC(e->cq, 3, IBV_WC_SUCCESS);
	post_rdma(e->qp, IBV_WR_RDMA_READ, 4, part(e, AT_READ, SHORT), far->addr + AT_READ,
		  far->rkey);
	CHECK_WC(e->cq, 4, IBV_WC_SUCCESS);
	CHECK_ALL(e->mem + AT_READ, 'r', SHORT);
	post_add(e->qp, 5, part(e, AT_WORD, sizeof(*word)), far->addr + AT_WORD, far->rkey, 2);
	CHECK_WC(e->cq, 5, IBV_WC_SUCCESS);
	CHECK_EQ(*word, 40);
}

static void stop(const struct peer *peer)
{
	int status;

	SYS(kill(peer->pid, SIGSTOP));
	CHECK_EQ(SYS(waitpid(peer->pid, &status, WUNTRACED)), peer->pid);
	CHECK(WIFSTOPPED(status));
}

/* A message waits until the process continues. */
static void check_waits(struct end *e, const struct peer *peer, uint64_t wr_id)
{
	/* It arrives meanwhile; else this test only proves less. */
	usleep(50000);
	CHECK_NO_WC(e->cq);
	SYS(kill(peer->pid, SIGCONT));
	CHECK_WC(e->cq, wr_id, IBV_WC_SUCCESS);
}

TEST(stopped, "HOST-1,ISO-1", "a process that is stopped gets short messages of another host, and long ones when it continues")
{
	struct far_qp mine, other;
	struct peer peer;
	struct end e;

	hosts_up();
	peer_start(&peer, run_stopped);
	e = end_new(0);
	mine = far_of(&e);
	peer_get_var(&peer, other);
	peer_put_var(&peer, mine);
	connect_to(&e, &other);
	peer_wait(&peer);
	stop(&peer);
	check_short(&e, &other);
	post_rdma(e.qp, IBV_WR_RDMA_WRITE, 6, part(&e, AT_WRITE, LONGER), other.addr + AT_LATE,
		  other.rkey);
	check_waits(&e, &peer, 6);
	peer_tell(&peer);
	peer_end(&peer);
	end_free(&e);
}

/* Likewise, but all of its memory is on-demand memory, which is present. */
static void run_on_demand(struct peer *parent)
{
	struct end e = end_new(1);
	struct far_qp mine = far_of(&e), other;
	struct ibv_mr *mr = MUST(ibv_reg_mr(e.pd, e.mem, SHORT, ODP_RIGHTS));

	memset(e.mem, 0, SHORT);
	*(uint64_t *)(e.mem + AT_WORD) = 40;
	mine.rkey = mr->rkey;
	peer_put_var(parent, mine);
	peer_get_var(parent, other);
	connect_to(&e, &other);
	peer_tell(parent);
	peer_wait(parent);
	CHECK_EQ(*(uint64_t *)(e.mem + AT_WORD), 42);
	CHECK_ALL(e.mem + 64, 'w', 64);
	CHECK_OK(ibv_dereg_mr(mr));
	end_free(&e);
}

TEST(on_demand, "HOST-1,ISO-2", "threads of links do not look up memory: a process that is stopped gets no message for on-demand memory")
{
	struct far_qp mine, other;
	struct peer peer;
	struct end e;

	hosts_up();
	peer_start(&peer, run_on_demand);
	e = end_new(0);
	mine = far_of(&e);
	peer_get_var(&peer, other);
	peer_put_var(&peer, mine);
	connect_to(&e, &other);
	peer_wait(&peer);
	memset(e.mem + AT_WRITE, 'w', 64);
	stop(&peer);
	post_add(e.qp, 1, part(&e, AT_WORD, sizeof(uint64_t)), other.addr + AT_WORD, other.rkey, 2);
	check_waits(&e, &peer, 1);
	CHECK_EQ(*(uint64_t *)(e.mem + AT_WORD), 40);
	stop(&peer);
	post_rdma(e.qp, IBV_WR_RDMA_WRITE, 2, part(&e, AT_WRITE, 64), other.addr + 64, other.rkey);
	check_waits(&e, &peer, 2);
	peer_tell(&peer);
	peer_end(&peer);
	end_free(&e);
}

/* A field of /proc/PID/stat: proc(5). */
static long stat_field(const char *pid, int field)
{
	char *path, *text, *at;

	SYS(asprintf(&path, "/proc/%s/stat", pid));
	text = t_read_file(path);
	at = MUST(strrchr(text, ')')) + 2;
	/* The third one is there. */
	for (; field > 3; field--)
		at = MUST(strchr(at, ' ')) + 1;
	free(path);
	return strtol(at, NULL, 10);
}

/* Return: number of threads of links that have this policy, and this priority. */
static int threads_have(int policy, int priority, int nice)
{
	DIR *dir = MUST(opendir("/proc"));
	struct dirent *entry;
	char *path, *name;
	int n = 0;

	while ((entry = readdir(dir))) {
		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		SYS(asprintf(&path, "/proc/%s/comm", entry->d_name));
		name = t_read_file(path);
		free(path);
		if (!name || strncmp(name, "keel_link/", 10))
			continue;
		n += stat_field(entry->d_name, 41) == policy &&
		     stat_field(entry->d_name, 40) == priority &&
		     (policy != SCHED_OTHER || stat_field(entry->d_name, 19) == nice);
	}
	closedir(dir);
	return n;
}

/* After some messages, all threads have this policy. A slow guest may use up the share. */
static void check_threads(struct end ends[HOSTS], int policy, int priority, int nice)
{
	int tries, n = 0;

	for (tries = 0; n != HOSTS && tries < 500; tries++) {
		usleep(10000);
		post_rdma(ends[0].qp, IBV_WR_RDMA_WRITE, 1, part(&ends[0], 0, 64),
			  (uintptr_t)ends[1].mem, ends[1].mr->rkey);
		CHECK_WC(ends[0].cq, 1, IBV_WC_SUCCESS);
		n = threads_have(policy, priority, nice);
	}
	/* One on each host. */
	CHECK_EQ(n, HOSTS);
}

TEST(urgent, "HOST-1,ISO-2", "threads of links have real-time priority, but not if urgent_percent is 0")
{
	struct end ends[HOSTS];
	int i;

	hosts_up();
	for (i = 0; i < HOSTS; i++)
		ends[i] = end_new(i);
	ends_join(&ends[0], &ends[1], &joint_usual);
	check_threads(ends, SCHED_FIFO, 1, 0);
	CHECK_OK(t_write_file(PERCENT, "0"));
	check_threads(ends, SCHED_OTHER, 0, NICE);
	CHECK_OK(t_write_file(PERCENT, "50"));
	check_threads(ends, SCHED_FIFO, 1, 0);
	for (i = 0; i < HOSTS; i++)
		end_free(&ends[i]);
}

TEST(unused, "HOST-3,ISO-2", "the thread of a link that its host does not use has no real-time priority")
{
	struct end ends[HOSTS];
	int i, n, tries;

	hosts_up();
	for (i = 0; i < HOSTS; i++)
		ends[i] = end_new(i);
	ends_join(&ends[0], &ends[1], &joint_usual);
	check_threads(ends, SCHED_FIFO, 1, 0);
	end_free(&ends[1]);
	/* Nobody is there, and the host tells so. */
	post_rdma(ends[0].qp, IBV_WR_RDMA_WRITE, 1, part(&ends[0], 0, 64), 0, 0);
	for (tries = 0; (n = threads_have(SCHED_OTHER, 0, NICE)) != 1 && tries < 500; tries++)
		usleep(10000);
	CHECK_EQ(n, 1);
	CHECK_WC(ends[0].cq, 1, IBV_WC_RETRY_EXC_ERR);
	end_free(&ends[0]);
}
