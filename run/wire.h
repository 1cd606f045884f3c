/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The messages between keel-run on the host and the init of the guest, on port 0
 * of the guest's console device. Both are of one build, so there is no version.
 */
#ifndef KEEL_RUN_WIRE_H
#define KEEL_RUN_WIRE_H

#include <stdint.h>

/* Ports of the console device: /dev/vport0pN */
enum wire_port {
	PORT_CONTROL,
	PORT_STDIN,
	PORT_STDOUT,
	PORT_STDERR,
	PORT_COUNT,
};

enum wire_type {
	/* To the guest, before WIRE_GO; those marked * may repeat */
	WIRE_ARG = 1,		/* * one argument of the command */
	WIRE_ENV,		/* * one variable, NAME=VALUE */
	WIRE_CWD,		/* working directory */
	WIRE_IDS,		/* struct wire_ids */
	WIRE_GROUP,		/* * one supplementary group, uint32_t */
	WIRE_RLIMIT,		/* * struct wire_rlimit */
	WIRE_LAYER,		/* * directory of the root's files, topmost first */
	WIRE_RW,		/* * directory to write through */
	WIRE_BUNDLE,		/* directory of the bundle */
	WIRE_MODULE,		/* * module and its parameters: "NAME P=V P=V" */
	WIRE_RUN,		/* struct wire_run */
	WIRE_HOST,		/* host name */
	WIRE_CPU,		/* the host's "cpu MHz" line for /proc/cpuinfo */
	WIRE_GO,		/* everything was sent */
	/* To the guest, while the command runs */
	WIRE_SIGNAL,		/* uint32_t: for the command's process group */
	WIRE_WINSIZE,		/* struct wire_winsize */
	/* From the guest */
	WIRE_READY,		/* the command is about to start */
	WIRE_ENDED,		/* uint32_t: exit status; its output may follow */
	WIRE_EXIT,		/* uint32_t: the same, after all its output */
	WIRE_FAIL,		/* struct wire_fail and a sentence */
	WIRE_WARN,		/* a sentence for standard error */
};

struct wire_head {
	uint32_t type;
	uint32_t len;
};

/* No argument or variable is longer (MAX_ARG_STRLEN of Linux). */
#define WIRE_MAX	(128 * 1024)

struct wire_ids {
	uint32_t uid, gid, umask;
};

struct wire_rlimit {
	uint32_t resource, pad;
	uint64_t soft, hard;
};

struct wire_winsize {
	uint16_t rows, cols;
};

/* How a standard stream of the command is made */
enum wire_stream {
	STREAM_CLOSED,
	STREAM_PIPE,
	STREAM_TTY,
};

struct wire_run {
	uint8_t stream[3];	/* enum wire_stream */
	uint8_t raw_tty;	/* the host's terminal does no output processing */
	uint8_t read_only;	/* --ro */
	uint8_t debug;		/* --debug: look for leaks after the command */
	uint16_t devices;	/* keel0 and so on */
	uint64_t ignored;	/* signals that the caller ignores, bit N-1 */
	struct wire_winsize win;
	uint32_t pad;
};

struct wire_fail {
	uint32_t status;	/* that keel-run exits with */
};

/* Exit statuses of keel-run's own, as env(1) and docker-run(1) have them */
enum {
	STATUS_TIMEOUT = 124,
	STATUS_FAILED = 125,
	STATUS_NOT_EXECUTABLE = 126,
	STATUS_NOT_FOUND = 127,
};

#endif
