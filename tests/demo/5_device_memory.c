/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Device memory: one process writes a buffer. Another process imports the
 * device and the buffer, and reads.
 */
#include <sys/socket.h>
#include <sys/wait.h>

#include <infiniband/keeldv.h>

#include "say.h"

#define LENGTH 0x100000

static const char text[] = "written through one process's mapping";

/* Send a file descriptor and a handle over a socket. */
static void send_dm(int sock, int fd, uint32_t handle)
{
	struct iovec iov = { .iov_base = &handle, .iov_len = sizeof(handle) };
	char control[CMSG_SPACE(sizeof(fd))] = {};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	must(sendmsg(sock, &msg, 0) == sizeof(handle));
}

static int receive_dm(int sock, uint32_t *handle)
{
	struct iovec iov = { .iov_base = handle, .iov_len = sizeof(*handle) };
	char control[CMSG_SPACE(sizeof(int))] = {};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	int fd;

	must(recvmsg(sock, &msg, 0) == sizeof(*handle));
	must(CMSG_FIRSTHDR(&msg));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* The reader opens no device: it imports the descriptor and the handle. */
static int reader(int sock)
{
	struct ibv_context *context;
	char copy[sizeof(text)];
	struct ibv_dm *dm;
	uint32_t handle;

	context = ibv_import_device(receive_dm(sock, &handle));
	must(context);
	dm = ibv_import_dm(context, handle);
	must(dm);
	did("ibv_import_device(), ibv_import_dm(%u) -> ok", handle);
	must_be(ibv_memcpy_from_dm(copy, dm, LENGTH - sizeof(text),
				   sizeof(text)), 0);
	did("it says: \"%s\"", copy);
	must(!strcmp(copy, text));
	ibv_unimport_dm(dm);
	return ibv_close_device(context);
}

int main(void)
{
	struct ibv_context *context = open_keel();
	struct ibv_alloc_dm_attr attr = {
		.length = LENGTH,
		.log_align_req = 16,
	};
	struct keeldv_dm_attr where;
	struct ibv_device_attr_ex dev = {};
	int sock[2], status;
	struct ibv_dm *dm;
	pid_t child;
	char *map;

	must(!ibv_query_device_ex(context, NULL, &dev));
	say("The device has %llu bytes of its own. We take %d, at a multiple of 64 KiB.",
	    (unsigned long long)dev.max_dm_size, LENGTH);
	dm = ibv_alloc_dm(context, &attr);
	must(dm);
	must(!keeldv_query_dm(dm, &where));
	did("ibv_alloc_dm() -> device address 0x%llx",
	    (unsigned long long)where.start);
	must(where.start % (1 << 16) == 0);

	say("It is mapped into this program, and it is zero.");
	map = keeldv_dm_map(dm);
	must(map);
	must(!map[0] && !memcmp(map, map + 1, LENGTH - 1));
	did("keeldv_dm_map() -> %p, all zero", map);
	tree();

	say("Written through the mapping here, read through a copy elsewhere.");
	memcpy(map + LENGTH - sizeof(text), text, sizeof(text));
	must(!socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
	child = fork();
	if (!child)
		exit(reader(sock[1]));
	send_dm(sock[0], context->cmd_fd, dm->handle);
	must(waitpid(child, &status, 0) == child && !status);

	say("A copy that would leave the buffer is refused, and copies nothing.");
	must_be(ibv_memcpy_to_dm(dm, LENGTH - 3, "four", 4), EINVAL);
	must(!strcmp(map + LENGTH - sizeof(text), text));

	say("The buffer is freed.");
	must_be(ibv_free_dm(dm), 0);
	tree();
	return ibv_close_device(context);
}
