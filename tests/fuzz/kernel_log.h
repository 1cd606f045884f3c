/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reports of the kernel in its log. Both fuzzers have it.
 */
#ifndef KERNEL_LOG_H
#define KERNEL_LOG_H

/*
 * From now on, lines that match one of the extended regular expressions of this file are reports.
 * Return NULL, or what is wrong.
 */
const char *kernel_log_open(const char *path);
/* Return the next report, which is valid until the next call, or NULL. */
const char *kernel_log_report(void);

#endif /* KERNEL_LOG_H */
