// SPDX-License-Identifier: GPL-2.0
/*
 * RDS over keel: a consumer in the kernel that calls BUG_ON() if ib_post_send()
 * or ib_post_recv() write bad_wr after a success.
 */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "dev.h"
#include "t.h"

#define FROM		"192.0.2.91"
#define TO		"192.0.2.92"
#define PORT		4791
/* Several fragments, which RDS posts as one list. */
#define LEN		(128 * 1024)
#define ROUNDS		20

static unsigned char sent[LEN], got[LEN];

void t_after(void)
{
	/* Remove the RDS modules and the addresses. */
	t_shell_status("modprobe -r rds_rdma 2>&1; modprobe -r rds 2>&1; "
		       "ip addr del " FROM "/24 dev " KEEL0 " 2>&1; "
		       "ip addr del " TO "/24 dev " KEEL0 " 2>&1");
}

static struct sockaddr_in address(const char *ip)
{
	struct sockaddr_in sin = {
		.sin_family = AF_INET, .sin_port = htons(PORT),
	};

	CHECK_EQ(inet_pton(AF_INET, ip, &sin.sin_addr), 1);
	return sin;
}

static int rds_socket(const char *ip)
{
	struct timeval patience = { .tv_sec = 60 };
	struct sockaddr_in sin = address(ip);
	int size = LEN;
	int fd;

	fd = SYS(socket(AF_RDS, SOCK_SEQPACKET, 0));
	CHECK_SYS(bind(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	CHECK_SYS(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
	CHECK_SYS(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience,
			     sizeof(patience)), 0);
	CHECK_SYS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience,
			     sizeof(patience)), 0);
	return fd;
}

/*
 * RDS of 7.2 and 7.3 closes connections in workqueues of their own
 * (rds_conn_path_drop()), and waits for the common one when it is unloaded
 * (rds_ib_unregister_client()). If the machine is busy, rds_rdma goes before its
 * connections do, on any device.
 */
TEST_CASE(messages, "DEV-4,DEV-2", "RDS, which checks bad_wr after every post, sends lists of work requests over the device, and messages arrive whole",
	  .not_uml = "its kernel has no RDS", .not_kernel = "7.",
	  .not_kernel_why = "its RDS cannot be unloaded safely")
{
	struct sockaddr_in to = address(TO);
	long before;
	uint64_t seed = 5;
	int in, out, i, j;

	free(t_shell("modprobe rds_rdma && ip addr add " FROM "/24 dev " KEEL0
		     " && ip addr add " TO "/24 dev " KEEL0));
	out = rds_socket(FROM);
	in = rds_socket(TO);
	before = dev_counter("rx_msgs");
	for (i = 0; i < ROUNDS; i++) {
		for (j = 0; j < LEN; j++)
			sent[j] = t_random(&seed);
		memset(got, 0, LEN);
		CHECK_EQ(SYS(sendto(out, sent, LEN, 0, (struct sockaddr *)&to,
				    sizeof(to))), LEN);
		CHECK_EQ(SYS(recv(in, got, LEN, 0)), LEN);
		CHECK_MEM(got, sent, LEN);
	}
	/*
	 * The messages went through the device, and not by another transport of
	 * RDS.
	 */
	CHECK(dev_counter("rx_msgs") - before >= ROUNDS * 4);
	CHECK_SYS(close(out), 0);
	CHECK_SYS(close(in), 0);
}
