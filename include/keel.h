/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The device, and what the objects of its verbs have to know of each other.
 */
#ifndef KEEL_H
#define KEEL_H

#include <linux/hashtable.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/percpu.h>
#include <linux/refcount.h>
#include <linux/siphash.h>
#include <linux/spinlock.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/uverbs_types.h>

#include "compat.h"
#include "keel_aperture.h"
#include "keel_keys.h"
#include "keel_mcast.h"
#include "keel_obj.h"
#include "keel_worker.h"

#define UVERBS_MODULE_NAME keel
#include <rdma/uverbs_named_ioctl.h>

/* Limits, as ibv_query_device() tells them. */
#define KEEL_MAX_PD	16384
#define KEEL_MAX_MR	65536
#define KEEL_MAX_MW	65536
#define KEEL_MAX_AH	65536
/* Limits that ibv_query_device() has no word for. */
#define KEEL_MAX_TD	16384
#define KEEL_MAX_XRCD	16384
#define KEEL_MAX_DM	65536
/* Each is given out once. */
#define KEEL_MAX_HANDLES	BIT_ULL(32)
#define KEEL_MAX_QP	16384
#define KEEL_MAX_CQ	16384
#define KEEL_MAX_SRQ	16384
/* Outstanding reads and atomics of a QP, each way. */
#define KEEL_MAX_RD_ATOM	128
#define KEEL_MAX_MCAST_GRP	1024
#define KEEL_MAX_MCAST_QP	256
/* ib_core keeps 0 for "none" of many things; kernel QPs know this lkey. */
#define KEEL_LOCAL_DMA_LKEY	0

/* The core's type for it. */
#define KEEL_RDMA_DRIVER	((enum rdma_driver_id)KEEL_DRIVER_ID)

/* A locally administered OUI: keel is nobody's product. */
#define KEEL_VENDOR_ID	0x026b65

#define KEEL_PORT	1
#define KEEL_GIDS	256
#define KEEL_PKEYS	1

/**
 * struct keel_shpds - shared-PD handles of a device
 * @lock: protects @table, and &keel_domain.shpd of every domain
 * @table: by handle
 * @secret: turns @given into the next handle
 * @given: how many handles were ever given; none is given twice
 */
struct keel_shpds {
	struct mutex lock;
	DECLARE_HASHTABLE(table, 8);
	siphash_key_t secret;
	u64 given;
};

/*
 * Counters of a device, as "rdma statistic" names them. One line each: the
 * name and what it counts.
 */
#define KEEL_COUNTERS(X)						\
	X(tx_msgs)	/* messages that went */			\
	X(tx_bytes)	/* their bytes */				\
	X(rx_msgs)	/* messages that took a receive */		\
	X(rx_bytes)	/* their bytes */				\
	X(rdma_writes)	/* RDMA writes served */			\
	X(rdma_reads)	/* RDMA reads served */				\
	X(atomics)	/* atomics served */				\
	X(atomic_writes)	/* atomic writes served */		\
	X(rdma_flushes)	/* flushes of memory served */			\
	X(rnr_waits)	/* times that a queue began to wait for a receive */ \
	X(peer_waits)	/* times that a queue began to wait for a peer */ \
	X(ud_drops)	/* datagrams nobody could take */		\
	X(wc_errors)	/* completions in error, flushes left out */	\
	X(flushes)	/* work requests flushed */			\
	X(cq_overruns)	/* CQs that had no room */

enum keel_counter {
#define KEEL_COUNTER_ENUM(_name)	KEEL_CTR_##_name,
	KEEL_COUNTERS(KEEL_COUNTER_ENUM)
#undef KEEL_COUNTER_ENUM
	KEEL_NCOUNTERS,
};

struct keel_counters {
	u64 n[KEEL_NCOUNTERS];
};

/* No event. */
#define KEEL_EVENT_NONE	((enum ib_event_type)-1)

/**
 * struct keel_dev - a device
 * @ib: for ib_core
 * @reg: its objects
 * @keys: its lkeys and rkeys
 * @shpds: its shared-PD handles
 * @ap: its memory
 * @provider: what stands for @ap in transfers between devices, or NULL; good
 *	as long as the driver is bound, which is longer than the device
 * @qps: QPs by number
 * @qps_gone: how many were destroyed: who remembers one looks here
 * @qp_gens: how many lives QPs have had, see &keel_qp.gen
 * @srqs: SRQs by number
 * @next_qpn: where to look for the next number of a QP
 * @next_srqn: likewise for SRQs
 * @wq: runs queues that no doorbell runs: after a wait, of kernel consumers
 * @mcasts: multicast groups
 * @counters: per CPU
 * @own_netdev: a netdev that came with the device and goes with it, or NULL
 * @state: the page that says whether it has gone, &struct keel_uapi_state;
 *	contexts need it, and none is there while it changes
 * @port_event: of the port, the last one; under RTNL. KEEL_EVENT_NONE when the
 *	device comes: not under RTNL, but no program has it open yet
 * @debugfs: its directory
 */
struct keel_dev {
	struct ib_device ib;
	struct keel_registry reg;
	struct keel_keys keys;
	struct keel_shpds shpds;
	struct keel_aperture *ap;
	struct p2pdma_provider *provider;
	struct xarray qps;
	atomic64_t qps_gone;
	atomic64_t qp_gens;
	struct xarray srqs;
	u32 next_qpn;
	u32 next_srqn;
	struct workqueue_struct *wq;
	struct keel_mcasts mcasts;
	struct keel_counters __percpu *counters;
	struct net_device *own_netdev;
	struct page *state;
	enum ib_event_type port_event;
	struct dentry *debugfs;
};

/**
 * struct keel_domain - a protection scope: what keys are checked against
 * @obj: its number is the number of the domain
 * @instances: PDs that are not parent domains; the domain can be shared while
 *	there is one
 * @shpd: its shared-PD handle or NULL, under &keel_shpds.lock
 *
 * Has no uobject: instances and the shared-PD handle hold it.
 */
struct keel_domain {
	struct keel_obj obj;
	refcount_t instances;
	struct keel_shpd *shpd;
};

/**
 * keel_domain_join() - one more instance
 * @domain: the domain, which has one
 */
static inline void keel_domain_join(struct keel_domain *domain)
{
	refcount_inc(&domain->instances);
}

/**
 * struct keel_td - a thread domain
 * @obj: the object
 * @users: parent domains that use it and have a uobject. It rises under the
 *	TD uobject's read lock, and destroy looks at it under the write lock, so
 *	none can come between; it falls under no lock, which at worst refuses a
 *	destroy that a moment later would do.
 */
struct keel_td {
	struct keel_obj obj;
	atomic_t users;
};

/**
 * struct keel_pd - a PD, a parent domain, or an instance of a shared PD
 * @obj: the object; a PD holds its domain, a parent domain @base and @td
 * @domain: its domain, held by @obj, directly or through @base
 * @base: the PD that a parent domain was made from, or NULL
 * @td: the thread domain of a parent domain, or NULL
 * @joined: an instance of a domain that somebody else shared
 * @users: parent domains made from it, locked as &keel_td.users
 */
struct keel_pd {
	struct keel_obj obj;
	struct keel_domain *domain;
	struct keel_pd *base;
	struct keel_td *td;
	bool joined;
	atomic_t users;
};

/**
 * struct keel_dm - a buffer of device memory
 * @obj: the object
 * @ap: the aperture it is in
 * @start: its offset there
 * @length: bytes, as asked for; the rest of its last page is nobody's
 * @user: the user that its pages count for
 * @lock: protects @maps
 * @maps: mmap entries, each with a reference on @obj until the last mapping
 *	of it is gone
 */
struct keel_dm {
	struct keel_obj obj;
	struct keel_aperture *ap;
	u64 start;
	u64 length;
	struct keel_user *user;
	struct mutex lock;
	struct list_head maps;
};

/**
 * struct keel_xrcd - an XRC domain
 * @obj: the object
 * @ib: the core's part, valid until @obj closes
 * @dev: device number of the filesystem of its inode
 * @ino: number of the inode
 * @tied: there is an inode
 */
struct keel_xrcd {
	struct keel_obj obj;
	struct ib_xrcd *ib;
	dev_t dev;
	u64 ino;
	bool tied;
};

/* Structures that ib_core allocates, each with a pointer at the object. */
struct keel_ib_ctx {
	struct ib_ucontext ib;
	/* The user that opened it. To create its objects then finds the user. */
	struct keel_user *user;
	/* Where the mappings of its file are; NULL while there was none. */
	struct address_space *mapping;
	struct keel_workers workers;
};

struct keel_ib_pd {
	struct ib_pd ib;
	struct keel_pd *pd;
};

struct keel_ib_dm {
	struct ib_dm ib;
	struct keel_dm *dm;
};

struct keel_ib_xrcd {
	struct ib_xrcd ib;
	struct keel_xrcd *xrcd;
};

static inline struct keel_dev *to_kdev(struct ib_device *ib)
{
	return container_of(ib, struct keel_dev, ib);
}

static inline struct keel_ib_ctx *to_kctx(struct ib_ucontext *ib)
{
	return container_of(ib, struct keel_ib_ctx, ib);
}

static inline struct keel_workers *
keel_context_workers(const struct ib_ucontext *ib)
{
	return &to_kctx((struct ib_ucontext *)ib)->workers;
}

static inline struct keel_ib_pd *to_kibpd(struct ib_pd *ib)
{
	return container_of(ib, struct keel_ib_pd, ib);
}

static inline struct keel_pd *to_kpd(struct ib_pd *ib)
{
	return to_kibpd(ib)->pd;
}

static inline struct keel_xrcd *to_kxrcd(struct ib_xrcd *ib)
{
	return container_of(ib, struct keel_ib_xrcd, ib)->xrcd;
}

static inline struct keel_dm *to_kdm(struct ib_dm *ib)
{
	return container_of(ib, struct keel_ib_dm, ib)->dm;
}

/**
 * struct keel_dev_spec - a device to be
 * @name: its name, or a pattern such as "keel%d"
 * @netdev: the netdev its port is on
 * @own_netdev: the device takes @netdev over when it is registered, and
 *	keel_netdev_destroy()s it when it goes; its name is no user's choice
 * @ap: its memory, likewise taken over; NULL for memory of the kernel
 * @provider: what stands for @ap in transfers between devices; NULL: nothing
 * @parent: what it belongs to, or NULL
 */
struct keel_dev_spec {
	const char *name;
	struct net_device *netdev;
	bool own_netdev;
	struct keel_aperture *ap;
	struct p2pdma_provider *provider;
	struct device *parent;
};

/* device.c */
struct ib_device *keel_dev_create(const struct keel_dev_spec *spec);

/* link.c */
extern struct rdma_link_ops keel_link_ops;
struct ib_device *keel_dev_create_own(struct keel_dev_spec *spec);

/* port.c */
int keel_port_init(void);
void keel_port_exit(void);

/* netdev.c */
struct net_device *keel_netdev_create(struct device *parent);
void keel_netdev_destroy(struct net_device *netdev);

/* pci.c */
#if IS_ENABLED(CONFIG_PCI)
int keel_pci_init(void);
void keel_pci_exit(void);
#else
static inline int keel_pci_init(void)
{
	return 0;
}

static inline void keel_pci_exit(void)
{
}
#endif

/* domain.c */
struct keel_domain *keel_domain_create(struct keel_dev *kdev, bool kernel);
void keel_domain_leave(struct keel_dev *kdev, struct keel_domain *domain);

/* shpd.c */
void keel_shpds_init(struct keel_shpds *shpds);
struct keel_domain *keel_shpd_join(struct keel_dev *kdev, u32 handle, u64 key);
void keel_shpd_remove(struct keel_domain *domain);
#if IS_ENABLED(CONFIG_KUNIT)
u32 keel_shpd_permute(const struct keel_shpds *shpds, u32 n);
bool keel_shpd_key_equal(u64 a, u64 b);
#endif

/* dm_map.c */
const struct keel_aperture_seg *
keel_dm_map_seg(struct rdma_user_mmap_entry *entry);
void keel_dm_unmap(struct keel_dm *dm);

/* dm_export.c */
#if KEEL_DMABUF_EXPORT
void keel_dm_export_offer(struct keel_dev *kdev);
#else
static inline void keel_dm_export_offer(struct keel_dev *kdev)
{
}
#endif

/* gone.c */
int keel_gone_init(void);
void keel_gone_exit(void);
void keel_state_free(struct keel_dev *kdev);
int keel_state_mmap(struct keel_dev *kdev, struct vm_area_struct *vma);

/* holders.c */
int keel_holders_respond(struct uverbs_attr_bundle *attrs,
			 struct keel_obj *obj, bool core);

/* Attributes of every KEEL_METHOD_*_HOLDERS besides the handle. */
#define KEEL_HOLDERS_ATTRS						\
	UVERBS_ATTR_PTR_OUT(KEEL_ATTR_HOLDERS_RESP_LIST,		\
			    UVERBS_ATTR_MIN_SIZE(0), UA_OPTIONAL),	\
	UVERBS_ATTR_PTR_OUT(KEEL_ATTR_HOLDERS_RESP_COUNT,		\
			    UVERBS_ATTR_TYPE(u32), UA_MANDATORY),	\
	UVERBS_ATTR_FLAGS_IN(KEEL_ATTR_HOLDERS_FLAGS,			\
			     enum keel_uapi_holders_flags, UA_OPTIONAL)

/* counters.c */
#define keel_count(_kdev, _name, _by)					\
	this_cpu_add((_kdev)->counters->n[KEEL_CTR_##_name], _by)

/* debugfs.c */
int keel_debugfs_init(void);
void keel_debugfs_exit(void);

/* Each object's share of the ops and of the uverbs tree. */
extern const struct ib_device_ops keel_ah_ops;
extern const struct ib_device_ops keel_context_ops;
extern const struct ib_device_ops keel_counters_ops;
extern const struct ib_device_ops keel_cq_ops;
extern const struct ib_device_ops keel_dm_map_ops;
extern const struct ib_device_ops keel_dm_ops;
extern const struct ib_device_ops keel_gone_ops;
extern const struct ib_device_ops keel_mcast_ops;
extern const struct ib_device_ops keel_mr_kernel_ops;
extern const struct ib_device_ops keel_mr_dmabuf_ops;
extern const struct ib_device_ops keel_mr_odp_ops;
extern const struct ib_device_ops keel_mr_ops;
extern const struct ib_device_ops keel_mw_ops;
extern const struct ib_device_ops keel_pd_ops;
extern const struct ib_device_ops keel_port_ops;
extern const struct ib_device_ops keel_post_ops;
extern const struct ib_device_ops keel_qp_ops;
extern const struct ib_device_ops keel_srq_ops;
extern const struct ib_device_ops keel_xrcd_ops;

extern const struct uapi_definition keel_context_defs[];
extern const struct uapi_definition keel_dm_defs[];
extern const struct uapi_definition keel_dm_map_defs[];
extern const struct uapi_definition keel_pd_defs[];
extern const struct uapi_definition keel_qp_defs[];
extern const struct uapi_definition keel_shpd_defs[];
extern const struct uapi_definition keel_srq_defs[];
extern const struct uapi_definition keel_td_defs[];

#endif /* KEEL_H */
