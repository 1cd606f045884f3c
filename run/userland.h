/* SPDX-License-Identifier: GPL-2.0 */
/* Where the bundle's user libraries and tools are in the guest */
#ifndef KEEL_RUN_USERLAND_H
#define KEEL_RUN_USERLAND_H

#define USERLAND	"/usr/lib/keel-run"
#define USERLAND_LOADER	USERLAND "/glibc/ld-linux-x86-64.so.2"

#endif
