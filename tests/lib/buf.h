/* SPDX-License-Identifier: GPL-2.0 */
/*
 * dma-bufs of udmabuf, which creates them from pages of a memfd.
 */
#ifndef BUF_H
#define BUF_H

#include "t.h"

#define PAGE	4096
#define PAGES	4
#define SIZE	(PAGES * PAGE)

/* The right that only x86 grants: an exporter may map its memory uncached. */
#ifdef __x86_64__
#define BUF_ATOMIC	IBV_ACCESS_REMOTE_ATOMIC
#else
#define BUF_ATOMIC	0
#endif

#define TEST_DMABUF(fn, its_ids, its_title)				\
	TEST_CASE(fn, its_ids, its_title, .not_kernel = "6.1.",		\
		  .not_kernel_why = "which has no udmabuf")

/**
 * struct buf - a dma-buf of a memfd's pages, back to front
 * @memfd: the memory
 * @fd: the dma-buf
 * @p: @memfd, mapped
 */
struct buf {
	int memfd;
	int fd;
	char *p;
};

/*
 * The order of pages differs from the memfd's: page n of the dma-buf is page
 * PAGES - 1 - n of the memfd. All bytes are 'b'.
 */
struct buf buf_new(void);
/* Close the files and mappings. */
void buf_close(struct buf *b);
/* Return page @n of the dma-buf. */
char *buf_page(const struct buf *b, int n);

/* Return the number of dma-bufs of all processes. */
long buf_count(void);
/* Return the number of references on the only dma-buf there is. */
long buf_refs(void);
/*
 * The kernel may release a dma-buf some time after its last file is closed. The
 * count of references in the text tells whether somebody still has it.
 */
void buf_check_count(long want);

#endif /* BUF_H */
