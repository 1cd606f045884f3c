// SPDX-License-Identifier: GPL-2.0
/*
 * Hosts that speak MPA, but not as keel does, ask for connections over siw. The other host is
 * this process: it has sockets, with an address of the netdev of host 1.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>
#include <time.h>

#include "hosts.h"
#include "qp.h"
#include "t.h"

#define LINKS		"/sys/kernel/debug/keel/keel_a/links"
#define PORT		791
/* Ports below it are those of root. */
#define ROOT_PORTS	1024
/* The last part of the address of this process. */
#define SELF		3
#define ENHANCED	0x1000
#define REJECTED	0x2000
#define REVISION	2
#define MAGIC		0x6b65656c
#define VERSION		7
#define CREDIT		3
#define ASK		4
#define ALIVE		5
#define HEADER		96
/* DDP and RDMAP: the last segment of a SEND. */
#define SEND		0x4143

struct hello {
	uint32_t magic;
	uint16_t version;
	uint16_t credits;
	uint64_t cookie;
};

struct mpa {
	char key[16];
	uint16_t bits;
	uint16_t len;
	uint16_t ird;
	uint16_t ord;
	struct hello hello;
};

/* A frame with the headers before it and the trailer: all numbers are big-endian. */
struct fpdu {
	uint16_t len;
	uint16_t ctrl;
	uint32_t reserved;
	uint32_t qn;
	uint32_t msn;
	uint32_t mo;
	uint8_t frame[HEADER];
	uint32_t crc;
};

void t_end(void)
{
	t_shell_status("{ ip netns delete keel_m; ip link delete keel_m; } >/dev/null 2>&1");
	hosts_down();
}

/* Also for t_end(). */
__attribute__((constructor)) static void over_siw(void)
{
	setenv("KEEL_OVER", "siw", 1);
}

static void begin(void)
{
	hosts_up();
	free(t_shell("ip address replace fe80::%d/64 nodad dev keel_b", SELF));
}

static struct hello honest(void)
{
	return (struct hello){ htole32(MAGIC), htole16(VERSION), htole16(128), 0x1234 };
}

static void set_timeout(int fd, int seconds)
{
	struct timeval time = { .tv_sec = seconds };

	SYS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
}

/* A TCP connection from a port to host 0. */
static int dial_from(int port)
{
	struct sockaddr_in6 from = {
		.sin6_family = AF_INET6, .sin6_scope_id = if_nametoindex("keel_b"),
		.sin6_addr.s6_addr = { 0xfe, 0x80, [15] = SELF },
	}, to = from;
	int one = 1, fd = SYS(socket(AF_INET6, SOCK_STREAM, 0));

	to.sin6_addr.s6_addr[15] = 1;
	to.sin6_port = htons(PORT);
	from.sin6_port = htons(port);
	SYS(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	SYS(bind(fd, (struct sockaddr *)&from, sizeof(from)));
	SYS(connect(fd, (struct sockaddr *)&to, sizeof(to)));
	set_timeout(fd, 10);
	return fd;
}

static int dial(void)
{
	static int n;

	/* The ports of the other cases are not free at once. */
	return dial_from(PORT + 9 + (getpid() * 16 + n++) % 200);
}

/* Ask for a connection, with the first @len bytes of @hello. */
static void ask(int fd, const struct hello *hello, int len)
{
	struct mpa mpa = { .key = "MPA ID Req Fram", .bits = htons(ENHANCED | REVISION),
			   .len = htons(4 + len), .ird = htons(1), .ord = htons(1),
			   .hello = *hello };
	int bytes = sizeof(mpa) - sizeof(*hello) + len;

	mpa.key[15] = 'e';
	CHECK_EQ(send(fd, &mpa, bytes, 0), bytes);
}

/* Host 0 has accepted. */
static struct hello accepted(int fd)
{
	struct mpa mpa = {};

	CHECK_EQ(recv(fd, &mpa, sizeof(mpa), MSG_WAITALL), sizeof(mpa));
	CHECK(!memcmp(mpa.key, "MPA ID Rep Frame", 16));
	CHECK(!(ntohs(mpa.bits) & REJECTED));
	CHECK_EQ(ntohs(mpa.len), 4 + sizeof(mpa.hello));
	CHECK_EQ(le32toh(mpa.hello.magic), MAGIC);
	CHECK_EQ(le16toh(mpa.hello.version), VERSION);
	return mpa.hello;
}

static void rejected(int fd, const struct hello *hello, int len)
{
	struct mpa mpa;
	ssize_t n;

	ask(fd, hello, len);
	n = recv(fd, &mpa, sizeof(mpa), MSG_WAITALL);
	CHECK(n >= 20 && ntohs(mpa.bits) & REJECTED);
	close(fd);
}

/* Nothing comes any more: the connection ends, by an end or a reset. */
static void ends(int fd)
{
	char bytes[100];
	ssize_t n;

	do
		n = recv(fd, bytes, sizeof(bytes), 0);
	while (n > 0);
	CHECK(!n || errno == ECONNRESET);
	close(fd);
}

/* Return: false if the connection has ended. */
static bool send_frame(int fd, int type, uint64_t cookie, uint32_t msn)
{
	struct fpdu pdu = { .len = htons(sizeof(pdu) - 2 - 4), .ctrl = htons(SEND),
			    .msn = htonl(msn) };

	pdu.frame[0] = type;
	memcpy(pdu.frame + 24, &cookie, sizeof(cookie));
	return send(fd, &pdu, sizeof(pdu), MSG_NOSIGNAL) == sizeof(pdu);
}

/*
 * Ask until there is an answer: siw may leave the first frame unread until another one comes
 * (upstream.rst). Return: the credits that have come with it, or in a frame before it.
 */
static int ask_frame(int fd, uint64_t cookie, struct fpdu *pdu)
{
	int credits = 0;
	uint32_t msn;
	ssize_t n = -1;

	set_timeout(fd, 1);
	for (msn = 1; n < 0 && msn < 3; msn++) {
		CHECK(send_frame(fd, ASK, cookie, msn));
		n = recv(fd, pdu, sizeof(*pdu), MSG_WAITALL);
	}
	CHECK_EQ(n, sizeof(*pdu));
	if (pdu->frame[0] == CREDIT) {
		credits = pdu->frame[2];
		CHECK_EQ(recv(fd, pdu, sizeof(*pdu), MSG_WAITALL), sizeof(*pdu));
	}
	CHECK_EQ(pdu->frame[0], ALIVE);
	return credits + pdu->frame[2];
}

TEST(guest, "HOST-3", "over iWARP, a host that sends no frame is a guest, and its connection ends")
{
	struct hello hello = honest();
	char *links;
	int fd;

	begin();
	fd = dial();
	ask(fd, &hello, sizeof(hello));
	/* No more than a guest has buffers for. */
	CHECK_EQ(le16toh(accepted(fd).credits), 4);
	links = t_read_file(LINKS);
	CHECK(strstr(links, "link fe80::1 to fe80::3 users 0 connections 0 down"));
	free(links);
	ends(fd);
}

TEST(frame, "HOST-3", "over iWARP, a frame with the cookie confirms a connection, and is answered with the other credits")
{
	struct hello hello = honest();
	struct fpdu pdu;
	uint64_t cookie;
	int fd, credits;
	char *links;

	begin();
	fd = dial();
	ask(fd, &hello, sizeof(hello));
	cookie = accepted(fd).cookie;
	credits = ask_frame(fd, cookie, &pdu);
	CHECK_EQ(ntohs(pdu.ctrl), SEND);
	/* All but the four of the guest, and for each frame that has come. */
	CHECK(credits == 125 || credits == 126);
	CHECK_EQ(*(uint64_t *)(pdu.frame + 24), 0x1234);
	links = t_read_file(LINKS);
	CHECK(strstr(links, "link fe80::1 to fe80::3 users 0 connections 1 over siw_a"));
	free(links);
	close(fd);
}

TEST(foreign, "HOST-3", "over iWARP, a frame without the cookie confirms nothing, and too many end the connection")
{
	struct hello hello = honest();
	struct fpdu pdu;
	uint64_t cookie;
	int fd, i;

	begin();
	fd = dial();
	ask(fd, &hello, sizeof(hello));
	cookie = accepted(fd).cookie;
	CHECK(send_frame(fd, ASK, cookie ^ 1, 1));
	set_timeout(fd, 1);
	CHECK_EQ(recv(fd, &pdu, sizeof(pdu), 0), -1);
	CHECK_EQ(errno, EAGAIN);
	set_timeout(fd, 10);
	ends(fd);
	/* Far more than there are buffers, at once. */
	fd = dial();
	ask(fd, &hello, sizeof(hello));
	cookie = accepted(fd).cookie;
	for (i = 0; i < 200; i++)
		if (!send_frame(fd, ASK, cookie ^ 1, i + 1))
			break;
	ends(fd);
}

TEST(values, "HOST-3", "over iWARP, requests with a hello that no host of keel sends are rejected")
{
	struct hello hello = honest();
	int len, fd;

	begin();
	for (len = 0; len < (int)sizeof(hello); len += 5)
		rejected(dial(), &hello, len);
	hello.version = htole16(77);
	rejected(dial(), &hello, sizeof(hello));
	hello = honest();
	hello.magic = 0;
	rejected(dial(), &hello, sizeof(hello));
	hello = honest();
	fd = dial();
	ask(fd, &hello, sizeof(hello));
	accepted(fd);
	close(fd);
}

static void accepted_from(int port)
{
	struct linger reset = { .l_onoff = 1 };
	struct hello hello = honest();
	int fd = dial_from(port);

	ask(fd, &hello, sizeof(hello));
	accepted(fd);
	/* The port is free at once. */
	SYS(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)));
	close(fd);
}

TEST(root, "HOST-3", "over iWARP, requests from ports that any user of a host may have are rejected")
{
	struct hello hello = honest();

	begin();
	rejected(dial_from(ROOT_PORTS), &hello, sizeof(hello));
	rejected(dial_from(40000), &hello, sizeof(hello));
	accepted_from(ROOT_PORTS - 1);
	accepted_from(1);
}

TEST(taken, "HOST-2", "over iWARP, a device whose port another process has carries no links until it is added again")
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(PORT) };
	int fd = SYS(socket(AF_INET6, SOCK_STREAM, 0)), one = 1;
	struct hello hello = honest();
	int far;

	begin();
	host_lower(0, 0);
	host_lower(1, 0);
	/* keel can listen for IPv4 then, but not for IPv6. */
	SYS(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)));
	SYS(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	SYS(bind(fd, (struct sockaddr *)&any, sizeof(any)));
	SYS(listen(fd, 1));
	host_lower(0, 1);
	far = dial();
	close(SYS(accept(fd, NULL, NULL)));
	close(far);
	close(fd);
	host_lower(0, 0);
	host_lower(0, 1);
	host_lower(1, 1);
	far = dial();
	ask(far, &hello, sizeof(hello));
	accepted(far);
	close(far);
}

static double now(void)
{
	struct timespec time;

	SYS(clock_gettime(CLOCK_MONOTONIC, &time));
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* Send from host 0 to fe80::@last, so that it asks for a connection. Return: the QP. */
static struct end call(int last)
{
	struct end a = end_new(0), b = a;
	struct ibv_qp other = *a.qp;

	b.gid.raw[15] = last;
	b.qp = &other;
	end_connect(&a, &b, &joint_patient);
	post_send(a.qp, 1, (struct mem){ a.mem, 8, a.mr->lkey });
	return a;
}

static void wait_thread(void)
{
	int ms;

	for (ms = 0; t_shell_status("grep -qs keel_connect /proc/[0-9]*/comm"); ms += 20) {
		if (ms > 5000)
			FAIL("no thread connects");
		usleep(20000);
	}
}

/*
 * Stop to listen, with no connection left that nobody has accepted. Else TCP takes a lock for each
 * of them, and siw has taken that in a way of which lockdep would warn then.
 */
static void unlisten(int fd)
{
	SYS(fcntl(fd, F_SETFL, O_NONBLOCK));
	while (accept(fd, NULL, NULL) >= 0)
		;
	CHECK_EQ(errno, EAGAIN);
	close(fd);
}

TEST_SLOW(silent, "HOST-2", "a host that does not answer by TCP holds up neither siw nor keel when they are removed", 60)
{
	struct end a;

	begin();
	free(t_shell("ip neigh replace fe80::77 lladdr 02:00:00:00:00:01 dev keel_a nud permanent"));
	a = call(0x77);
	wait_thread();
	/* siw itself would wait for two minutes each time. */
	host_lower(0, 0);
	host_lower(0, 1);
	wait_thread();
	end_free(&a);
	free(t_shell("rdma link delete keel_a"));
}

TEST_SLOW(mute, "HOST-2", "a host that answers by TCP, but not by MPA, holds up removal no longer than siw waits", 60)
{
	struct sockaddr_in6 at = {
		.sin6_family = AF_INET6,
		.sin6_addr.s6_addr = { 0xfe, 0x80, [15] = SELF }, .sin6_port = htons(PORT),
	};
	int fd = SYS(socket(AF_INET6, SOCK_STREAM, 0));
	struct end a;
	double start;

	begin();
	/* It has the port. */
	host_lower(1, 0);
	at.sin6_scope_id = if_nametoindex("keel_b");
	SYS(bind(fd, (struct sockaddr *)&at, sizeof(at)));
	SYS(listen(fd, 10));
	a = call(SELF);
	close(SYS(accept(fd, NULL, NULL)));
	SYS(accept(fd, NULL, NULL));
	start = now();
	host_lower(0, 0);
	t_note("siw was removed after %.1f s", now() - start);
	host_lower(0, 1);
	host_lower(1, 1);
	end_free(&a);
	unlisten(fd);
}

#define MUTES	8

/* One after the other, they would take longer than this case may. */
TEST_SLOW(mutes, "HOST-2", "several hosts that answer by TCP, but not by MPA, hold up removal at the same time", 35)
{
	struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_port = htons(PORT) };
	int fd = SYS(socket(AF_INET6, SOCK_STREAM, 0)), i;
	struct end ends[MUTES];
	double start;

	begin();
	/* It has the port. */
	host_lower(1, 0);
	SYS(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "keel_b", sizeof("keel_b")));
	SYS(bind(fd, (struct sockaddr *)&at, sizeof(at)));
	SYS(listen(fd, 2 * MUTES));
	for (i = 0; i < MUTES; i++)
		free(t_shell("ip address replace fe80::%d/64 nodad dev keel_b", 20 + i));
	for (i = 0; i < MUTES; i++)
		ends[i] = call(0x20 + i);
	for (i = 0; i < MUTES; i++)
		SYS(accept(fd, NULL, NULL));
	start = now();
	free(t_shell("rdma link delete keel_a"));
	t_note("keel was removed after %.1f s", now() - start);
	for (i = 0; i < MUTES; i++)
		end_free(&ends[i]);
	unlisten(fd);
}

/* A socket in the network namespace keel_m. */
static int far_socket(void)
{
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_port = htons(ROOT_PORTS - 1) };
	int home = SYS(open("/proc/self/ns/net", O_RDONLY)), fd;
	int away = SYS(open("/run/netns/keel_m", O_RDONLY));

	SYS(setns(away, CLONE_NEWNET));
	fd = SYS(socket(AF_INET, SOCK_STREAM, 0));
	SYS(bind(fd, (struct sockaddr *)&from, sizeof(from)));
	SYS(setns(home, CLONE_NEWNET));
	close(home);
	close(away);
	set_timeout(fd, 10);
	return fd;
}

TEST(ipv4, "HOST-3", "over iWARP, hosts may ask by IPv4")
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	struct hello hello = honest();
	struct fpdu pdu;
	int fd;

	begin();
	host_lower(1, 0);
	free(t_shell("rdma link delete keel_b; ip netns add keel_m; "
		     "ip link add keel_m type veth peer name keel_n netns keel_m; "
		     "ip address add 10.8.0.1/24 dev keel_m; ip link set keel_m up; "
		     "ip -n keel_m address add 10.8.0.2/24 dev keel_n; "
		     "ip -n keel_m link set keel_n up; "
		     "rdma link add keel_b type keel netdev keel_m; "
		     "rdma link add siw_b type siw netdev keel_m"));
	fd = far_socket();
	inet_pton(AF_INET, "10.8.0.1", &to.sin_addr);
	SYS(connect(fd, (struct sockaddr *)&to, sizeof(to)));
	ask(fd, &hello, sizeof(hello));
	ask_frame(fd, accepted(fd).cookie, &pdu);
	close(fd);
}
