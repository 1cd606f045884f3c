// SPDX-License-Identifier: GPL-2.0
/* Network devices, their addresses, and RDMA devices on them: by netlink */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rdma/rdma_netlink.h>

#include "init.h"

struct request {
	struct nlmsghdr head;
	char body[1024];
};

static void *append(struct request *req, const void *data, size_t len)
{
	char *at = (char *)req + NLMSG_ALIGN(req->head.nlmsg_len);

	if (data)
		memcpy(at, data, len);
	req->head.nlmsg_len = NLMSG_ALIGN(req->head.nlmsg_len) + len;
	return at;
}

static struct nlattr *attribute(struct request *req, uint16_t type,
				const void *data, size_t len)
{
	struct nlattr head = { .nla_type = type, .nla_len = NLA_HDRLEN + len };
	struct nlattr *at = append(req, &head, sizeof(head));

	if (len)
		append(req, data, len);
	return at;
}

static void attribute_string(struct request *req, uint16_t type, const char *text)
{
	attribute(req, type, text, strlen(text) + 1);
}

static void nest_end(struct request *req, struct nlattr *nest)
{
	nest->nla_len = (char *)req + req->head.nlmsg_len - (char *)nest;
}

/* Send it and wait for the answer: 0, or -1 with errno set. */
static int transact(int family, struct request *req)
{
	struct {
		struct nlmsghdr head;
		struct nlmsgerr err;
		char rest[1200];
	} answer;
	int fd, error = EPROTO;
	ssize_t n;

	req->head.nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, family);
	if (fd < 0)
		return -1;
	if (send(fd, req, req->head.nlmsg_len, 0) < 0) {
		error = errno;
	} else {
		n = recv(fd, &answer, sizeof(answer), 0);
		if (n >= (ssize_t)(sizeof(answer.head) + sizeof(answer.err)) &&
		    answer.head.nlmsg_type == NLMSG_ERROR)
			error = -answer.err.error;
	}
	close(fd);
	errno = error;
	return error ? -1 : 0;
}

static int set_up(const char *name)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), ret;
	struct ifreq ifr = { 0 };

	if (fd < 0)
		return -1;
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	ret = ioctl(fd, SIOCGIFFLAGS, &ifr);
	ifr.ifr_flags |= IFF_UP;
	ret = ret ?: ioctl(fd, SIOCSIFFLAGS, &ifr);
	close(fd);
	return ret;
}

/**
 * network_start() - bring up the loopback device
 *
 * No address waits for a check whether another machine has it: there is none.
 */
void network_start(void)
{
	write_file("/proc/sys/net/ipv6/conf/all/accept_dad", "0");
	write_file("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
	write_file("/proc/sys/net/ipv6/conf/default/dad_transmits", "0");
	set_up("lo");
}

/**
 * dummy_add() - make a network device that is connected with nothing, and up
 * @name: its name
 *
 * Return: 0, or -1 with errno set.
 */
int dummy_add(const char *name)
{
	struct request req = {
		.head.nlmsg_len = NLMSG_LENGTH(0),
		.head.nlmsg_type = RTM_NEWLINK,
		.head.nlmsg_flags = NLM_F_CREATE | NLM_F_EXCL,
	};
	const struct ifinfomsg info = { .ifi_family = AF_UNSPEC };
	const uint32_t mtu = 9000;
	struct nlattr *nest;

	append(&req, &info, sizeof(info));
	attribute_string(&req, IFLA_IFNAME, name);
	attribute(&req, IFLA_MTU, &mtu, sizeof(mtu));
	nest = attribute(&req, IFLA_LINKINFO, NULL, 0);
	attribute(&req, IFLA_INFO_KIND, "dummy", 5);
	nest_end(&req, nest);
	return transact(NETLINK_ROUTE, &req) ?: set_up(name);
}

/**
 * device_add() - make an RDMA device, as "rdma link add" does
 * @type: keel, rxe or siw
 * @name: its name
 * @netdev: the network device it is on
 *
 * Return: 0, or -1 with errno set.
 */
int device_add(const char *type, const char *name, const char *netdev)
{
	struct request req = {
		.head.nlmsg_len = NLMSG_LENGTH(0),
		.head.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV,
						    RDMA_NLDEV_CMD_NEWLINK),
	};

	attribute_string(&req, RDMA_NLDEV_ATTR_DEV_NAME, name);
	attribute_string(&req, RDMA_NLDEV_ATTR_LINK_TYPE, type);
	attribute_string(&req, RDMA_NLDEV_ATTR_NDEV_NAME, netdev);
	return transact(NETLINK_RDMA, &req);
}

static int address_add(const char *netdev, int family, const char *address,
		       unsigned int prefix)
{
	struct request req = {
		.head.nlmsg_len = NLMSG_LENGTH(0),
		.head.nlmsg_type = RTM_NEWADDR,
		.head.nlmsg_flags = NLM_F_CREATE | NLM_F_REPLACE,
	};
	const struct ifaddrmsg info = {
		.ifa_family = family, .ifa_prefixlen = prefix,
		.ifa_flags = family == AF_INET6 ? IFA_F_NODAD : 0,
		.ifa_index = if_nametoindex(netdev),
	};
	size_t len = family == AF_INET6 ? 16 : 4;
	unsigned char bytes[16];

	if (inet_pton(family, address, bytes) != 1)
		return -1;
	append(&req, &info, sizeof(info));
	attribute(&req, IFA_LOCAL, bytes, len);
	attribute(&req, IFA_ADDRESS, bytes, len);
	return transact(NETLINK_ROUTE, &req);
}

/**
 * addresses_add() - give a network device its addresses
 * @netdev: its name
 * @number: which of the guest's devices it is; each has subnets of its own
 */
void addresses_add(const char *netdev, unsigned int number)
{
	char *four = text("198.18.%u.1", number);
	char *six = text("fd6b:6565:6c00:%x::1", number);

	if (address_add(netdev, AF_INET, four, 24) ||
	    address_add(netdev, AF_INET6, six, 64))
		warn("the network device %s has no address: %s", netdev,
		     strerror(errno));
	free(four);
	free(six);
}
