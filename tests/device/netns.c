// SPDX-License-Identifier: GPL-2.0
/*
 * Network namespaces: the two modes of the RDMA core, and a device that moves
 * from one namespace to another.
 */
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include "dev.h"
#include "hold.h"
#include "peer.h"
#include "t.h"
#include "tree.h"

#define SPACE	"keeltest"
/* A name for the initial namespace. */
#define HOME	"keelhome"

static bool set_mode(const char *mode)
{
	/* The kernel frees a deleted namespace some time later. */
	return !t_shell_status("for i in $(seq 300); do "
			       "rdma system set netns %s 2>&1 && exit; "
			       "sleep 0.1; done; exit 1", mode);
}

void t_after(void)
{
	t_shell_status("rdma link delete " KEEL1 " 2>&1; "
		       "ip netns exec " SPACE " rdma link delete " KEEL1 " 2>&1; "
		       "ip netns delete " SPACE " 2>&1; "
		       "ip netns delete " HOME " 2>&1");
	dev_del();
	set_mode("shared");
}

/* Move this process to the namespace, with a /sys that shows the namespace. */
static void enter(void)
{
	int fd = SYS(open("/run/netns/" SPACE, O_RDONLY | O_CLOEXEC));

	SYS(setns(fd, CLONE_NEWNET));
	SYS(unshare(CLONE_NEWNS));
	SYS(mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL));
	SYS(umount2("/sys", MNT_DETACH));
	SYS(mount("sysfs", "/sys", "sysfs", 0, NULL));
}

static bool is_listed(const char *name)
{
	return !t_shell_status("rdma dev show %s 2>&1", name);
}

static void shared_guest(struct peer *parent)
{
	enter();
	CHECK(is_listed(KEEL0) && dev_exists(KEEL0));
	dev_check_works(KEEL0);
}

TEST(shared, "DEV-1", "in netns mode shared, a process in any network namespace sees the device and sends messages")
{
	struct peer p;

	CHECK(set_mode("shared"));
	free(t_shell("ip netns add " SPACE));
	peer_start(&p, shared_guest);
	peer_end(&p);
	dev_check_works(KEEL0);
}

static void excluded_guest(struct peer *parent)
{
	int fd;

	/* Outside the namespace, the process can open the device. */
	fd = SYS(open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC));
	close(fd);
	enter();
	CHECK(!is_listed(KEEL0) && !dev_exists(KEEL0));
	CHECK_SYS(open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC), EPERM);
}

TEST(exclusive, "DEV-1", "in netns mode exclusive, a process in another network namespace neither sees nor opens the device (EPERM)")
{
	struct peer p;

	CHECK(set_mode("exclusive"));
	free(t_shell("ip netns add " SPACE));
	peer_start(&p, excluded_guest);
	peer_end(&p);
	dev_check_works(KEEL0);
	/* The RDMA core refuses this mode change while a namespace exists. */
	CHECK(t_shell_status("rdma system set netns shared 2>&1"));
	dev_check_works(KEEL0);
}

static void left_behind(struct peer *parent)
{
	struct ibv_async_event event;
	struct hold h;

	hold_all(&h, KEEL1);
	peer_tell(parent);
	do {
		CHECK_OK(ibv_get_async_event(h.ctx, &event));
		ibv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_DEVICE_FATAL);
	hold_check_gone(&h, false);
	peer_tell(parent);
	/*
	 * The device exists in the new namespace, but this context stays dead.
	 */
	peer_wait(parent);
	hold_check_gone(&h, true);
	hold_free(&h);
}

static void moved_guest(struct peer *parent)
{
	enter();
	CHECK(is_listed(KEEL1) && dev_exists(KEEL1));
	CHECK(!is_listed(KEEL0) && !dev_exists(KEEL0));
	dev_check_works(KEEL1);
}

static void move(const char *command)
{
	struct peer old;

	peer_start(&old, left_behind);
	peer_wait(&old);
	CHECK(tree_count(KEEL1, NULL) > 20);
	free(t_shell("%s", command));
	peer_wait(&old);
	CHECK_EQ(tree_count(KEEL1, NULL), 0);
	peer_tell(&old);
	peer_end(&old);
	CHECK_EQ(tree_count(KEEL1, NULL), 0);
}

TEST(moved, "DEV-3", "after rdma dev set netns, old contexts get DEVICE_FATAL and EIO, the new namespace has the device, and it can move back")
{
	struct peer p;
	int i;

	CHECK(set_mode("exclusive"));
	free(t_shell("ip netns add " SPACE " && ip netns attach " HOME " $$"));
	dev_add();
	for (i = 0; i < 3; i++) {
		move("rdma dev set " KEEL1 " netns " SPACE);
		CHECK(!is_listed(KEEL1) && !dev_exists(KEEL1));
		peer_start(&p, moved_guest);
		peer_end(&p);
		free(t_shell("ip netns exec " SPACE " rdma dev set " KEEL1
			     " netns " HOME));
		CHECK(is_listed(KEEL1) && dev_exists(KEEL1));
		dev_check_works(KEEL1);
	}
}

TEST(orphaned, "DEV-3", "after deletion of its network namespace, the device returns to the initial namespace and works")
{
	int i;

	CHECK(set_mode("exclusive"));
	free(t_shell("ip netns add " SPACE));
	dev_add();
	free(t_shell("rdma dev set " KEEL1 " netns " SPACE));
	CHECK(!is_listed(KEEL1));
	free(t_shell("ip netns delete " SPACE));
	for (i = 0; i < 1000 && !dev_exists(KEEL1); i++)
		usleep(10000);
	CHECK(is_listed(KEEL1) && dev_exists(KEEL1));
	dev_check_works(KEEL1);
}

TEST(not_in_shared, "DEV-1", "in netns mode shared, a device cannot be moved to another namespace")
{
	CHECK(set_mode("shared"));
	free(t_shell("ip netns add " SPACE));
	CHECK(t_shell_status("rdma dev set " KEEL0 " netns " SPACE " 2>&1"));
	dev_check_works(KEEL0);
}

TEST(netdev_moved, "DEV-3", "moving a netdev to another namespace removes its device, and the device can be created again there")
{
	int i;

	CHECK(set_mode("shared"));
	free(t_shell("ip netns add " SPACE));
	dev_add();
	dev_check_works(KEEL1);
	free(t_shell("ip link set " KEEL1_NETDEV " netns " SPACE));
	for (i = 0; i < 1000 && dev_exists(KEEL1); i++)
		usleep(10000);
	CHECK(!dev_exists(KEEL1));
	free(t_shell("ip -n " SPACE " link set " KEEL1_NETDEV " up"));
	/* The name becomes free some time after the device disappears. */
	free(t_shell("for i in $(seq 300); do ip netns exec " SPACE
		     " rdma link add " KEEL1 " type keel netdev " KEEL1_NETDEV
		     " 2>&1 && exit; sleep 0.1; done; exit 1"));
	dev_check_works(KEEL1);
	/* The netdev of keel0 cannot be moved. */
	CHECK(t_shell_status("ip link set " KEEL0 " netns " SPACE " 2>&1"));
	dev_check_works(KEEL0);
}
