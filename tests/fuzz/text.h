/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Changes of inputs that keep their calls whole. All return the new length.
 */
#ifndef TEXT_H
#define TEXT_H

#include <stddef.h>
#include <stdint.h>

size_t text_mutate(uint8_t *data, size_t size, size_t max, uint64_t seed);
/* The front of one input, followed by the front of another one. */
size_t text_cross(const uint8_t *one, size_t n, const uint8_t *other, size_t m,
		  uint8_t *out, size_t max, uint64_t seed);

#endif /* TEXT_H */
