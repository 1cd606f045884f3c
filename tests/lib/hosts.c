// SPDX-License-Identifier: GPL-2.0
/*
 * Two hosts. See hosts.h.
 */
#include <stdarg.h>
#include <sys/mman.h>

#include "dev.h"
#include "hosts.h"
#include "qp.h"
#include "t.h"

static const char * const names[HOSTS] = { "a", "b" };

const struct joint joint_usual = {
	.timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .rnr_timer = 1, .psn = 0x123456,
};

const struct joint joint_patient = {
	.timeout = 20, .retry_cnt = 7, .rnr_retry = 7, .rnr_timer = 1, .psn = 0x123456,
};

const char *hosts_over(void)
{
	return getenv("KEEL_OVER") ?: "rxe";
}

/* siw has no network namespaces for users in the kernel: see hosts.h. */
static bool hosts_share(void)
{
	return !strcmp(hosts_over(), "siw");
}

/* A command on a host begins with this. */
static const char *host_prefix(int host)
{
	static char prefix[HOSTS][40];

	if (!hosts_share())
		sprintf(prefix[host], "ip netns exec keel_%s ", names[host]);
	return prefix[host];
}

char *host_shell(int host, const char *fmt, ...)
{
	char command[400];
	va_list args;

	va_start(args, fmt);
	vsnprintf(command, sizeof(command), fmt, args);
	va_end(args);
	return t_shell("%s%s", host_prefix(host), command);
}

int host_shell_status(int host, const char *command)
{
	return t_shell_status("%ssh -c \"%s\"", host_prefix(host), command);
}

const char *host_at(int host, int from)
{
	static char at[HOSTS][HOSTS][30];

	if (hosts_share())
		sprintf(at[host][from], "fe80::%d%%keel_%s", host + 1, names[from]);
	else
		sprintf(at[host][from], "10.9.0.%d", host + 1);
	return at[host][from];
}

void host_address(int host)
{
	if (hosts_share())
		free(t_shell("ip address replace fe80::%d/64 nodad dev keel_%s", host + 1,
			     names[host]));
	else
		free(host_shell(host, "ip address replace 10.9.0.%d/24 dev keel_%s", host + 1,
				names[host]));
}

int host_connections(int host)
{
	char *links = t_shell("cat /sys/kernel/debug/keel/keel_%s/links", names[host]);
	const char *at = strstr(links, " connections ");
	int n = at ? atoi(at + strlen(" connections ")) : 0;

	free(links);
	return n;
}

void host_lower(int host, int up)
{
	if (up)
		free(host_shell(host, "rdma link add %s_%s type %s netdev keel_%s", hosts_over(),
				names[host], hosts_over(), names[host]));
	else
		free(t_shell("rdma link delete %s_%s", hosts_over(), names[host]));
}

void hosts_down(void)
{
	t_shell_status("for h in a b; do rdma link delete keel_$h; rdma link delete %s_$h; "
		       "ip netns delete keel_$h; ip link delete keel_$h; done >/dev/null 2>&1",
		       hosts_over());
	module_restore();
}

static bool hosts_are_up(void)
{
	return !t_shell_status("cd /sys/class/infiniband && ls keel_a keel_b %s_a %s_b "
			       ">/dev/null 2>&1 && %sip link show keel_a >/dev/null 2>&1",
			       hosts_over(), hosts_over(), host_prefix(0));
}

/* Load the module, and make the netdevs. */
static void hosts_prepare(void)
{
	int i;

	if (hosts_share()) {
		module_load("default_device=0 lower=siw_a,siw_b");
		t_shell_status("modprobe -q siw");
		free(t_shell("ip link add keel_a mtu 5000 type veth peer name keel_b mtu 5000"));
		return;
	}
	module_load("default_device=0 lower=all");
	t_shell_status("modprobe -q rdma_rxe");
	for (i = 0; i < HOSTS; i++)
		free(t_shell("ip netns add keel_%s", names[i]));
	free(t_shell("ip link add keel_a netns keel_a mtu 5000 type veth "
		     "peer name keel_b netns keel_b mtu 5000"));
}

void hosts_up(void)
{
	int i;

	if (hosts_are_up())
		return;
	hosts_down();
	module_unload();
	hosts_prepare();
	for (i = 0; i < HOSTS; i++) {
		/* The address of the link scope would need a second to become usable. */
		free(host_shell(i, "sysctl -qw net.ipv6.conf.all.accept_dad=0"));
		host_address(i);
		free(host_shell(i, "ip link set keel_%s up", names[i]));
		free(host_shell(i, "ip link set lo up"));
		free(host_shell(i, "rdma link add keel_%s type keel netdev keel_%s", names[i],
				names[i]));
		host_lower(i, 1);
	}
}

static void find_gid(struct end *e, int host)
{
	union ibv_gid gid = {
		.raw = { [10] = 0xff, 0xff, 10, 9, 0, host + 1 },
	};
	struct ibv_gid_entry entry;
	int i;

	if (hosts_share())
		gid = (union ibv_gid){ .raw = { 0xfe, 0x80, [15] = host + 1 } };
	for (i = 0; i < 100; i++) {
		for (e->sgid = 0; e->sgid < 16; e->sgid++) {
			if (ibv_query_gid_ex(e->ctx, 1, e->sgid, &entry, 0) ||
			    memcmp(&entry.gid, &gid, sizeof(gid)))
				continue;
			e->gid = entry.gid;
			return;
		}
		usleep(20000);
	}
	FAIL("the device of host %s has no address", names[host]);
}

static struct end end_new_of(const char *device, int host, enum ibv_qp_type type)
{
	char name[16];
	struct end e;

	snprintf(name, sizeof(name), "%s_%s", device, names[host]);
	e.ctx = dev_open(name);
	find_gid(&e, host);
	e.pd = MUST(ibv_alloc_pd(e.ctx));
	e.cq = cq_new(e.ctx);
	e.qp = qp_new(e.pd, e.cq, type, NULL);
	e.mem = mmap(NULL, END_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		     0);
	CHECK(e.mem != MAP_FAILED);
	e.mr = MUST(ibv_reg_mr(e.pd, e.mem, END_BYTES,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
	return e;
}

struct end end_new(int host)
{
	return end_new_of("keel", host, IBV_QPT_RC);
}

struct end end_new_uc(int host)
{
	return end_new_of("keel", host, IBV_QPT_UC);
}

struct end end_new_ud(int host)
{
	return end_new_of("keel", host, IBV_QPT_UD);
}

struct end end_new_xrc(int host)
{
	return end_new_of("keel", host, IBV_QPT_XRC_SEND);
}

struct end end_new_lower(int host)
{
	return end_new_of(hosts_over(), host, IBV_QPT_UD);
}

void end_free(struct end *e)
{
	CHECK_OK(ibv_destroy_qp(e->qp));
	CHECK_OK(ibv_dereg_mr(e->mr));
	CHECK_OK(ibv_destroy_cq(e->cq));
	CHECK_OK(ibv_dealloc_pd(e->pd));
	CHECK_OK(ibv_close_device(e->ctx));
	munmap(e->mem, END_BYTES);
}

void end_drop(struct end *e)
{
	/* The kernel has destroyed the objects: the calls only free memory. */
	ibv_destroy_qp(e->qp);
	ibv_dereg_mr(e->mr);
	ibv_destroy_cq(e->cq);
	ibv_dealloc_pd(e->pd);
	ibv_close_device(e->ctx);
	munmap(e->mem, END_BYTES);
}

struct ibv_ah_attr end_to(const struct end *e, const struct end *peer)
{
	return (struct ibv_ah_attr){
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = peer->gid, .sgid_index = e->sgid, .hop_limit = 64 },
	};
}

void end_connect(struct end *e, const struct end *peer, const struct joint *j)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer->qp->qp_num, .rq_psn = j->psn, .sq_psn = j->psn,
		.max_dest_rd_atomic = 4, .max_rd_atomic = 4, .min_rnr_timer = j->rnr_timer,
		.timeout = j->timeout, .retry_cnt = j->retry_cnt, .rnr_retry = j->rnr_retry,
		.ah_attr = end_to(e, peer),
	};

	bool rc = e->qp->qp_type == IBV_QPT_RC, sends = rc || e->qp->qp_type == IBV_QPT_XRC_SEND;
	int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	int rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (rc)
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (sends)
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_MAX_QP_RD_ATOMIC;
	qp_to_init(e->qp);
	CHECK_OK(ibv_modify_qp(e->qp, &attr, rtr));
	attr.qp_state = IBV_QPS_RTS;
	CHECK_OK(ibv_modify_qp(e->qp, &attr, rts));
}

void ends_join(struct end *a, struct end *b, const struct joint *j)
{
	end_connect(a, b, j);
	end_connect(b, a, j);
}
