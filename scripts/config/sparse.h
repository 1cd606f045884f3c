/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Read by sparse before each file: what sparse 0.6.4, the newest release, does
 * not know of what kernel 7.2 is written in.
 */

/* The qualifiers that it would drop are of no interest to sparse's checks. */
#define __typeof_unqual__ __typeof__

/* In a static_assert() on a string literal: constant for gcc, not for sparse. */
#define __builtin_strlen(s) (sizeof(s) - 1)
