/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two processes meet in one XRC domain, because they open the same file.
 */
#include <fcntl.h>
#include <sys/wait.h>

#include "say.h"

static const char path[] = "/tmp/meeting-point";

static struct ibv_xrcd *open_domain(struct ibv_context *context, int oflags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = open(path, O_RDONLY | O_CREAT, 0600),
		.oflags = oflags,
	};
	struct ibv_xrcd *xrcd;

	must(attr.fd >= 0);
	xrcd = ibv_open_xrcd(context, &attr);
	/* The domain belongs to the inode, not to this descriptor. */
	close(attr.fd);
	return xrcd;
}

/* The second process knows only the name of the file. */
static int guest(int ready, int leave)
{
	struct ibv_context *context = open_keel();
	struct ibv_xrcd *xrcd = open_domain(context, 0);

	must(xrcd);
	did("ibv_open_xrcd(\"%s\", no O_CREAT) -> in", path);
	tell(ready);
	wait_for(leave);
	must_be(ibv_close_xrcd(xrcd), 0);
	return ibv_close_device(context);
}

int main(void)
{
	struct ibv_context *context = open_keel();
	struct ibv_xrcd *xrcd;
	int ready[2], leave[2], status;
	pid_t child;

	unlink(path);
	say("No domain is tied to this file yet, and no flag asks for one.");
	must(!open_domain(context, 0) && errno == EAGAIN);
	did("ibv_open_xrcd(\"%s\", no O_CREAT) -> NULL, EAGAIN", path);

	say("With O_CREAT there is.");
	xrcd = open_domain(context, O_CREAT);
	must(xrcd);
	did("ibv_open_xrcd(\"%s\", O_CREAT) -> in", path);

	say("Another process opens the same file, and is in the same domain.");
	must(!pipe(ready) && !pipe(leave));
	child = fork();
	if (!child)
		exit(guest(ready[1], leave[0]));
	wait_for(ready[0]);
	tree();

	say("Both are in, so it cannot be created exclusively.");
	must(!open_domain(context, O_CREAT | O_EXCL) && errno == EINVAL);
	did("ibv_open_xrcd(O_CREAT|O_EXCL) -> NULL, EINVAL");

	say("The creator exits, the file is unlinked. The domain lives on.");
	must_be(ibv_close_xrcd(xrcd), 0);
	must(!unlink(path));
	tree();

	say("The last one leaves, and it is gone.");
	tell(leave[1]);
	must(waitpid(child, &status, 0) == child && !status);
	tree();
	return ibv_close_device(context);
}
