// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel log: that of the fuzzer of the uapi.
 */
#include "../fuzz/kernel_log.c"
