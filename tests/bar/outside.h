/* SPDX-License-Identifier: GPL-2.0 */
/*
 * These tests share the folder /share with the host, where scripts/bar-test
 * puts the file behind the BAR of keel0.
 */
#ifndef OUTSIDE_H
#define OUTSIDE_H

#define SHARE	"/share"
#define FILE0	SHARE "/bar0"

#endif /* OUTSIDE_H */
