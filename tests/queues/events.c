// SPDX-License-Identifier: GPL-2.0
/*
 * ib_uverbs keeps events that no process reads in kernel memory. These tests
 * measure how much memory that is, that no cgroup is charged for the memory,
 * and that the kernel frees it.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "peer.h"
#include "qp.h"
#include "t.h"

#define GROUP	"/sys/fs/cgroup/keelevents"
#define EVENTS	40000

void t_after(void)
{
	t_shell_status("rmdir " GROUP " 2>&1");
}

static long charged(void)
{
	char *text = t_read_file(GROUP "/memory.stat");
	char *at = MUST(strstr(text, "\nkernel "));
	long value = atol(at + strlen("\nkernel "));

	free(text);
	return value;
}

/* Move this process to a memory cgroup of its own. */
static void group_join(void)
{
	char pid[20];

	SYS(mkdir(GROUP, 0755));
	snprintf(pid, sizeof(pid), "%d", getpid());
	CHECK_OK(t_write_file(GROUP "/cgroup.procs", pid));
}

#define PARTS	5

/*
 * Memory that @n events of one kind take, and that is freed with them. The kernel
 * may free memory of earlier tests at any time. So events are measured in @PARTS
 * parts, and the median of the parts counts.
 */
struct measure {
	const char *what;
	long n, last, part[PARTS], charged, grown;
	int parts;
};

static struct measure measure_start(const char *what)
{
	struct measure m = {
		.what = what, .n = t_rounds(EVENTS), .charged = charged(),
		.last = t_kmalloc(),
	};

	return m;
}

/* Event @i was raised. */
static void measure_event(struct measure *m, long i)
{
	long now;

	if ((i + 1) % (m->n / PARTS))
		return;
	now = t_kmalloc();
	m->part[m->parts++] = now - m->last;
	m->last = now;
}

static int compare(const void *a, const void *b)
{
	long x = *(const long *)a, y = *(const long *)b;

	return (x > y) - (x < y);
}

/*
 * An event takes 56 bytes, which kmalloc() rounds up to 64. If a kernel ever
 * charges events to a cgroup, isolation.rst must say so.
 */
static void measure_check(struct measure *m)
{
	long each, mine = charged() - m->charged;

	CHECK_EQ(m->parts, PARTS);
	qsort(m->part, PARTS, sizeof(m->part[0]), compare);
	m->grown = m->part[PARTS / 2] * PARTS;
	each = m->grown / m->n;
	t_note("%ld unread %s: %ld bytes each, %ld of them charged", m->n,
	       m->what, each, mine / m->n);
	CHECK(each >= 40);
	CHECK(each <= 90);
	CHECK(mine < m->grown / 4);
}

/* The events were freed since measure_event() saw the last of them. */
static void measure_end(const struct measure *m)
{
	long most = m->last - m->grown / 4 * 3;
	int i;

	for (i = 0; i < 200 && t_kmalloc() > most; i++)
		usleep(50000);
	CHECK(t_kmalloc() <= most);
}

TEST_SLOW(completion, "ISO-5", "an unread completion event takes a small slab object of ib_uverbs, which is freed with the CQ", 120)
{
	struct ibv_comp_channel *channel;
	struct ibv_context *ctx;
	struct measure m;
	struct ibv_pd *pd;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	long i;

	group_join();
	ctx = dev_open(KEEL0);
	pd = MUST(ibv_alloc_pd(ctx));
	channel = MUST(ibv_create_comp_channel(ctx));
	cq = MUST(ibv_create_cq(ctx, 4, NULL, channel, 0));
	qp = qp_new(pd, cq, IBV_QPT_UD, NULL);
	qp_connect(qp, 0);
	qp_to(qp, IBV_QPS_ERR);
	m = measure_start("completion events");
	for (i = 0; i < m.n; i++) {
		CHECK_OK(ibv_req_notify_cq(cq, 0));
		post_recv(qp, i, (struct mem){});
		CHECK_WC(cq, i, IBV_WC_WR_FLUSH_ERR);
		measure_event(&m, i);
	}
	measure_check(&m);
	CHECK_OK(ibv_destroy_qp(qp));
	CHECK_OK(ibv_destroy_cq(cq));
	measure_end(&m);
}

static void drain(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1,
	};

	CHECK_OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE |
			       IBV_QP_EN_SQD_ASYNC_NOTIFY));
	qp_to(qp, IBV_QPS_RTS);
}

TEST_SLOW(async, "ISO-5", "an unread asynchronous event takes a small slab object of ib_uverbs, which is freed with its object", 120)
{
	struct ibv_context *ctx;
	struct measure m;
	struct ibv_qp *qp;
	long i;

	group_join();
	ctx = dev_open(KEEL0);
	qp = qp_new(MUST(ibv_alloc_pd(ctx)), cq_new(ctx), IBV_QPT_UD, NULL);
	qp_connect(qp, 0);
	m = measure_start("asynchronous events");
	for (i = 0; i < m.n; i++) {
		drain(qp);
		measure_event(&m, i);
	}
	measure_check(&m);
	/* All events were raised: read the first 100. */
	for (i = 0; i < 100; i++)
		CHECK_EVENT(ctx, IBV_EVENT_SQ_DRAINED, qp);
	CHECK_OK(ibv_destroy_qp(qp));
	measure_end(&m);
}
