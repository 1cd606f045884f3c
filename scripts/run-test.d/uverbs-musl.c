// SPDX-License-Identifier: GPL-2.0
/*
 * A context and a protection domain by the kernel's own calls, without libibverbs.
 * scripts/run-test compiles this with musl-gcc: keel's provider is for glibc.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

/* A command is a header, its own structure, and nothing of the driver. */
static int call(int fd, uint32_t command, const void *in, size_t in_len,
		size_t out_len)
{
	struct ib_uverbs_cmd_hdr head = {
		.command = command,
		.in_words = (sizeof(head) + in_len) / 4,
		.out_words = out_len / 4,
	};
	char buf[64];

	memcpy(buf, &head, sizeof(head));
	memcpy(buf + sizeof(head), in, in_len);
	return write(fd, buf, sizeof(head) + in_len) < 0 ? -1 : 0;
}

int main(void)
{
	/* The driver's part of the response follows, and is not read. */
	struct ib_uverbs_get_context_resp context[8] = { 0 };
	struct ib_uverbs_alloc_pd_resp pd[8] = { 0 };
	struct ib_uverbs_get_context get = { .response = (uintptr_t)context };
	struct ib_uverbs_alloc_pd alloc = { .response = (uintptr_t)pd };
	int fd = open("/dev/infiniband/uverbs0", O_RDWR);

	if (fd < 0 ||
	    call(fd, IB_USER_VERBS_CMD_GET_CONTEXT, &get, sizeof(get),
		 sizeof(context)) ||
	    call(fd, IB_USER_VERBS_CMD_ALLOC_PD, &alloc, sizeof(alloc),
		 sizeof(pd))) {
		perror("uverbs0");
		return 1;
	}
	printf("uverbs0: protection domain %u\n", pd->pd_handle);
	return 0;
}
