/* SPDX-License-Identifier: GPL-2.0 */
/* Declarations that the files of the launcher share */
#ifndef KEEL_RUN_H
#define KEEL_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "wire.h"

/* A list of strings that belong to somebody else */
struct strings {
	const char **item;
	size_t count;
};

/* options.c */
struct options {
	struct strings params, rw, layers, append;
	const char *with, *kernel_log;
	const char *kernel;	/* NULL: the bundle's, with its modules */
	const char *system;	/* NULL: the files of the machine */
	uint64_t dm_size;	/* 0: the module's default */
	unsigned int devices, cpus, mem, timeout;
	bool debug, root, ro, shell;
	char **command;
};

void options_parse(struct options *opt, int argc, char **argv);

/* util.c */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void say_more(const char *format, ...) __attribute__((format(printf, 1, 2)));
void die(const char *format, ...)
	__attribute__((format(printf, 1, 2), noreturn));
void *need_memory(void *p);
char *format(const char *format, ...) __attribute__((format(printf, 1, 2)));
void strings_add(struct strings *list, const char *item);
int write_all(int fd, const void *data, size_t len);

/* bundle.c */
struct bundle {
	char *init;		/* first program of the guest */
	char *dir;		/* kernel and modules: DIR/linux, DIR/modules */
	char *kernel;
};

void bundle_find(struct bundle *bundle, const struct options *opt);

/* settings.c: what the guest is told */
struct buffer {
	unsigned char *data;
	size_t len, size;
};

void buffer_add(struct buffer *buf, const void *data, size_t len);
void buffer_drop(struct buffer *buf, size_t len);
void wire_put(struct buffer *buf, enum wire_type type, const void *data,
	      size_t len);
void wire_put_string(struct buffer *buf, enum wire_type type, const char *text);
void settings_put(struct buffer *buf, const struct options *opt,
		  const struct bundle *bundle, const struct wire_run *run);

/* streams.c: the standard streams and the terminal of the caller */
void streams_inspect(struct wire_run *run);
void terminal_raw(const struct wire_run *run);
bool terminal_is_raw(void);
void terminal_restore(void);
bool terminal_size(struct wire_winsize *win);

/* guest.c: the process that is the guest */
struct guest {
	pid_t pid;		/* 0: not started, or over */
	int socket;		/* the launcher's end of its console */
	int log;		/* what the kernel printed */
};

void limits_raise(void);
void guest_start(struct guest *guest, const struct options *opt,
		 const struct bundle *bundle);
bool guest_reap(struct guest *guest);
void guest_kill(struct guest *guest);

/* report.c: the kernel's log */
void report_death(const struct guest *guest);
void report_slow(const struct guest *guest);
bool report_complaints(const struct guest *guest);

/* session.c: from the first message of the guest to its end */
int session_run(const struct options *opt, const struct bundle *bundle,
		struct buffer *settings, const struct wire_run *run);

#endif
