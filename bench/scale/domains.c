// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Domains: PDs, thread and parent domains, XRC domains, shared PDs. */
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#include "kind.h"

#define SHARE_KEY	0x6b65656cULL

/* As <infiniband/shpd.h> of keel has it. */
struct ibv_shpd {
	struct ibv_context *context;
	uint32_t handle;
};

static struct ibv_shpd *(*alloc_shpd)(struct ibv_pd *pd, uint64_t key, struct ibv_shpd *shpd);
static struct ibv_pd *(*share_pd)(struct ibv_context *context, struct ibv_shpd *shpd,
				  uint64_t key);
static struct ibv_shpd shared;
static int file = -1;

static void *make_pd(void)
{
	return ibv_alloc_pd(world.ctx);
}

static int unmake_pd(void *pd)
{
	return ibv_dealloc_pd(pd);
}

static void *make_td(void)
{
	struct ibv_td_init_attr attr = {};

	return ibv_alloc_td(world.ctx, &attr);
}

static int unmake_td(void *td)
{
	return ibv_dealloc_td(td);
}

static void *make_parent(void)
{
	struct ibv_parent_domain_init_attr attr = { .pd = world.pd };

	return ibv_alloc_parent_domain(world.ctx, &attr);
}

static int prepare_file(void)
{
	char path[] = "/tmp/scale.XXXXXX";

	file = mkstemp(path);
	if (file < 0)
		return -1;
	return unlink(path);
}

static void *make_xrcd(void)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = file,
		.oflags = O_CREAT,
	};

	return ibv_open_xrcd(world.ctx, &attr);
}

static int unmake_xrcd(void *xrcd)
{
	return ibv_close_xrcd(xrcd);
}

static int prepare_share(void)
{
	alloc_shpd = keel_call("ibv_alloc_shpd");
	share_pd = keel_call("ibv_share_pd");
	if (!alloc_shpd || !share_pd)
		return -1;
	return alloc_shpd(world.pd, SHARE_KEY, &shared) ? 0 : -1;
}

/* A PD is shared once, and its handle lives as long as the PD. */
static void *make_shared(void)
{
	struct ibv_pd *pd = make_pd();
	struct ibv_shpd shpd;
	int saved;

	if (!pd || alloc_shpd(pd, SHARE_KEY, &shpd))
		return pd;
	saved = errno;
	ibv_dealloc_pd(pd);
	errno = saved;
	return NULL;
}

static void *make_joined(void)
{
	return share_pd(world.ctx, &shared, SHARE_KEY);
}

const struct kind domain_kinds[] = {
	{ "pd", NULL, make_pd, unmake_pd },
	{ "td", NULL, make_td, unmake_td },
	{ "parent", NULL, make_parent, unmake_pd },
	{ "xrcd", NULL, make_xrcd, unmake_xrcd },
	{ "xrcd_file", prepare_file, make_xrcd, unmake_xrcd },
	{ "shpd", prepare_share, make_shared, unmake_pd },
	{ "shpd_join", prepare_share, make_joined, unmake_pd },
	{}
};
