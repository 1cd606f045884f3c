/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The programs here share with the host what scripts/bar-test prepared:
 * the folder /share, and in it the file behind the BAR of keel0.
 */
#ifndef OUTSIDE_H
#define OUTSIDE_H

#define SHARE	"/share"
#define FILE0	SHARE "/bar0"

#endif /* OUTSIDE_H */
