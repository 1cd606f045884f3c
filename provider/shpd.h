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
 * struct ibv_shpd - identifies a shared protection domain
 * @context: context of the PD that was shared; ibv_share_pd() ignores it
 * @handle: identifies the domain on the device
 *
 * Plain data, owned by the application. The application may copy it, and send
 * it to another process through a file, a pipe or shared memory.
 */
struct ibv_shpd {
	struct ibv_context *context;
	uint32_t handle;
};

/**
 * ibv_alloc_shpd - share the domain of a PD with other contexts
 * @pd: from ibv_alloc_pd(); neither a parent domain nor from ibv_share_pd()
 * @share_key: secret that a process must know to join the domain
 * @shpd: filled in
 *
 * A domain can be shared once. Returns @shpd, or NULL and sets errno: EINVAL,
 * EOPNOTSUPP (not a keel device), ENOMEM, ENOSPC (the device has no handle
 * left, or the user has used up its share).
 */
struct ibv_shpd *ibv_alloc_shpd(struct ibv_pd *pd, uint64_t share_key,
				struct ibv_shpd *shpd);

/**
 * ibv_share_pd - join a shared protection domain
 * @context: any context of the same device
 * @shpd: from ibv_alloc_shpd(), in this process or in another one
 * @share_key: the key that was passed to ibv_alloc_shpd()
 *
 * Returns a new PD, which is an instance of the same domain, or NULL and sets
 * errno: EINVAL, EOPNOTSUPP (not a keel device), EACCES (the handle or the key
 * is not valid), ENOMEM. ibv_dealloc_pd() deallocates the PD.
 */
struct ibv_pd *ibv_share_pd(struct ibv_context *context, struct ibv_shpd *shpd,
			    uint64_t share_key);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_SHPD_H */
