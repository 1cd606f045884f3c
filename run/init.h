/* SPDX-License-Identifier: GPL-2.0 */
/* Declarations that the files of the guest's init share */
#ifndef KEEL_RUN_INIT_H
#define KEEL_RUN_INIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire.h"

struct list {
	char **item;		/* ends with NULL */
	size_t count;
};

/* Everything that the launcher sent before WIRE_GO */
struct settings {
	struct list args, env, layers, rw, modules;
	char *cwd, *bundle, *host, *cpu;
	struct wire_ids ids;
	uint32_t *groups;
	size_t group_count;
	struct wire_rlimit *limits;
	size_t limit_count;
	struct wire_run run;
};

/* init.c */
void fail(uint32_t status, const char *format, ...)
	__attribute__((format(printf, 2, 3), noreturn));
void warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
void power_off(void) __attribute__((noreturn));

/* init-control.c: the launcher's messages */
void control_open(void);
int control_fd(void);
void control_send(enum wire_type type, const void *data, size_t len);
void control_settings(struct settings *settings);
int control_read(enum wire_type *type, void *data, size_t size);
void port_wait(int fd);
int port_open(enum wire_port port);

/* init-mount.c */
void mount_early(void);
void mount_directories(const struct settings *s);
void mount_root(const struct settings *settings);
int make_directories(const char *path);
int write_file(const char *path, const char *content);

int mount_host(const char *directory, const char *target);

/* init-userland.c */
void userland_start(const struct settings *settings);
void userland_check(const char *program);

/* init-module.c */
void modules_load(const struct settings *settings);

/* init-net.c */
void network_start(void);
int device_add(const char *type, const char *name, const char *netdev);
int dummy_add(const char *name);
void addresses_add(const char *netdev, unsigned int number);

/* init-command.c */
struct command {
	pid_t pid;
	int in, out, err;	/* this end of the streams, or -1 */
	int tty, slave;		/* both ends of its terminal, or -1 */
};

void command_start(struct command *command, const struct settings *settings);

/* init-relay.c */
uint32_t relay(struct command *command, const struct settings *settings);

/* init-debug.c */
void debug_check(void);

/* The folder of the guest's own things, under the command's root */
#define GUEST_DIR	"/dev/.keel-run"
#define BUNDLE_MODULES	GUEST_DIR "/modules"

#endif
