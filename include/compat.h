/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The only place that handles differences between kernel versions.
 *
 * Kbuild searches the headers of the target kernel for each feature and defines
 * KEEL_HAVE_* if it is there. keel compares no version numbers. The rest of keel
 * is written for the newest interface.
 */
#ifndef KEEL_COMPAT_H
#define KEEL_COMPAT_H

#include <linux/bits.h>
#include <linux/hrtimer.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/netdevice.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>
#include <net/ipv6.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#ifdef KEEL_HAVE_IPV6_STUB
#include <net/ipv6_stubs.h>
#endif
#ifdef KEEL_HAVE_VHOST_TASK
#include <linux/sched/vhost_task.h>
#endif

struct p2pdma_provider;
struct pci_dev;

/*
 * Annotations for clang's context analysis, see Documentation/testing.rst. Older
 * kernels lack most of them, and define some for sparse, with one argument.
 */
#ifndef __guarded_by
#define __guarded_by(...)
#define __pt_guarded_by(...)
#undef __must_hold
#define __must_hold(...)
#define __must_hold_shared(...)
#undef __acquires
#define __acquires(...)
#undef __cond_acquires
#define __cond_acquires(...)
#undef __releases
#define __releases(...)
#define __context_unsafe(_why)
/* Code that is correct without the lock: a comment says why. */
#define context_unsafe(...)	({ __VA_ARGS__; })
#endif

/* Allocation by type. */
#ifndef kzalloc_obj
#define keel_gfp(_zero, _gfp, ...)	((_zero) | (_gfp))
#define kzalloc_obj(_obj, ...)		\
	kzalloc(sizeof(_obj), keel_gfp(0, ##__VA_ARGS__, GFP_KERNEL))
#endif
#ifndef kvzalloc_obj
#define kvzalloc_obj(_obj, ...)		\
	kvzalloc(sizeof(_obj), keel_gfp(0, ##__VA_ARGS__, GFP_KERNEL))
#endif

/* Free at the end of the scope. */
#ifndef KEEL_HAVE_FREE_KVFREE
DEFINE_FREE(kvfree, void *, if (!IS_ERR_OR_NULL(_T)) kvfree(_T))
#endif

/* Strings: newer kernels do not need the size of an array. */
#ifndef strscpy
#define keel_strscpy(_fn, _dst, _src, _size, ...)	_fn(_dst, _src, _size)
#define strscpy(_dst, _src, ...)	\
	keel_strscpy(strscpy, _dst, _src, ##__VA_ARGS__, sizeof(_dst))
#define strscpy_pad(_dst, _src, ...)	\
	keel_strscpy(strscpy_pad, _dst, _src, ##__VA_ARGS__, sizeof(_dst))
#endif

/* Newer kernels do not repeat the source of a string in a trace event. */
#ifdef KEEL_HAVE_ASSIGN_STR_ONE
#define keel_assign_str(_dst, _src)	\
	do { __assign_str(_dst); (void)(_src); } while (0)
#else
#define keel_assign_str(_dst, _src)	__assign_str(_dst, _src)
#endif

/* MAX_ORDER was the largest order in some kernels, and one more in others. */
#ifndef MAX_PAGE_ORDER
#define MAX_PAGE_ORDER	ilog2(MAX_ORDER_NR_PAGES)
#endif

/* Older kernels can also return the vmas of pinned pages. */
#ifdef KEEL_HAVE_PIN_VMAS
#define pin_user_pages_remote(_mm, _start, _n, _flags, _pages, _locked)	\
	pin_user_pages_remote(_mm, _start, _n, _flags, _pages, NULL, _locked)
#endif

/* A netdev that cannot be moved to another namespace: a feature bit once. */
static inline void keel_netdev_pin(struct net_device *netdev)
{
#ifdef KEEL_HAVE_NETNS_IMMUTABLE
	netdev->netns_immutable = true;
#else
	netdev->features |= NETIF_F_NETNS_LOCAL;
#endif
}

/* The namespace of a symbol: once an identifier, now a string. */
#ifdef KEEL_HAVE_STRING_NS
#define KEEL_IMPORT_NS(_ns)	MODULE_IMPORT_NS(#_ns)
#else
#define KEEL_IMPORT_NS(_ns)	MODULE_IMPORT_NS(_ns)
#endif

/* reg_user_mr() got a DMA handle argument together with struct ib_dmah. */
#ifdef KEEL_HAVE_DMAH
#define KEEL_DMAH_PARAM	struct ib_dmah *dmah,
#define KEEL_DMAH_SET	(!!dmah)
#else
#define KEEL_DMAH_PARAM
#define KEEL_DMAH_SET	false
#endif

/* The type of the last argument of reg_user_mr_dmabuf(). */
#ifdef KEEL_HAVE_DMABUF_ATTRS
#define KEEL_DMABUF_ATTRS	struct uverbs_attr_bundle *
#else
#define KEEL_DMABUF_ATTRS	struct ib_udata *
#endif

/* In older kernels the plain functions take the lock themselves. */
#ifndef KEEL_HAVE_DMABUF_VMAP_UNLOCKED
#define dma_buf_vmap_unlocked	dma_buf_vmap
#define dma_buf_vunmap_unlocked	dma_buf_vunmap
#endif

/*
 * Export of device memory as a dma-buf. Separate source files implement it, and
 * are built only if ib_core supports it. It needs the object that represents a BAR
 * in transfers between devices.
 */
#ifdef KEEL_HAVE_DMABUF_EXPORT
#include <linux/pci-p2pdma.h>
#define KEEL_DMABUF_EXPORT	1
static inline struct p2pdma_provider *keel_p2pdma_provider(struct pci_dev *pdev,
							   int bar)
{
	return pcim_p2pdma_init(pdev) ? NULL : pcim_p2pdma_provider(pdev, bar);
}
#else
#define KEEL_DMABUF_EXPORT	0
static inline struct p2pdma_provider *keel_p2pdma_provider(struct pci_dev *pdev,
							   int bar)
{
	return NULL;
}
#endif

/* Older kernels set up a timer and its function in two steps. */
#ifndef KEEL_HAVE_HRTIMER_SETUP
static inline void hrtimer_setup(struct hrtimer *timer,
				 enum hrtimer_restart (*fn)(struct hrtimer *),
				 clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = fn;
}
#endif

/*
 * Flush and atomic write, with the numbers of newer kernels. An atomic write needs
 * no support of ib_core. A flush needs a region with the right to be flushed. A
 * core that does not know this right cannot grant it, so the device does not
 * report flush there.
 */
#ifndef KEEL_HAVE_A19
#define IB_WR_FLUSH			14
#define IB_WR_ATOMIC_WRITE		15
#define IB_WC_FLUSH			8
#define IB_WC_ATOMIC_WRITE		9
#define IB_FLUSH_GLOBAL			BIT(0)
#define IB_FLUSH_PERSISTENT		BIT(1)
#define IB_FLUSH_MR			1
#define IB_ACCESS_FLUSH_GLOBAL		BIT(8)
#define IB_ACCESS_FLUSH_PERSISTENT	BIT(9)
#define IB_DEVICE_FLUSH_GLOBAL		0
#define IB_DEVICE_ATOMIC_WRITE		BIT_ULL(40)
#endif

/* On-demand paging for flush and atomic write: newer than both operations. */
#ifdef KEEL_HAVE_ODP_A19
#define KEEL_ODP_SUPPORT_A19	(IB_ODP_SUPPORT_FLUSH |		\
				 IB_ODP_SUPPORT_ATOMIC_WRITE)
#else
#define KEEL_ODP_SUPPORT_A19	0
#endif

/*
 * A thread of the calling process that runs a kernel function. If a driver cannot
 * have one: a workqueue that runs one work item at a time.
 *
 * keel_thread_start() starts the thread. It calls @run until that returns false,
 * and again after keel_thread_wake(). It calls @die when the process is killed.
 * keel_thread_stop() ends the thread, and waits for it.
 */
#ifdef KEEL_HAVE_VHOST_TASK
struct keel_thread {
	struct vhost_task *task;
};

static inline int keel_thread_start(struct keel_thread *thread,
				    bool (*run)(void *data),
				    void (*die)(void *data), void *data)
{
	char name[TASK_COMM_LEN];
	struct vhost_task *task;

	snprintf(name, sizeof(name), "keel-%d", task_tgid_vnr(current));
	task = vhost_task_create(run, die, data, name);
	if (IS_ERR(task))
		return PTR_ERR(task);
	/* Older kernels return NULL: for a signal, or too many threads. */
	if (!task)
		return signal_pending(current) ? -ERESTARTNOINTR : -EAGAIN;
	thread->task = task;
	vhost_task_start(task);
	return 0;
}

/*
 * For all that @run calls: true if work waits for the thread to return to userspace, which
 * it never does: the last fput() of a file, and since 6.18 the limits of its cgroup. What
 * takes long must end soon.
 */
static inline bool keel_thread_must_return(void)
{
	return test_thread_flag(TIF_NOTIFY_RESUME);
}

/*
 * For @run: true if there is such work. The thread does this work when @run returns; @run
 * must return at once.
 */
static inline bool keel_thread_return(void)
{
	if (!keel_thread_must_return())
		return false;
	clear_thread_flag(TIF_NOTIFY_RESUME);
	/* The thread then handles signals, and does that work first. */
	set_thread_flag(TIF_SIGPENDING);
	return true;
}

static inline void keel_thread_wake(struct keel_thread *thread)
{
	/* No job is queued before keel_thread_start() has returned. */
	vhost_task_wake(thread->task);
}

static inline void keel_thread_stop(struct keel_thread *thread)
{
	vhost_task_stop(thread->task);
}

/* The thread keeps the memory of its process, and ends with the process. */
#define KEEL_THREAD_HAS_MM	true

/* May be true for threads of other drivers, too. */
static inline bool keel_thread_is_one(const struct task_struct *task)
{
	return task->flags & PF_USER_WORKER;
}
#else
struct keel_thread {
	struct workqueue_struct *wq;
	struct work_struct work;
	bool (*run)(void *data);
	void *data;
};

static inline void keel_thread_work(struct work_struct *work)
{
	struct keel_thread *thread = container_of(work, struct keel_thread,
						  work);

	while (thread->run(thread->data))
		;
}

static inline int keel_thread_start(struct keel_thread *thread,
				    bool (*run)(void *data),
				    void (*die)(void *data), void *data)
{
	/* As processes are: see asleep.c. */
	thread->wq = alloc_workqueue("keel-%d", WQ_UNBOUND | WQ_FREEZABLE, 1,
				     task_tgid_nr(current));
	INIT_WORK(&thread->work, keel_thread_work);
	thread->run = run;
	thread->data = data;
	return thread->wq ? 0 : -ENOMEM;
}

static inline bool keel_thread_must_return(void)
{
	return false;
}

static inline bool keel_thread_return(void)
{
	return false;
}

static inline void keel_thread_wake(struct keel_thread *thread)
{
	queue_work(thread->wq, &thread->work);
}

static inline void keel_thread_stop(struct keel_thread *thread)
{
	destroy_workqueue(thread->wq);
}

#define KEEL_THREAD_HAS_MM	false

static inline bool keel_thread_is_one(const struct task_struct *task)
{
	return false;
}
#endif

/* Run a thread before those with a usual priority, until sched_set_normal(). */
static inline void keel_thread_hurry(struct task_struct *task)
{
	/* A cgroup may have no time for real-time threads. */
	if (IS_ENABLED(CONFIG_RT_GROUP_SCHED))
		sched_set_normal(task, MIN_NICE);
	else
		sched_set_fifo_low(task);
}

/* Older kernels remove address tags only for the current process. */
#ifndef KEEL_HAVE_UNTAGGED_REMOTE
#define untagged_addr_remote(_mm, _addr)	((void)(_mm), untagged_addr(_addr))
#endif

/* In older kernels drivers write to the flags of a vma directly. */
#ifndef KEEL_HAVE_VM_FLAGS_CLEAR
#define vm_flags_clear(_vma, _flags)	((_vma)->vm_flags &= ~(_flags))
#endif

/* Pinning by user address was renamed when umems got other sources. */
#ifndef KEEL_HAVE_UMEM_GET_VA
#define ib_umem_get_va	ib_umem_get
#endif

/* The op that resizes a CQ was renamed, as only user CQs use it. */
#ifdef KEEL_HAVE_RESIZE_USER_CQ
#define KEEL_RESIZE_CQE		unsigned int
#define KEEL_RESIZE_CQ(_fn)	.resize_user_cq = _fn,
#else
#define KEEL_RESIZE_CQE		int
#define KEEL_RESIZE_CQ(_fn)	.resize_cq = _fn,
#endif

/* create_cq() got the attribute bundle, which includes the udata. */
#ifdef KEEL_HAVE_CREATE_CQ_ATTRS
#define KEEL_CREATE_CQ_CALL	struct uverbs_attr_bundle
#define KEEL_CREATE_CQ_UDATA(_call)	((_call) ? &(_call)->driver_udata : NULL)
#else
#define KEEL_CREATE_CQ_CALL	struct ib_udata
#define KEEL_CREATE_CQ_UDATA(_call)	(_call)
#endif

/* Older kernels do not ask the driver for "rdma resource show srq". */
#ifdef KEEL_HAVE_FILL_RES_SRQ
#define KEEL_FILL_RES_SRQ(_fn)	.fill_res_srq_entry = _fn,
#else
#define KEEL_FILL_RES_SRQ(_fn)
#endif

/* Older kernels do not show in sysfs how a device got its name. */
#ifndef KEEL_HAVE_NAME_ASSIGN
static inline void ib_mark_name_assigned_by_user(struct ib_device *ibdev)
{
}
#endif

/*
 * Since Linux 6.11, iw_destroy_cm_id() waits for handlers. No header tells so: this stands for
 * Linux 6.12.
 */
#ifdef KEEL_HAVE_GET_NETDEV
#define KEEL_IW_WAITS	true
#else
#define KEEL_IW_WAITS	false
#endif

/* Not exported by older kernels. Returns NULL if the netdev is being removed. */
#ifndef KEEL_HAVE_GET_NETDEV
static inline struct net_device *ib_device_get_netdev(struct ib_device *ibdev,
						      u32 port)
{
	struct ib_port_data *data = &ibdev->port_data[port];
	struct net_device *netdev;

	spin_lock(&data->netdev_lock);
	netdev = rcu_dereference_protected(data->netdev,
					   lockdep_is_held(&data->netdev_lock));
	dev_hold(netdev);
	spin_unlock(&data->netdev_lock);
	if (netdev && netdev->reg_state != NETREG_REGISTERED) {
		dev_put(netdev);
		netdev = NULL;
	}
	return netdev;
}
#endif

/*
 * ib_core's rules for driver data in requests and responses, for kernels without
 * the helpers. A shorter request is padded with zeros. The excess bytes of a longer
 * request must be zero. A response is truncated to the buffer of the caller, and
 * the rest of a longer buffer is cleared.
 */
#ifndef KEEL_HAVE_ROBUST_UDATA
static inline int keel_udata_in(struct ib_udata *udata, void *req, size_t size,
				size_t min)
{
	int ret;

	if (udata->inlen < min)
		return -EINVAL;
	ret = copy_struct_from_user(req, size, udata->inbuf, udata->inlen);
	return ret == -E2BIG ? -EOPNOTSUPP : ret;
}

#define ib_copy_validate_udata_in(_udata, _req, _end_member)	\
	keel_udata_in(_udata, &(_req), sizeof(_req),		\
		      offsetofend(typeof(_req), _end_member))

static inline int ib_is_udata_in_empty(struct ib_udata *udata)
{
	int ret;

	if (!udata || !udata->inlen)
		return 0;
	/* Not ib_is_udata_cleared(): to it, an unreadable buffer is not zero. */
	ret = check_zeroed_user(udata->inbuf, udata->inlen);
	if (ret < 0)
		return ret;
	return ret ? 0 : -EOPNOTSUPP;
}

static inline int ib_respond_empty_udata(struct ib_udata *udata)
{
	if (udata && udata->outlen && clear_user(udata->outbuf, udata->outlen))
		return -EFAULT;
	return 0;
}

static inline int ib_no_udata_io(struct ib_udata *udata)
{
	int ret = ib_is_udata_in_empty(udata);

	return ret ? ret : ib_respond_empty_udata(udata);
}

static inline int keel_udata_out(struct ib_udata *udata, void *resp,
				 size_t size)
{
	size_t len = min(size, udata->outlen);

	if (len && copy_to_user(udata->outbuf, resp, len))
		return -EFAULT;
	if (udata->outlen > size &&
	    clear_user(udata->outbuf + size, udata->outlen - size))
		return -EFAULT;
	return 0;
}

#define ib_respond_udata(_udata, _rep)	\
	keel_udata_out(_udata, &(_rep), sizeof(_rep))

#define KEEL_ROBUST_UDATA
#else
#define KEEL_ROBUST_UDATA	.uverbs_robust_udata = true,
#endif

/*
 * ib_core exports these for the uverbs module, which creates PDs, and declares them
 * in a private header. keel creates parent domains itself, and "rdma resource show"
 * must list them with the other PDs. It must also list regions whose
 * ibv_dereg_mr() was refused.
 */
void rdma_restrack_new(struct rdma_restrack_entry *res,
		       enum rdma_restrack_type type);
void rdma_restrack_set_name(struct rdma_restrack_entry *res,
			    const char *caller);
void rdma_restrack_add(struct rdma_restrack_entry *res);

/*
 * Newer cores turn changes of netdevs into port events. A driver that raises these
 * events itself must say so. (@_fn is otherwise not used: __maybe_unused.)
 */
#ifdef KEEL_HAVE_PORT_EVENT_OP
#define KEEL_REPORT_PORT_EVENT(_fn)	.report_port_event = (_fn),
#else
#define KEEL_REPORT_PORT_EVENT(_fn)
#endif

/* Find a route, with a reference; or an error. In older kernels, IPv6 may be a module. */
static inline struct dst_entry *keel_ip6_route(struct net *net, struct flowi6 *fl6)
{
#if !IS_ENABLED(CONFIG_IPV6)
	return ERR_PTR(-EAFNOSUPPORT);
#elif defined(KEEL_HAVE_IPV6_STUB)
	return ipv6_stub->ipv6_dst_lookup_flow(net, NULL, fl6, NULL);
#else
	return ip6_dst_lookup_flow(net, NULL, fl6, NULL);
#endif
}

/*
 * A symbol that ib_uverbs exports, function or data. In kernels where much of
 * ib_uverbs has moved to ib_core, few of its exports are of use to a driver.
 */
#ifdef KEEL_HAVE_MMAP_DISASSOCIATE
#define KEEL_OF_UVERBS	rdma_user_mmap_disassociate
#else
#define KEEL_OF_UVERBS	uverbs_idr_class
#endif

#endif /* KEEL_COMPAT_H */
