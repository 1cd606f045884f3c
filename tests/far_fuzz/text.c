// SPDX-License-Identifier: GPL-2.0
/*
 * Inputs as text, and their mutation: those of the fuzzer of the uapi, built for these calls.
 */
#include "../fuzz/text.c"
