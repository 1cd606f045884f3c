// SPDX-License-Identifier: GPL-2.0
/*
 * dma-bufs of udmabuf. See buf.h.
 */
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "buf.h"

struct buf buf_new(void)
{
	struct {
		struct udmabuf_create_list head;
		struct udmabuf_create_item item[PAGES];
	} create = { .head.flags = UDMABUF_FLAGS_CLOEXEC,
		     .head.count = PAGES };
	int dev = SYS(open("/dev/udmabuf", O_RDWR | O_CLOEXEC));
	struct buf b;
	int i;

	b.memfd = SYS(memfd_create("dmabuf", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	SYS(ftruncate(b.memfd, SIZE));
	SYS(fcntl(b.memfd, F_ADD_SEALS, F_SEAL_SHRINK));
	b.p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, b.memfd, 0);
	CHECK(b.p != MAP_FAILED);
	memset(b.p, 'b', SIZE);
	for (i = 0; i < PAGES; i++)
		create.item[i] = (struct udmabuf_create_item){
			.memfd = b.memfd, .size = PAGE,
			.offset = (PAGES - 1 - i) * PAGE,
		};
	b.fd = SYS(ioctl(dev, UDMABUF_CREATE_LIST, &create));
	close(dev);
	return b;
}

void buf_close(struct buf *b)
{
	SYS(munmap(b->p, SIZE));
	close(b->memfd);
	close(b->fd);
}

char *buf_page(const struct buf *b, int n)
{
	return b->p + (PAGES - 1 - n) * PAGE;
}

long buf_count(void)
{
	char *text = t_read_file("/sys/kernel/debug/dma_buf/bufinfo");
	char *at = NULL, *next = text;
	long n;

	/*
	 * Find the last "Total": each dma-buf has a "Total" of its devices
	 * before.
	 */
	while ((next = strstr(next, "\nTotal ")))
		at = ++next;
	CHECK(at);
	n = atol(at + 6);
	free(text);
	return n;
}

long buf_refs(void)
{
	char *text = t_read_file("/sys/kernel/debug/dma_buf/bufinfo");
	char *line = strstr(text, "\tudmabuf\t");
	long n;

	CHECK(line);
	while (line > text && line[-1] != '\n')
		line--;
	CHECK_EQ(sscanf(line, "%*u %*x %*x %ld", &n), 1);
	free(text);
	return n;
}

void buf_check_count(long want)
{
	int i;

	for (i = 0; i < 3000 && buf_count() != want; i++)
		usleep(10000);
	if (buf_count() != want)
		FAIL("got %ld dma-bufs, want %ld:\n%s", buf_count(), want,
		     t_read_file("/sys/kernel/debug/dma_buf/bufinfo"));
}
