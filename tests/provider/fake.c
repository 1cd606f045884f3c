// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel's side of rings, and the device as a file. See fake.h.
 */
#include <sys/mman.h>

#include "fake.h"
#include "tree.h"

struct fake fake;
__thread unsigned int fake_locks;
atomic_uint fake_all_locks;

/* LeakSanitizer, in the builds that have it. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

/* The harness calls it outside of the test. fake_close() does the check. */
bool tree_is_empty(const char *dev, char *why, size_t size)
{
	return true;
}

/* The provider registers itself when the program starts. */
void verbs_register_driver_34(const struct verbs_device_ops *ops)
{
	fake.ops = ops;
}

/* libibverbs would open a device file. */
static struct verbs_context *alloc_context(struct ibv_device *device, int fd,
					   void *private_data)
{
	fd = SYS(memfd_create("fake", 0));
	SYS(ftruncate(fd, FAKE_DEVICE));
	fake.device = mmap(NULL, FAKE_DEVICE, PROT_READ | PROT_WRITE,
			   MAP_SHARED, fd, 0);
	CHECK(fake.device != MAP_FAILED);
	/* The provider owns the descriptor. */
	return fake.ops->alloc_context(device, fd, private_data);
}

struct ibv_context *fake_try_open(void)
{
	struct verbs_device *vdev = MUST(fake.ops->alloc_device(NULL));
	struct verbs_device_ops ops = *fake.ops;
	int err;

	ops.alloc_context = alloc_context;
	vdev->ops = &ops;
	atomic_init(&vdev->refcount, 1);
	strcpy(vdev->device.name, "fake0");
	fake.ctx = ibv_open_device(&vdev->device);
	err = errno;
	vdev->ops = fake.ops;
	if (!fake.ctx)
		fake.ops->uninit_device(vdev);
	errno = err;
	return fake.ctx;
}

struct ibv_context *fake_open(void)
{
	return MUST(fake_try_open());
}

void fake_map_fails(int err)
{
	struct keel_ring_pool *pool = &to_kctx(fake.ctx)->pool;

	keel_pool_fini(pool);
	keel_pool_init(pool, KEEL_POOL_RINGS);
	fake.fail[FAKE_MMAP] = err;
}

void fake_close(void)
{
	struct ibv_device *dev = fake.ctx->device;

	CHECK_EQ(fake.live, 0);
	CHECK_EQ(fake.dontfork, 0);
	CHECK_OK(ibv_close_device(fake.ctx));
	fake.ctx = NULL;
	fake.ops->uninit_device(verbs_get_device(dev));
	munmap(fake.device, FAKE_DEVICE);
	if (__lsan_do_recoverable_leak_check)
		CHECK(!__lsan_do_recoverable_leak_check());
}

/* Set before anything of the device changes, as the kernel does. */
void fake_gone(void)
{
	struct keel_uapi_state *state = (void *)fake.device;

	__atomic_store_n(&state->gone, 1, __ATOMIC_RELEASE);
}

void fake_count(int n)
{
	__atomic_fetch_add(&fake.live, n, __ATOMIC_RELAXED);
}

void fake_has_object(enum fake_kind kind, uint32_t handle)
{
	CHECK(handle < FAKE_OBJECTS);
	CHECK(fake.objects[kind][handle] > 0);
}

void fake_add_object(enum fake_kind kind, uint32_t handle)
{
	CHECK(handle < FAKE_OBJECTS);
	fake.objects[kind][handle]++;
	fake_count(1);
}

void fake_drop_object(enum fake_kind kind, uint32_t handle)
{
	fake_has_object(kind, handle);
	fake.objects[kind][handle]--;
	fake_count(-1);
}

int fake_enter(enum fake_call call)
{
	int err = fake.fail[call];

	__atomic_fetch_add(&fake.calls[call], 1, __ATOMIC_RELAXED);
	if (!err)
		return 0;
	if (fake.pass[call]) {
		fake.pass[call]--;
		return 0;
	}
	fake.fail[call] = 0;
	return err;
}

int fake_leave(enum fake_call call, uint32_t handle)
{
	if (fake.hook)
		fake.hook(call, handle);
	return 0;
}

static bool is_zero(const void *mem, size_t len)
{
	const uint8_t *byte = mem;

	while (len && !*byte) {
		byte++;
		len--;
	}
	return !len;
}

int fake_ring_map(struct fake_ring *ring, const struct keel_uapi_buf *buf,
		  uint32_t entries, uint32_t stride, bool exact)
{
	struct keel_uapi_ring *head = (void *)(uintptr_t)buf->addr;

	if (!buf->addr || buf->addr % 64 || !buf->entries ||
	    buf->entries & (buf->entries - 1) || buf->entries < entries)
		return EINVAL;
	if (buf->stride % 16 || buf->stride > KEEL_MAX_STRIDE ||
	    buf->stride < stride || (exact && buf->stride != stride))
		return EINVAL;
	if (!is_zero(head, sizeof(*head)))
		return EINVAL;
	*ring = (struct fake_ring){
		.head = head, .mask = buf->entries - 1, .stride = buf->stride,
	};
	return 0;
}

void fake_at(struct keel_ring *user, struct fake_ring *ring, uint32_t index)
{
	CHECK(user->shared == ring->head);
	user->user = index;
	ring->head->user = index;
	ring->index = index;
	ring->head->kernel = index;
}

void *fake_slot(const struct fake_ring *ring, uint32_t index)
{
	return (uint8_t *)(ring->head + 1) +
	       (size_t)(index & ring->mask) * ring->stride;
}

uint32_t fake_posted(const struct fake_ring *ring)
{
	return __atomic_load_n(&ring->head->user, __ATOMIC_ACQUIRE) -
	       ring->index;
}

uint32_t fake_queued(const struct fake_ring *ring)
{
	return ring->index -
	       __atomic_load_n(&ring->head->user, __ATOMIC_ACQUIRE);
}

void fake_advance(struct fake_ring *ring)
{
	__atomic_store_n(&ring->head->kernel, ++ring->index, __ATOMIC_RELEASE);
}

struct fake_cq *fake_cq(struct ibv_cq *cq)
{
	return &fake.cq[cq->handle];
}

struct fake_rq *fake_srq(struct ibv_srq *srq)
{
	return &fake.srq[srq->handle];
}

struct fake_qp *fake_qp(struct ibv_qp *qp)
{
	return &fake.qp[qp->handle];
}

struct fake_cq *fake_live_cq(struct ibv_cq *cq)
{
	CHECK(cq->handle < FAKE_OBJECTS && fake_cq(cq)->live);
	return fake_cq(cq);
}

struct fake_rq *fake_live_srq(struct ibv_srq *srq)
{
	CHECK(srq->handle < FAKE_OBJECTS && fake_srq(srq)->live);
	return fake_srq(srq);
}

struct fake_qp *fake_live_qp(struct ibv_qp *qp)
{
	CHECK(qp->handle < FAKE_OBJECTS && fake_qp(qp)->live);
	return fake_qp(qp);
}

static void raise_event(struct fake_cq *cq, bool solicited)
{
	uint32_t *arm = &cq->ring.head->arm;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	switch (__atomic_load_n(arm, __ATOMIC_RELAXED)) {
	case KEEL_ARM_NEXT:
		break;
	case KEEL_ARM_SOLICITED:
		if (solicited)
			break;
		return;
	default:
		return;
	}
	__atomic_exchange_n(arm, KEEL_ARM_NONE, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&cq->events, 1, __ATOMIC_SEQ_CST);
}

static void put(struct fake_cq *cq, const struct keel_uapi_cqe *cqe,
		bool solicited)
{
	struct fake_ring *ring = &cq->ring;

	memcpy(fake_slot(ring, ring->index), cqe, sizeof(*cqe));
	fake_advance(ring);
	raise_event(cq, solicited || cqe->status != IBV_WC_SUCCESS);
}

static bool full(const struct fake_ring *ring)
{
	return fake_queued(ring) > ring->mask;
}

int fake_add(struct ibv_cq *ibcq, const struct keel_uapi_cqe *cqe,
	     bool solicited)
{
	struct fake_cq *cq = fake_cq(ibcq);
	int ret;

	pthread_mutex_lock(&cq->lock);
	if (cq->dead || full(&cq->ring))
		cq->dead = true;
	else
		put(cq, cqe, solicited);
	ret = cq->dead ? EIO : 0;
	pthread_mutex_unlock(&cq->lock);
	return ret;
}

bool fake_try_add(struct ibv_cq *ibcq, const struct keel_uapi_cqe *cqe,
		  bool solicited)
{
	struct fake_cq *cq = fake_cq(ibcq);
	bool room;

	pthread_mutex_lock(&cq->lock);
	CHECK(!cq->dead);
	room = !full(&cq->ring);
	if (room)
		put(cq, cqe, solicited);
	pthread_mutex_unlock(&cq->lock);
	return room;
}

void fake_wc(struct ibv_cq *cq, uint64_t wr_id, uint32_t qpn)
{
	struct keel_uapi_cqe cqe = {
		.wr_id = wr_id, .qp_num = qpn, .opcode = IBV_WC_SEND,
	};

	CHECK_OK(fake_add(cq, &cqe, false));
}

void fake_wcs(struct ibv_cq *cq, uint64_t first, int n)
{
	int i;

	for (i = 0; i < n; i++)
		fake_wc(cq, first + i, 1);
}

static void *take(struct fake_ring *ring)
{
	static __thread uint8_t wqe[KEEL_MAX_STRIDE]
		__attribute__((aligned(16)));

	CHECK(fake_posted(ring) > 0);
	CHECK(fake_posted(ring) <= ring->mask + 1);
	memcpy(wqe, fake_slot(ring, ring->index), ring->stride);
	fake_advance(ring);
	return wqe;
}

struct keel_uapi_send_wqe *fake_take(struct fake_ring *ring, uint64_t wr_id)
{
	struct keel_uapi_send_wqe *wqe = take(ring);

	CHECK_EQ(wqe->wr_id, wr_id);
	return wqe;
}

struct keel_uapi_recv_wqe *fake_take_recv(struct fake_ring *ring,
					  uint64_t wr_id)
{
	struct keel_uapi_recv_wqe *wqe = take(ring);

	CHECK_EQ(wqe->wr_id, wr_id);
	return wqe;
}

struct ibv_pd *fake_parent(struct ibv_pd *pd, struct ibv_td *td)
{
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td };

	return MUST(ibv_alloc_parent_domain(fake.ctx, &attr));
}

struct ibv_cq *fake_new_cq(int cqe)
{
	return MUST(ibv_create_cq(fake.ctx, cqe, NULL, NULL, 0));
}

struct ibv_cq_ex *fake_new_cq_ex(uint32_t cqe, uint64_t wc_flags,
				 uint32_t flags)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe, .wc_flags = wc_flags, .flags = flags,
		.comp_mask = flags ? IBV_CQ_INIT_ATTR_MASK_FLAGS : 0,
	};

	return MUST(ibv_create_cq_ex(fake.ctx, &attr));
}

struct ibv_qp *fake_new_qp(struct ibv_pd *pd, struct ibv_cq *cq,
			   enum ibv_qp_type type, uint32_t wrs)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = type,
		.cap = { .max_send_wr = wrs, .max_recv_wr = wrs,
			 .max_send_sge = 2, .max_recv_sge = 2,
			 .max_inline_data = 64 },
	};

	return MUST(ibv_create_qp(pd, &attr));
}

struct ibv_qp *fake_new_qp_ex(struct ibv_pd *pd, struct ibv_cq *cq,
			      struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *qp;

	attr->comp_mask |= IBV_QP_INIT_ATTR_PD |
			   IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr->pd = pd;
	attr->send_cq = cq;
	attr->recv_cq = cq;
	qp = MUST(ibv_create_qp_ex(fake.ctx, attr));
	fake_to(qp, IBV_QPS_RTS);
	return qp;
}

void fake_to(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	CHECK_OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	CHECK_EQ(qp->state, state);
}

int fake_rounds(int n)
{
	return getenv("KEEL_SHORT") ? n / 10 : n;
}
