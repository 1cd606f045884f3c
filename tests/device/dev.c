// SPDX-License-Identifier: GPL-2.0
/*
 * Creation and removal of the device, and whether its reported attributes are
 * true. These tests load and unload the module, so nothing else may use the
 * device meanwhile.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <infiniband/keeldv.h>
#include <rdma/keel-abi.h>

#include "dev.h"
#include "fault.h"
#include "peer.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096

static char page[PAGE] __attribute__((aligned(PAGE)));

/*
 * Set whether the PCI core binds existing functions when the module is loaded.
 */
#define AUTOPROBE	"/sys/bus/pci/drivers_autoprobe"

static void autoprobe(const char *yes)
{
	if (!access(AUTOPROBE, F_OK))
		CHECK_OK(t_write_file(AUTOPROBE, yes));
}

/* The network namespace of the test of GUIDs, which has more devices. */
#define GUID_SPACE	"keelguid"

static void guid_after(void)
{
	if (access("/run/netns/" GUID_SPACE, F_OK))
		return;
	t_shell_status("rdma link delete keel2 2>&1; "
		       "ip netns exec " GUID_SPACE " rdma link delete keel3 2>&1; "
		       "ip netns delete " GUID_SPACE " 2>&1; "
		       "rdma link delete rxe_keel 2>&1; modprobe -r rdma_rxe 2>&1");
}

void t_after(void)
{
	guid_after();
	dev_del();
	autoprobe("1");
	module_restore();
}

static struct ibv_port_attr query_port(const char *name)
{
	struct ibv_context *ctx = dev_open(name);
	struct ibv_port_attr attr;

	CHECK_OK(ibv_query_port(ctx, 1, &attr));
	CHECK_OK(ibv_close_device(ctx));
	return attr;
}

static int gid_count(const char *name)
{
	struct ibv_context *ctx = dev_open(name);
	struct ibv_gid_entry gids[256];
	int n = ibv_query_gid_table(ctx, gids, 256, 0);

	CHECK_OK(ibv_close_device(ctx));
	return n;
}

static void wait_for_state(const char *name, enum ibv_port_state want)
{
	int i;

	for (i = 0; i < 200 && query_port(name).state != want; i++)
		usleep(10000);
	CHECK_EQ(query_port(name).state, want);
}

TEST(insmod, "DEV-1", "insmod keel.ko creates keel0 with one ACTIVE Ethernet port and GIDs, and the device works")
{
	struct ibv_port_attr port;
	struct ibv_context *ctx;
	struct ibv_pd *pd;

	module_unload();
	CHECK(!dev_exists(KEEL0));
	module_load(module_usual());
	CHECK(dev_exists(KEEL0));
	wait_for_state(KEEL0, IBV_PORT_ACTIVE);
	port = query_port(KEEL0);
	CHECK_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	CHECK_EQ(port.phys_state, 5);
	CHECK(port.gid_tbl_len > 0);
	CHECK(gid_count(KEEL0) > 0);
	ctx = dev_open(KEEL0);
	CHECK(keeldv_is_supported(ctx->device));
	CHECK_EQ(ctx->device->node_type, IBV_NODE_CA);
	CHECK_EQ(ctx->device->transport_type, IBV_TRANSPORT_IB);
	pd = MUST(ibv_alloc_pd(ctx));
	CHECK_OK(ibv_dereg_mr(MUST(ibv_reg_mr(pd, page, PAGE, 0))));
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(again, "DEV-1", "rmmod removes every device, and the module can be loaded and unloaded repeatedly")
{
	int i;

	for (i = 0; i < 2; i++) {
		dev_add();
		CHECK(dev_exists(KEEL0) && dev_exists(KEEL1));
		module_unload();
		CHECK(!dev_exists(KEEL0) && !dev_exists(KEEL1));
		CHECK(access("/sys/kernel/debug/keel", F_OK));
		CHECK(access("/sys/class/net/" KEEL0, F_OK));
		/* The netdev belongs to the user and stays. */
		CHECK(!access("/sys/class/net/" KEEL1_NETDEV, F_OK));
		module_load(module_usual());
	}
}

TEST(parameters, "DEV-1,DM-3", "dm_size and default_device take effect, and insmod fails with an invalid dm_size")
{
	struct ibv_device_attr_ex attr;
	struct ibv_context *ctx;

	module_unload();
	autoprobe("0");
	module_load("dm_size=1048577");
	ctx = dev_open(KEEL0);
	CHECK_OK(ibv_query_device_ex(ctx, NULL, &attr));
	CHECK_EQ(attr.max_dm_size, 1048576 + PAGE);
	CHECK_OK(ibv_close_device(ctx));
	module_unload();
	module_load("default_device=0");
	CHECK(!dev_exists(KEEL0));
	dev_add();
	CHECK(dev_exists(KEEL1));
	dev_del();
	module_unload();
	CHECK(t_shell_status("insmod " MODULE_FILE " dm_size=0 2>&1"));
	CHECK(!module_loaded());
	CHECK(t_shell_status("insmod " MODULE_FILE " dm_size=18446744073709551615 2>&1"));
	CHECK(t_shell_status("insmod " MODULE_FILE " dm_size=1099511627776 2>&1"));
	/* The maximum, for which a guest has no memory, and a byte more. */
	free(t_shell("insmod " MODULE_FILE " dm_size=4294963200 2>&1 | "
		     "grep 'Cannot allocate memory'"));
	free(t_shell("insmod " MODULE_FILE " dm_size=4294963201 2>&1 | "
		     "grep -i 'invalid parameters'"));
	CHECK(!module_loaded());
	autoprobe("1");
	module_load(module_usual());
}

/* Load the module in this process. Return 0 or an errno. */
static int load_here(void)
{
	int fd = SYS(open(MODULE_FILE, O_RDONLY | O_CLOEXEC)), ret;

	ret = syscall(SYS_finit_module, fd, module_usual(), 0) ? errno : 0;
	close(fd);
	return ret;
}

TEST_ONLY_DEBUG(no_memory, "DEV-1,DEV-4", "insmod with each allocation of the netdev of keel0 failing once fails with ENOMEM and leaves nothing behind, and then succeeds",
		"its kernel cannot let allocations fail", 120)
{
	bool failed = true;
	int n, ret = 0, refused = 0;

	fault_init();
	fault_copies(false);
	fault_only_in("alloc_netdev_mqs");
	module_unload();
	for (n = 1; failed; n++) {
		fault_start(n);
		ret = load_here();
		failed = fault_end();
		if (!failed)
			break;
		/* The kernel may have another way to get the memory. */
		if (!ret) {
			free(t_shell("rmmod keel"));
			continue;
		}
		CHECK_EQ(ret, ENOMEM);
		refused++;
		CHECK(!module_loaded());
		CHECK(access("/sys/class/net/" KEEL0, F_OK));
		CHECK(access("/sys/kernel/debug/keel", F_OK));
	}
	CHECK_OK(ret);
	CHECK(refused > 0);
	CHECK(dev_exists(KEEL0));
	fault_only_keel(false);
	dev_check_works(KEEL0);
}

TEST(link, "DEV-1", "rdma link add creates a device with the given name and netdev, rdma link delete removes that device")
{
	struct ibv_context *ctx;
	char *text;

	dev_add();
	text = t_shell("rdma link show " KEEL1 "/1");
	CHECK(strstr(text, "netdev " KEEL1_NETDEV));
	ctx = dev_open(KEEL1);
	MUST(ibv_alloc_pd(ctx));
	CHECK_EQ(tree_count(KEEL1, "pd"), 1);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	CHECK_OK(ibv_close_device(ctx));
	free(t_shell("rdma link delete " KEEL1));
	CHECK(!dev_exists(KEEL1));
	CHECK(access("/sys/kernel/debug/keel/" KEEL1, F_OK));
	CHECK(dev_exists(KEEL0));
}

TEST(link_refused, "DEV-1", "rdma link add refuses a netdev that has a device, an unknown netdev and an existing device name")
{
	dev_add();
	CHECK(t_shell_status("rdma link add keel2 type keel netdev "
			     KEEL1_NETDEV " 2>&1"));
	CHECK(t_shell_status("rdma link add keel2 type keel netdev nosuch 2>&1"));
	free(t_shell("ip link add keeltest2 type dummy"));
	CHECK(t_shell_status("rdma link add " KEEL1 " type keel netdev "
			     "keeltest2 2>&1"));
	CHECK(!dev_exists("keel2"));
	/* The refused calls left nothing of keel2 behind. */
	free(t_shell("rdma link add keel2 type keel netdev keeltest2 && "
		     "rdma link delete keel2 && ip link delete keeltest2"));
}

TEST(netdev_gone, "DEV-1", "deletion of a netdev removes its device")
{
	int i;

	dev_add();
	free(t_shell("ip link delete " KEEL1_NETDEV));
	for (i = 0; i < 200 && dev_exists(KEEL1); i++)
		usleep(10000);
	CHECK(!dev_exists(KEEL1));
}

/* Check the next event that is no GID event. */
static void wait_for_event(struct ibv_context *ctx, enum ibv_event_type want)
{
	struct pollfd poll_fd = { .fd = ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	do {
		CHECK_EQ(SYS(poll(&poll_fd, 1, 5000)), 1);
		CHECK_OK(ibv_get_async_event(ctx, &event));
		ibv_ack_async_event(&event);
	} while (event.event_type == IBV_EVENT_GID_CHANGE);
	CHECK_EQ(event.event_type, want);
	CHECK_EQ(event.element.port_num, 1);
}

static void check_down_and_up(struct ibv_context *ctx)
{
	int i;

	for (i = 0; i < 3; i++) {
		free(t_shell("ip link set " KEEL1_NETDEV " down"));
		wait_for_state(KEEL1, IBV_PORT_DOWN);
		CHECK_EQ(query_port(KEEL1).phys_state, 3);
		wait_for_event(ctx, IBV_EVENT_PORT_ERR);
		free(t_shell("ip link set " KEEL1_NETDEV " up"));
		wait_for_state(KEEL1, IBV_PORT_ACTIVE);
		wait_for_event(ctx, IBV_EVENT_PORT_ACTIVE);
	}
}

TEST(port_state, "DEV-2", "the port is ACTIVE while its netdev is up and DOWN while the netdev is down, and events report both changes")
{
	dev_add();
	wait_for_state(KEEL1, IBV_PORT_ACTIVE);
	check_down_and_up(dev_open(KEEL1));
}

TEST(port_shared, "DEV-2", "port state and events follow the netdev if another driver has a device on the same netdev")
{
	dev_add();
	free(t_shell("modprobe rdma_rxe && "
		     "rdma link add rxe_keel type rxe netdev " KEEL1_NETDEV));
	wait_for_state(KEEL1, IBV_PORT_ACTIVE);
	check_down_and_up(dev_open(KEEL1));
	free(t_shell("rdma link delete rxe_keel && modprobe -r rdma_rxe"));
}

/* Check that the machine has @n devices, and that each has a node GUID of its own. */
static void check_guids(int n)
{
	char *text = t_shell("cat /sys/class/infiniband/*/node_guid | sort -u");
	char *number = t_shell("ls /sys/class/infiniband | wc -l");
	int guids = 1;
	char *c;

	for (c = text; *c; c++)
		guids += *c == '\n' && c[1];
	CHECK(!strstr(text, "0000:0000:0000:0000"));
	CHECK_EQ(atoi(number), n);
	CHECK_EQ(guids, n);
	free(text);
	free(number);
}

TEST(guid, "DEV-2", "devices have different node GUIDs: on one netdev with another driver's, and on the loopback netdevs of two network namespaces")
{
	char *first, *again;

	free(t_shell("ip netns add " GUID_SPACE " && modprobe rdma_rxe"));
	dev_add();
	free(t_shell("rdma link add rxe_keel type rxe netdev " KEEL1_NETDEV));
	check_guids(3);
	free(t_shell("rdma link add keel2 type keel netdev lo && ip netns exec "
		     GUID_SPACE " rdma link add keel3 type keel netdev lo"));
	check_guids(5);
	/* Its number is free again, and the lowest one. */
	first = t_shell("cat /sys/class/infiniband/keel2/node_guid");
	free(t_shell("rdma link delete keel2 && "
		     "rdma link add keel2 type keel netdev lo"));
	again = t_shell("cat /sys/class/infiniband/keel2/node_guid");
	CHECK_STR(again, first);
	check_guids(5);
	free(first);
	free(again);
}

TEST(debugfs, "DEV-1", "a device of keel has a folder in debugfs, with its present name, and a device of another driver on the same netdev has none")
{
	dev_add();
	CHECK(!access("/sys/kernel/debug/keel/" KEEL1 "/objects", F_OK));
	free(t_shell("rdma dev set " KEEL1 " name keel_other"));
	CHECK(!access("/sys/kernel/debug/keel/keel_other/objects", F_OK));
	CHECK(access("/sys/kernel/debug/keel/" KEEL1, F_OK));
	free(t_shell("modprobe rdma_rxe && "
		     "rdma link add rxe_keel type rxe netdev " KEEL1_NETDEV));
	CHECK(access("/sys/kernel/debug/keel/rxe_keel", F_OK));
	free(t_shell("rdma dev set rxe_keel name rxe_other"));
	CHECK(access("/sys/kernel/debug/keel/rxe_other", F_OK));
	free(t_shell("rdma link delete rxe_other && modprobe -r rdma_rxe"));
	free(t_shell("rdma link delete keel_other"));
	CHECK(access("/sys/kernel/debug/keel/keel_other", F_OK));
}

static bool has_gid(const char *name, const char *bytes)
{
	struct ibv_context *ctx = dev_open(name);
	struct ibv_gid_entry gids[256];
	int n = ibv_query_gid_table(ctx, gids, 256, 0);
	bool found = false;

	CHECK(n >= 0);
	while (n--) {
		CHECK_EQ(gids[n].gid_type, IBV_GID_TYPE_ROCE_V2);
		CHECK_EQ(gids[n].port_num, 1);
		found |= !memcmp(gids[n].gid.raw, bytes, 16);
	}
	CHECK_OK(ibv_close_device(ctx));
	return found;
}

static void wait_for_gid(const char *bytes, bool want)
{
	int i;

	for (i = 0; i < 200 && has_gid(KEEL1, bytes) != want; i++)
		usleep(10000);
	CHECK_EQ(has_gid(KEEL1, bytes), want);
}

TEST(gids, "DEV-2", "the GIDs are the netdev's addresses, and appear and disappear with them")
{
	static const char v4[] = "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x07";
	static const char v6[] = "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x07";

	dev_add();
	wait_for_gid(v4, false);
	free(t_shell("ip addr add 192.0.2.7/24 dev " KEEL1_NETDEV));
	wait_for_gid(v4, true);
	free(t_shell("ip -6 addr add 2001:db8::7/64 nodad dev " KEEL1_NETDEV));
	wait_for_gid(v6, true);
	free(t_shell("ip addr del 192.0.2.7/24 dev " KEEL1_NETDEV));
	wait_for_gid(v4, false);
	wait_for_gid(v6, true);
}

TEST(attributes, "DEV-2", "ibv_query_device() reports the implemented limits, atomics, one port and page sizes from 4 KiB to 2 GiB")
{
	struct ibv_device_attr_ex attr = {};
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_port_attr port;
	struct ibv_device_attr *a = &attr.orig_attr;
	/* Flush and atomic write have bits of their own, which not all kernels have. */
	const uint32_t odp_bits = 2 * IBV_ODP_SUPPORT_SRQ_RECV - 1;
	const uint32_t odp_ud = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
				IBV_ODP_SUPPORT_SRQ_RECV;
	const uint32_t odp_uc = odp_ud | IBV_ODP_SUPPORT_WRITE;
	const uint32_t odp_rc = odp_uc | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
	char *version;
	__be16 pkey;

	CHECK_OK(ibv_query_device_ex(ctx, NULL, &attr));
	CHECK_EQ(a->phys_port_cnt, 1);
	CHECK_EQ(a->page_size_cap, 0xfffff000);
	CHECK_EQ(a->atomic_cap, dev_bar() ? IBV_ATOMIC_HCA : IBV_ATOMIC_GLOB);
	CHECK_EQ(a->max_qp_wr, 16384);
	CHECK_EQ(a->max_sge, 30);
	CHECK_EQ(a->max_qp_rd_atom, 128);
	CHECK_EQ(a->device_cap_flags & IBV_DEVICE_XRC, IBV_DEVICE_XRC);
	CHECK_EQ(attr.odp_caps.general_caps,
		 IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
	CHECK_EQ(attr.odp_caps.per_transport_caps.rc_odp_caps & odp_bits, odp_rc);
	CHECK_EQ(attr.xrc_odp_caps & odp_bits, odp_rc);
	CHECK_EQ(attr.odp_caps.per_transport_caps.uc_odp_caps, odp_uc);
	CHECK_EQ(attr.odp_caps.per_transport_caps.ud_odp_caps, odp_ud);
	CHECK_EQ(a->max_pkeys, 1);
	CHECK(a->node_guid != 0 && a->node_guid == a->sys_image_guid);
	version = t_read_file("/sys/module/keel/version");
	version[strcspn(version, "\n")] = '\0';
	CHECK_STR(a->fw_ver, version);
	CHECK_OK(ibv_query_port(ctx, 1, &port));
	CHECK_EQ(port.pkey_tbl_len, 1);
	CHECK_OK(ibv_query_pkey(ctx, 1, 0, &pkey));
	CHECK_EQ(pkey, 0xffff);
	CHECK_RET(ibv_query_port(ctx, 2, &port), EINVAL);
}

static char *sysfs(const char *attribute)
{
	char *path, *text;

	CHECK(asprintf(&path, "/sys/class/infiniband/" KEEL0 "/%s",
		       attribute) > 0);
	text = t_read_file(path);
	text[strcspn(text, "\n")] = '\0';
	free(path);
	return text;
}

TEST(sysfs_attributes, "DEV-2", "sysfs has the type and the hardware version of the device, which ibstat prints, as ibv_query_device() reports them")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_device_attr attr;
	char *end;

	CHECK_OK(ibv_query_device(ctx, &attr));
	CHECK_STR(sysfs("hca_type"), "keel");
	CHECK_EQ(strtoul(sysfs("hw_rev"), &end, 16), attr.hw_ver);
	CHECK_STR(end, "");
	CHECK(*sysfs("hw_rev"));
	CHECK_STR(sysfs("fw_ver"), attr.fw_ver);
}

static void use_until_gone(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL1);
	struct ibv_alloc_dm_attr dm_attr = { .length = PAGE };
	struct ibv_td_init_attr td_attr = {};
	struct ibv_parent_domain_init_attr attr = {};
	struct ibv_async_event event;
	struct ibv_pd *pd;
	struct ibv_dm *dm;
	struct ibv_mr *mr;

	pd = attr.pd = MUST(ibv_alloc_pd(ctx));
	attr.td = MUST(ibv_alloc_td(ctx, &td_attr));
	attr.pd = MUST(ibv_alloc_parent_domain(ctx, &attr));
	mr = MUST(ibv_reg_mr(attr.pd, page, PAGE, 0));
	dm = MUST(ibv_alloc_dm(ctx, &dm_attr));
	peer_tell(parent);
	do {
		CHECK_OK(ibv_get_async_event(ctx, &event));
		ibv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_DEVICE_FATAL);
	peer_wait(parent);
	CHECK_NULL(ibv_alloc_pd(ctx), EIO);
	CHECK_NULL(ibv_alloc_td(ctx, &td_attr), EIO);
	CHECK_NULL(ibv_alloc_dm(ctx, &dm_attr), EIO);
	CHECK_NULL(ibv_reg_mr(pd, page, PAGE, 0), EIO);
	/* Destroying an object after device removal succeeds. */
	CHECK_OK(ibv_dereg_mr(mr));
	CHECK_OK(ibv_dealloc_pd(attr.pd));
	CHECK_OK(ibv_dealloc_td(attr.td));
	CHECK_OK(ibv_dealloc_pd(pd));
	CHECK_OK(ibv_free_dm(dm));
	CHECK_OK(ibv_close_device(ctx));
}

static void check_gone_in_use(const char *remove)
{
	struct peer p, killed;

	dev_add();
	peer_start(&p, use_until_gone);
	peer_start(&killed, use_until_gone);
	peer_wait(&p);
	peer_wait(&killed);
	free(t_shell("%s", remove));
	CHECK(!dev_exists(KEEL1));
	peer_tell(&p);
	peer_end(&p);
	peer_kill(&killed, SIGKILL);
}

TEST(deleted_in_use, "DEV-3,DEV-1", "after rdma link delete a user process gets DEVICE_FATAL, then EIO, and can exit or be killed")
{
	check_gone_in_use("rdma link delete " KEEL1);
}

TEST(unloaded_in_use, "DEV-3,DEV-1", "after rmmod a user process gets DEVICE_FATAL, then EIO, and can exit or be killed")
{
	module_will_go();
	check_gone_in_use("rmmod keel");
	CHECK(!module_loaded());
}

static void check_state_map(int fd, size_t len, int prot, int flags, int err)
{
	void *p = (errno = 0, mmap(NULL, len, prot, flags, fd, KEEL_STATE_OFFSET));

	CHECK_EQ(p == MAP_FAILED ? errno : 0, err);
	if (!err)
		SYS(munmap(p, len));
}

TEST(state_page, "DEV-3,DEV-4", "the state page is mapped shared, for reading and as one page; other mappings are refused (EINVAL, EPERM)")
{
	int fd = dev_open(KEEL0)->cmd_fd;
	void *p;

	check_state_map(fd, PAGE, PROT_READ, MAP_SHARED, 0);
	check_state_map(fd, PAGE, PROT_READ, MAP_PRIVATE, EINVAL);
	check_state_map(fd, 2 * PAGE, PROT_READ, MAP_SHARED, EINVAL);
	check_state_map(fd, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, EPERM);
	check_state_map(fd, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, EPERM);
	p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, KEEL_STATE_OFFSET);
	CHECK(p != MAP_FAILED);
	CHECK_SYS(mprotect(p, PAGE, PROT_READ | PROT_WRITE), EACCES);
	CHECK_SYS(mprotect(p, PAGE, PROT_READ | PROT_EXEC), EACCES);
}
