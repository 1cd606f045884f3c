/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The side of the fuzzer that hands over inputs, and watches the kernel and the
 * process that executes them.
 */
#ifndef WATCH_H
#define WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KCOV_FILE	"/sys/kernel/debug/kcov"

/* Allocate the shared memory. */
void watch_alloc(void);
/* Prepare the checks. With $FUZZ_GUEST, each of them must be possible. */
void watch_init(void);
/*
 * Execute an input. Return false if its process, or a child of it, hung or did
 * not end as planned. After a finding, this does not return.
 */
bool watch_input(const uint8_t *data, size_t size);
/* Count a process that did not end as planned. */
void watch_count_end(int status);
/* End the guest: after a finding, nothing in it can be trusted. */
void watch_finding(const char *what) __attribute__((noreturn));

#endif /* WATCH_H */
