/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * keeldv_poll_sends(): a kernel thread polls the send queues, and posting needs no system call.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "keel.h"
#include "keeldv.h"

/*
 * A child of fork() may share a queue pair, but not the thread that polls it, which may be
 * stopped. So a process relies on the flag of its own queue pairs only: each has the number
 * of the process that created it. The kernel clears *process in a child; @last is larger
 * than each number that the child has inherited.
 */
static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t *process;
static uint32_t last;

/* Return the number of this process, or 0 if memory is short: for a new queue pair. */
uint32_t keel_process_number(void)
{
	size_t page = sysconf(_SC_PAGESIZE);
	uint32_t *number, ret = 0;

	pthread_mutex_lock(&process_lock);
	number = process;
	if (!number) {
		number = mmap(NULL, page, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (number == MAP_FAILED)
			goto out;
		if (madvise(number, page, MADV_WIPEONFORK)) {
			munmap(number, page);
			goto out;
		}
		process = number;
	}
	ret = *number;
	if (!ret) {
		ret = ++last;
		__atomic_store_n(number, ret, __ATOMIC_RELAXED);
	}
out:
	pthread_mutex_unlock(&process_lock);
	return ret;
}

static int cmd_poll(struct ibv_context *ibctx, uint32_t usec)
{
	DECLARE_COMMAND_BUFFER(cmdb, UVERBS_OBJECT_DEVICE, KEEL_METHOD_DEVICE_POLL_SENDS, 1);
	int ret;

	fill_attr_in_uint32(cmdb, KEEL_ATTR_DEVICE_POLL_SENDS_US, usec);
	do {
		ret = execute_ioctl(ibctx, cmdb);
	} while (ret == EINTR);
	/* ib_core's error if the module does not have the method. */
	return ret == EPROTONOSUPPORT ? EOPNOTSUPP : ret;
}

static int poll_sends(struct ibv_context *ibctx, uint32_t usec)
{
	int ret = cmd_poll(ibctx, usec);

	/* With 0, posts ring doorbells even before the kernel clears the flags. */
	if (!ret)
		atomic_store_explicit(&to_kctx(ibctx)->polls, usec > 0, memory_order_relaxed);
	return ret;
}

int keeldv_poll_sends(struct ibv_context *context, uint32_t usec)
{
	static_assert(KEELDV_POLL_SENDS_MAX == KEEL_UAPI_POLL_SENDS_US, "limits differ");
	if (!context)
		return EINVAL;
	if (!keel_is_ours(context->device))
		return EOPNOTSUPP;
	return poll_sends(context, usec);
}

/*
 * For applications that do not call keeldv_poll_sends(). Without polling, the context works
 * as well, so an error is only printed.
 */
void keel_poll_by_env(struct ibv_context *ibctx)
{
	const char *text = getenv("KEEL_POLL_SENDS_US");
	unsigned long usec;
	char *end;
	int ret;

	/* An application may have its own memory for queue pairs: map the page here. */
	keel_process_number();
	if (!text || !*text)
		return;
	errno = 0;
	usec = strtoul(text, &end, 10);
	if (errno || *end || *text < '0' || *text > '9' || usec > KEEL_UAPI_POLL_SENDS_US)
		ret = EINVAL;
	else
		ret = poll_sends(ibctx, usec);
	/* Where there is no polling, 0 is no wish that fails. */
	if (ret == EINVAL || (ret && usec))
		fprintf(stderr, "keel: KEEL_POLL_SENDS_US=%s: no polling: %s\n", text,
			strerror(ret));
}

/*
 * Does the kernel find the send WQEs that were published just now? The kernel clears
 * the flag and then reads the user index. The provider publishes the index and then reads
 * the flag. So at least one side sees the store of the other side. After device removal,
 * the doorbell returns the error.
 */
bool keel_is_polled(const struct keel_qp *qp)
{
	struct ibv_context *ibctx = qp->vqp.qp.context;

	/* Processes that do not ask need no fence. */
	if (!atomic_load_explicit(&to_kctx(ibctx)->polls, memory_order_relaxed))
		return false;
	/* The page is there if the queue pair has a number. */
	if (!qp->process || qp->process != __atomic_load_n(process, __ATOMIC_RELAXED))
		return false;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(&qp->sq.ring.shared->flags, __ATOMIC_RELAXED) &
	       KEEL_RING_F_POLLED && !keel_is_gone(ibctx);
}
