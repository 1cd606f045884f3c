// SPDX-License-Identifier: GPL-2.0
/*
 * Failing allocations of "rdma link add": the device and its memory. Allocations fail
 * only for the task that asks for it, so this process sends the netlink message itself.
 */
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>

#include "dev.h"
#include "fault.h"
#include "t.h"

/* Three pages: a block of two, and one that cannot be divided. */
#define DM_SIZE	"dm_size=12288"

void t_after(void)
{
	dev_del();
	module_restore();
}

/* A message with room for three names. */
struct message {
	struct nlmsghdr head;
	char attrs[100];
};

static void add_name(struct message *m, uint16_t type, const char *name)
{
	size_t len = NLA_HDRLEN + strlen(name) + 1;
	struct nlattr attr = { .nla_len = len, .nla_type = type };
	char *to = (char *)m + NLMSG_ALIGN(m->head.nlmsg_len);

	CHECK(to + NLA_ALIGN(len) <= (char *)(m + 1));
	memcpy(to, &attr, sizeof(attr));
	strcpy(to + NLA_HDRLEN, name);
	m->head.nlmsg_len = NLMSG_ALIGN(m->head.nlmsg_len) + NLA_ALIGN(len);
}

/* rdma link add @name type keel netdev @netdev. Return 0 or an errno. */
static int link_add(const char *name, const char *netdev)
{
	struct message m = {
		.head = {
			.nlmsg_len = NLMSG_HDRLEN,
			.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV,
						       RDMA_NLDEV_CMD_NEWLINK),
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
		},
	};
	struct {
		struct nlmsghdr head;
		struct nlmsgerr err;
		char more[1000];
	} answer = {};
	int fd = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA));

	add_name(&m, RDMA_NLDEV_ATTR_DEV_NAME, name);
	add_name(&m, RDMA_NLDEV_ATTR_LINK_TYPE, "keel");
	add_name(&m, RDMA_NLDEV_ATTR_NDEV_NAME, netdev);
	CHECK_EQ(send(fd, &m, m.head.nlmsg_len, 0), m.head.nlmsg_len);
	CHECK(recv(fd, &answer, sizeof(answer), 0) >=
	      (ssize_t)(sizeof(answer.head) + sizeof(answer.err)));
	CHECK_EQ(answer.head.nlmsg_type, NLMSG_ERROR);
	close(fd);
	return -answer.err.error;
}

/* Let one allocation after the other fail, until the function makes no more. */
static void add_without_memory(const char *function)
{
	int n, err, refused = 0;
	bool failed = true;

	fault_only_in(function);
	for (n = 1; failed; n++) {
		fault_start(n);
		err = link_add(KEEL1, KEEL1_NETDEV);
		failed = fault_end();
		if (err) {
			CHECK(failed);
			CHECK_EQ(err, ENOMEM);
			CHECK(!dev_exists(KEEL1));
			CHECK(access("/sys/kernel/debug/keel/" KEEL1, F_OK));
			refused++;
			continue;
		}
		/* The kernel can have another way to get the memory. */
		dev_check_works(KEEL1);
		CHECK_EQ(link_add("keel_other", KEEL1_NETDEV), EEXIST);
		free(t_shell("rdma link delete " KEEL1));
	}
	CHECK(refused > 0);
	t_note("%s: %d refused, %d done", function, refused, n - 2 - refused);
}

TEST_ONLY_DEBUG(link, "DEV-1,DEV-4", "rdma link add with each allocation of the device and of its memory failing once: it fails with ENOMEM and leaves nothing, or succeeds",
		"its kernel cannot let allocations fail", 120)
{
	fault_init();
	fault_copies(false);
	module_unload();
	module_load(DM_SIZE);
	dev_add();
	free(t_shell("rdma link delete " KEEL1));
	add_without_memory("_ib_alloc_device");
	add_without_memory("keel_aperture_mem_create");
	fault_only_keel(false);
}
