// SPDX-License-Identifier: GPL-2.0
/*
 * How an administrator sees links: their file in debugfs, counters, and trace events.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hosts.h"
#include "qp.h"
#include "t.h"

#define TRACING	"/sys/kernel/tracing/"
#define EVENT	TRACING "events/keel/keel_link/enable"
/* ib_core caches counters for 10 ms, and a tick, which is 10 ms or less. */
#define CACHED_US	50000
#define LEN		10000
#define PACKETS		3

static struct end a, b;

void t_end(void)
{
	hosts_down();
}

static long counter(const char *dev, const char *name)
{
	char path[200], *text;
	long n;

	usleep(CACHED_US);
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters/%s", dev,
		 name);
	text = t_read_file(path);
	n = atol(text);
	free(text);
	return n;
}

static void begin(void)
{
	hosts_up();
	a = end_new(0);
	b = end_new(1);
	ends_join(&a, &b, &joint_usual);
}

static void end(void)
{
	end_free(&a);
	end_free(&b);
}

static void send_long(uint64_t id)
{
	post_recv(b.qp, id, (struct mem){ b.mem, LEN, b.mr->lkey });
	post_send(a.qp, id, (struct mem){ a.mem, LEN, a.mr->lkey });
	CHECK_WC(a.cq, id, IBV_WC_SUCCESS);
	CHECK_WC(b.cq, id, IBV_WC_SUCCESS);
}

/* Wait until @file has @text. */
static void wait_for(const char *file, const char *text)
{
	char *got = NULL;
	int ms;

	for (ms = 0; ms < 20000; ms += 50) {
		free(got);
		got = t_read_file(file);
		if (strstr(got, text)) {
			free(got);
			return;
		}
		usleep(50000);
	}
	FAIL("%s has \"%s\", want \"%s\"", file, got, text);
}

TEST(counters, "HOST-5", "counters tell how many packets a message to another host has, at both ends")
{
	long sent, served, back;

	begin();
	send_long(1);
	sent = counter("keel_a", "far_packets");
	served = counter("keel_b", "far_served");
	back = counter("keel_a", "far_served");
	send_long(2);
	CHECK_EQ(counter("keel_b", "far_served") - served, PACKETS);
	/* Some may have been sent twice. */
	CHECK_EQ(counter("keel_a", "far_packets") - sent >= PACKETS, 1);
	CHECK_EQ(counter("keel_a", "far_served"), back);
	end();
}

TEST(file, "HOST-5", "debugfs shows the link of two QPs, and the device that carries it")
{
	begin();
	send_long(1);
	wait_for("/sys/kernel/debug/keel/keel_a/links",
		 "link ::ffff:10.9.0.1 to ::ffff:10.9.0.2 users 1 connections ");
	wait_for("/sys/kernel/debug/keel/keel_a/links", " over rxe_a credits ");
	wait_for("/sys/kernel/debug/keel/keel_b/links", " over rxe_b credits ");
	end();
}

TEST_SLOW(trace, "HOST-5", "a trace event tells that a link was connected, and why its connection has ended", 90)
{
	begin();
	send_long(1);
	CHECK_OK(t_write_file(TRACING "trace", ""));
	CHECK_OK(t_write_file(EVENT, "1"));
	host_lower(0, 0);
	wait_for(TRACING "trace",
		 "keel_a: ::ffff:10.9.0.1 to ::ffff:10.9.0.2: the lower device is removed");
	host_lower(0, 1);
	send_long(2);
	wait_for(TRACING "trace", "keel_a: ::ffff:10.9.0.1 to ::ffff:10.9.0.2: connected");
	wait_for(TRACING "trace", "keel_b: ::ffff:10.9.0.2 to ::ffff:10.9.0.1: connected");
	CHECK_OK(t_write_file(EVENT, "0"));
	end();
}
