/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Shared protection domains: one domain, used by several contexts or
 * processes of one device. Link with -lkeel -libverbs.
 */
#ifndef INFINIBAND_SHPD_H
#define INFINIBAND_SHPD_H

#include <stdint.h>

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct ibv_shpd - names a shared protection domain
 * @context: the context that ibv_alloc_shpd() was called in; means nothing in
 *	another process
 * @handle: what ibv_share_pd() needs
 *
 * Plain data, owned by the program: it may be copied, and sent to another
 * process through a file, a pipe or shared memory.
 */
struct ibv_shpd {
	struct ibv_context *context;
	uint32_t handle;
};

/**
 * ibv_alloc_shpd - let others join the domain of a PD
 * @pd: from ibv_alloc_pd(); neither a parent domain nor from ibv_share_pd()
 * @share_key: what others must know to join
 * @shpd: filled in
 *
 * Once per PD. Returns @shpd, or NULL and errno: EINVAL, EOPNOTSUPP (not a
 * keel device), ENOSPC (the device has given out every handle it has).
 */
struct ibv_shpd *ibv_alloc_shpd(struct ibv_pd *pd, uint64_t share_key,
				struct ibv_shpd *shpd);

/**
 * ibv_share_pd - join a shared protection domain
 * @context: any context of the same device
 * @shpd: what ibv_alloc_shpd() filled in, here or in another process
 * @share_key: the key that was given to ibv_alloc_shpd()
 *
 * Returns a new PD, an instance of the same domain, to be deallocated with
 * ibv_dealloc_pd(); or NULL and errno: EINVAL, EOPNOTSUPP (not a keel
 * device), EACCES (no such handle, or not its key), ENOMEM.
 */
struct ibv_pd *ibv_share_pd(struct ibv_context *context, struct ibv_shpd *shpd,
			    uint64_t share_key);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_SHPD_H */
