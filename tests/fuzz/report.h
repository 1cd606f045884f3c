/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Files that a guest leaves on the host: the inputs that it executed last, its
 * counts and the covered code.
 */
#ifndef REPORT_H
#define REPORT_H

#include <stddef.h>
#include <stdint.h>

#define HISTORY		16

/* Open the files in this folder; NULL: keep none. */
void report_init(const char *dir);
/* Save an input before it is executed: it may end the guest. */
void report_input(const uint8_t *data, size_t size);
/* Keep an input whose process hung or did not end as planned. */
void report_ended(const uint8_t *data, size_t size);
/* Write the counts and the covered code, every second or @now. */
void report_counts(int now);
/* Read a saved input: 0 is the last one. Return 0 if there is none. */
size_t report_read(const char *path, int age, uint8_t *data);
/* Join a path, or exit if it is too long. */
void report_path(char *to, size_t max, const char *dir, const char *name,
		 const char *suffix);

#endif /* REPORT_H */
