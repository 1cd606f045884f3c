// SPDX-License-Identifier: GPL-2.0
/*
 * The methods that only keel has, the ioctl of the doorbell, and functions of
 * the C library, which the tests let fail. See fake.h. The linker passes calls
 * of the provider to __wrap_NAME().
 */
#include <stdarg.h>
#include <sys/mman.h>

#include "fake.h"

static struct ib_uverbs_attr *find(struct ibv_command_buffer *cmd, uint16_t id)
{
	struct ib_uverbs_attr *attr = cmd->hdr.attrs;

	for (; attr < cmd->next_attr; attr++)
		if (attr->attr_id == id)
			return attr;
	return NULL;
}

static struct ib_uverbs_attr *must(struct ibv_command_buffer *cmd, uint16_t id)
{
	return MUST(find(cmd, id));
}

/* Write a response of @len bytes. */
static void respond(struct ibv_command_buffer *cmd, uint16_t id,
		    const void *resp, size_t len)
{
	struct ib_uverbs_attr *attr = must(cmd, id);

	CHECK_EQ(attr->len, len);
	memcpy((void *)(uintptr_t)attr->data, resp, len);
}

static int alloc_parent(struct ibv_command_buffer *cmd)
{
	struct keel_uapi_pd_info info = {
		.domain = 5, .kind = KEEL_UAPI_PD_PARENT,
	};
	struct ib_uverbs_attr *td;
	int ret = fake_enter(FAKE_ALLOC_PARENT);

	if (ret)
		return ret;
	td = find(cmd, KEEL_ATTR_PD_ALLOC_PARENT_TD);
	fake.parent_pd = must(cmd, KEEL_ATTR_PD_ALLOC_PARENT_PD)->data;
	fake_has_object(FAKE_PDS, fake.parent_pd);
	fake.parent_td = td ? (int64_t)td->data : -1;
	if (td)
		fake_has_object(FAKE_TDS, td->data);
	must(cmd, KEEL_ATTR_PD_ALLOC_PARENT_HANDLE)->data = FAKE_PARENT;
	fake_add_object(FAKE_PDS, FAKE_PARENT);
	respond(cmd, KEEL_ATTR_PD_ALLOC_PARENT_RESP, &info, sizeof(info));
	return 0;
}

static int query_pd(struct ibv_command_buffer *cmd)
{
	struct keel_uapi_pd_info info = { .domain = 5, .kind = fake.kind };
	int ret = fake_enter(FAKE_QUERY_PD);

	fake.queried_pd = must(cmd, KEEL_ATTR_PD_QUERY_HANDLE)->data;
	if (ret)
		return ret;
	respond(cmd, KEEL_ATTR_PD_QUERY_RESP, &info, sizeof(info));
	return 0;
}

static int alloc_td(struct ibv_command_buffer *cmd)
{
	int ret = fake_enter(FAKE_ALLOC_TD);

	if (ret)
		return ret;
	must(cmd, KEEL_ATTR_TD_ALLOC_HANDLE)->data = FAKE_TD;
	fake_add_object(FAKE_TDS, FAKE_TD);
	return 0;
}

static int free_td(struct ibv_command_buffer *cmd)
{
	uint32_t handle = must(cmd, KEEL_ATTR_TD_FREE_HANDLE)->data;
	int ret = fake_enter(FAKE_FREE_TD);

	fake_has_object(FAKE_TDS, handle);
	if (ret)
		return ret;
	fake_drop_object(FAKE_TDS, handle);
	return 0;
}

static int list_holders(struct ibv_command_buffer *cmd)
{
	struct ib_uverbs_attr *list = find(cmd, KEEL_ATTR_HOLDERS_RESP_LIST);
	struct ib_uverbs_attr *flags = find(cmd, KEEL_ATTR_HOLDERS_FLAGS);
	size_t len = fake.nholders * sizeof(*fake.holders);
	int ret = fake_enter(FAKE_HOLDERS);

	if (ret)
		return ret;
	fake.holders_of = cmd->hdr.object_id;
	fake.holders_handle = must(cmd, KEEL_ATTR_HOLDERS_HANDLE)->data;
	fake.holders_room = list ? list->len / sizeof(*fake.holders) : 0;
	fake.holders_flags = flags ? flags->data : 0;
	if (list)
		memcpy((void *)(uintptr_t)list->data, fake.holders,
		       list->len < len ? list->len : len);
	respond(cmd, KEEL_ATTR_HOLDERS_RESP_COUNT, &fake.nholders,
		sizeof(fake.nholders));
	return 0;
}

static struct fake_dm *live_dm(uint32_t handle)
{
	CHECK(handle < FAKE_OBJECTS && fake.dm[handle].live);
	return &fake.dm[handle];
}

static int query_dm(struct ibv_command_buffer *cmd)
{
	struct fake_dm *dm =
		live_dm(must(cmd, KEEL_ATTR_DM_QUERY_HANDLE)->data);
	struct keel_uapi_dm_info info = {
		.start = (dm->page - 1) * FAKE_PAGE, .length = dm->length,
	};
	int ret = fake_enter(FAKE_QUERY_DM);

	if (ret)
		return ret;
	respond(cmd, KEEL_ATTR_DM_QUERY_RESP, &info, sizeof(info));
	return 0;
}

/* The extents of a buffer lie in reverse order in the device. */
static int map_dm(struct ibv_command_buffer *cmd)
{
	struct fake_dm *dm = live_dm(must(cmd, KEEL_ATTR_DM_MAP_HANDLE)->data);
	uint64_t offset = must(cmd, KEEL_ATTR_DM_MAP_OFFSET)->data;
	uint64_t size = (dm->length + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
	uint64_t extent = dm->extent * FAKE_PAGE;
	struct keel_uapi_dm_map map;
	int ret = fake_enter(FAKE_MAP_DM);

	if (ret)
		return ret;
	if (offset >= size)
		return EINVAL;
	map = (struct keel_uapi_dm_map){ .start = offset / extent * extent };
	map.length = size - map.start < extent ? size - map.start : extent;
	map.mmap_offset = dm->page * FAKE_PAGE + size - map.start - map.length;
	if (fake.dm_map_pass)
		fake.dm_map_pass--;
	else if (fake.dm_map.length)
		map = fake.dm_map;
	respond(cmd, KEEL_ATTR_DM_MAP_RESP, &map, sizeof(map));
	/* An older module ignores it. */
	CHECK(!(must(cmd, KEEL_ATTR_DM_MAP_SKIP)->flags & UVERBS_ATTR_F_MANDATORY));
	if (fake.dm_skip)
		respond(cmd, KEEL_ATTR_DM_MAP_SKIP, &fake.dm_skip, sizeof(fake.dm_skip));
	return fake_leave(FAKE_MAP_DM, dm - fake.dm);
}

static int srq_doorbell(struct ibv_command_buffer *cmd)
{
	uint32_t handle = must(cmd, KEEL_ATTR_SRQ_DOORBELL_SRQ)->data;
	int ret = fake_enter(FAKE_SRQ_DOORBELL);

	CHECK(handle < FAKE_OBJECTS && fake.srq[handle].live);
	if (ret)
		return ret;
	__atomic_fetch_add(&fake.srq[handle].doorbells, 1, __ATOMIC_SEQ_CST);
	return fake_leave(FAKE_SRQ_DOORBELL, handle);
}

/* Rings all, and then reports the error. */
static int qp_doorbells(struct ibv_command_buffer *cmd)
{
	struct ib_uverbs_attr *attr = must(cmd, KEEL_ATTR_QP_DOORBELLS_QPNS);
	const uint32_t *qpns = attr->len > sizeof(attr->data) ?
			       (void *)(uintptr_t)attr->data : (void *)&attr->data;
	uint32_t n = attr->len / sizeof(*qpns), i;

	CHECK_EQ(attr->len % sizeof(*qpns), 0);
	CHECK(n && n <= KEEL_UAPI_DOORBELLS);
	for (i = 0; i < n; i++) {
		CHECK(qpns[i] >= FAKE_QPN && qpns[i] < FAKE_QPN + FAKE_OBJECTS);
		CHECK(fake.qp[qpns[i] - FAKE_QPN].live);
		fake.qp[qpns[i] - FAKE_QPN].doorbells++;
	}
	return fake_enter(FAKE_QP_DOORBELLS);
}

static int poll_sends(struct ibv_command_buffer *cmd)
{
	struct ib_uverbs_attr *attr = must(cmd, KEEL_ATTR_DEVICE_POLL_SENDS_US);

	CHECK_EQ(attr->len, sizeof(fake.poll_us));
	fake.poll_us = attr->data;
	return fake_enter(FAKE_POLL);
}

#define METHOD(object, method)	((uint32_t)(object) << 16 | (method))

int execute_ioctl(struct ibv_context *context, struct ibv_command_buffer *cmd)
{
	switch (METHOD(cmd->hdr.object_id, cmd->hdr.method_id)) {
	case METHOD(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE):
		/* libibverbs asks whether this method exists. */
		return EPROTONOSUPPORT;
	case METHOD(UVERBS_OBJECT_DEVICE, KEEL_METHOD_DEVICE_POLL_SENDS):
		return poll_sends(cmd);
	case METHOD(UVERBS_OBJECT_PD, KEEL_METHOD_PD_ALLOC_PARENT):
		return alloc_parent(cmd);
	case METHOD(UVERBS_OBJECT_PD, KEEL_METHOD_PD_QUERY):
		return query_pd(cmd);
	case METHOD(KEEL_OBJECT_TD, KEEL_METHOD_TD_ALLOC):
		return alloc_td(cmd);
	case METHOD(KEEL_OBJECT_TD, KEEL_METHOD_TD_FREE):
		return free_td(cmd);
	case METHOD(UVERBS_OBJECT_PD, KEEL_METHOD_PD_HOLDERS):
	case METHOD(KEEL_OBJECT_TD, KEEL_METHOD_TD_HOLDERS):
	case METHOD(UVERBS_OBJECT_DM, KEEL_METHOD_DM_HOLDERS):
		return list_holders(cmd);
	case METHOD(UVERBS_OBJECT_DM, KEEL_METHOD_DM_QUERY):
		return query_dm(cmd);
	case METHOD(UVERBS_OBJECT_DM, KEEL_METHOD_DM_MAP):
		return map_dm(cmd);
	case METHOD(UVERBS_OBJECT_SRQ, KEEL_METHOD_SRQ_DOORBELL):
		return srq_doorbell(cmd);
	case METHOD(UVERBS_OBJECT_QP, KEEL_METHOD_QP_DOORBELLS):
		return qp_doorbells(cmd);
	}
	FAIL("method %u of object %u is unknown", cmd->hdr.method_id,
	     cmd->hdr.object_id);
}

int ibv_cmd_alloc_dm(struct ibv_context *ctx,
		     const struct ibv_alloc_dm_attr *attr, struct verbs_dm *vdm,
		     struct ibv_command_buffer *link)
{
	struct ib_uverbs_attr *flags = must(link, KEEL_ATTR_DM_ALLOC_FLAGS);
	uint32_t page = 1, i;
	int ret = fake_enter(FAKE_ALLOC_DM);

	CHECK_EQ(flags->data, KEEL_DM_ALLOC_SHARES_PAGE);
	/* Likewise. */
	CHECK(!(flags->flags & UVERBS_ATTR_F_MANDATORY));
	if (ret)
		return ret;
	for (i = 0; fake.dm[i].live; i++)
		page = fake.dm[i].page +
		       (fake.dm[i].length + FAKE_PAGE - 1) / FAKE_PAGE;
	fake.dm[i] = (struct fake_dm){
		.live = true, .length = attr->length, .page = page,
		.extent = 2,
	};
	fake_count(1);
	vdm->handle = i;
	vdm->dm.handle = i;
	vdm->dm.comp_mask = IBV_DM_MASK_HANDLE;
	vdm->dm.context = ctx;
	return 0;
}

int ibv_cmd_free_dm(struct verbs_dm *vdm)
{
	struct fake_dm *dm = live_dm(vdm->handle);
	int ret = fake_enter(FAKE_FREE_DM);

	if (ret)
		return ret;
	dm->live = false;
	fake_count(-1);
	return 0;
}

/* --- the C library ---------------------------------------------------------- */

static void check_doorbell(const struct keel_doorbell *doorbell, uint32_t qpn)
{
	CHECK_EQ(doorbell->hdr.length, sizeof(*doorbell));
	CHECK_EQ(doorbell->hdr.object_id, UVERBS_OBJECT_QP);
	CHECK_EQ(doorbell->hdr.method_id, KEEL_METHOD_QP_DOORBELL);
	CHECK_EQ(doorbell->hdr.num_attrs, 1);
	CHECK_EQ(doorbell->hdr.driver_id, KEEL_DRIVER_ID);
	CHECK_EQ(doorbell->hdr.reserved1 | doorbell->hdr.reserved2, 0);
	CHECK_EQ(doorbell->qp.attr_id, KEEL_ATTR_QP_DOORBELL_QPN);
	CHECK_EQ(doorbell->qp.len, sizeof(qpn));
	CHECK_EQ(doorbell->qp.flags, UVERBS_ATTR_F_MANDATORY);
	CHECK(qpn >= FAKE_QPN && qpn < FAKE_QPN + FAKE_OBJECTS);
	CHECK(fake.qp[qpn - FAKE_QPN].live);
}

int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	struct keel_doorbell *doorbell;
	uint32_t qpn;
	va_list ap;
	int ret;

	va_start(ap, request);
	doorbell = va_arg(ap, struct keel_doorbell *);
	va_end(ap);
	CHECK_EQ(fd, fake.ctx->cmd_fd);
	CHECK(request == RDMA_VERBS_IOCTL);
	memcpy(&qpn, &doorbell->qp.data, sizeof(qpn));
	check_doorbell(doorbell, qpn);
	ret = fake_enter(FAKE_QP_DOORBELL);
	if (ret) {
		errno = ret;
		return -1;
	}
	__atomic_fetch_add(&fake.qp[qpn - FAKE_QPN].doorbells, 1,
			   __ATOMIC_SEQ_CST);
	/* The kernel may write to the argument. */
	memset(doorbell, 0xee, sizeof(*doorbell));
	return fake_leave(FAKE_QP_DOORBELL, qpn - FAKE_QPN);
}

void *__real_mmap(void *addr, size_t len, int prot, int flags, int fd,
		  off_t off);
void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd,
		  off_t off);
void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd,
		  off_t off)
{
	int ret = fake_enter(FAKE_MMAP);

	if (ret) {
		errno = ret;
		return MAP_FAILED;
	}
	return __real_mmap(addr, len, prot, flags, fd, off);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	int ret = fake_enter(FAKE_CALLOC);

	if (ret) {
		errno = ret;
		return NULL;
	}
	return __real_calloc(n, size);
}

int __real_pthread_spin_lock(pthread_spinlock_t *lock);
int __wrap_pthread_spin_lock(pthread_spinlock_t *lock);
int __wrap_pthread_spin_lock(pthread_spinlock_t *lock)
{
	fake_locks++;
	/* It must not order the threads. */
	atomic_fetch_add_explicit(&fake_all_locks, 1, memory_order_relaxed);
	return __real_pthread_spin_lock(lock);
}

int __real_madvise(void *base, size_t size, int advice);
int __wrap_madvise(void *base, size_t size, int advice);
int __wrap_madvise(void *base, size_t size, int advice)
{
	int ret = advice == MADV_WIPEONFORK ? fake_enter(FAKE_WIPEONFORK) : 0;

	if (ret) {
		errno = ret;
		return -1;
	}
	return __real_madvise(base, size, advice);
}

int ibv_dontfork_range(void *base, size_t size)
{
	int ret = fake_enter(FAKE_DONTFORK);

	if (ret)
		return ret;
	__atomic_fetch_add(&fake.dontfork, (long)size, __ATOMIC_RELAXED);
	return 0;
}

int ibv_dofork_range(void *base, size_t size)
{
	__atomic_fetch_sub(&fake.dontfork, (long)size, __ATOMIC_RELAXED);
	return 0;
}
