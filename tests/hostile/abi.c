// SPDX-License-Identifier: GPL-2.0
/*
 * Hostile input to keel's own methods: every invalid value that an attribute
 * can have. A refused call must leave the object tree unchanged.
 */
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "methods.h"
#include "tree.h"

#define PAGE	4096

static struct objects o;
static struct raw_cmd cmd;

/* Run for each method. */
#define FOR_EACH_METHOD(m)						\
	for (m = methods; m < methods + methods_count; m++)

/* Run for each argument of each method, with a newly built command. */
#define FOR_EACH_ARG(m, i)						\
	FOR_EACH_METHOD(m)						\
		for (i = 0; i < m->args_count &&			\
		     (method_build(m, &o, &cmd), 1); i++)

static bool is_out(const struct arg *arg)
{
	return arg->kind >= ARG_OUT;
}

TEST(valid, "DEV-4", "each of keel's methods succeeds with valid input and writes its outputs")
{
	const struct method *m;
	int i;

	objects_make(&o);
	FOR_EACH_METHOD(m) {
		memset(method_out, 0xaa, sizeof(method_out));
		method_build(m, &o, &cmd);
		method_check(m, &o, &cmd, "nothing wrong", 0);
		for (i = 0; i < m->args_count; i++)
			if (is_out(&m->args[i]))
				CHECK(cmd.attrs[i].flags &
				      UVERBS_ATTR_F_VALID_OUTPUT);
	}
}

TEST(missing, "DEV-4", "a method without a mandatory attribute is refused with EINVAL, and succeeds without an optional one")
{
	const struct method *m;
	int i;

	objects_make(&o);
	FOR_EACH_ARG(m, i) {
		if (m->args[i].optional && m->once)
			continue;
		memmove(&cmd.attrs[i], &cmd.attrs[i + 1],
			(METHOD_ARGS - i) * sizeof(cmd.attrs[0]));
		cmd.hdr.num_attrs--;
		method_check(m, &o, &cmd, "an attribute missing",
			     m->args[i].optional ? 0 : EINVAL);
	}
}

TEST(twice, "DEV-4", "a method with a duplicate attribute is refused with EINVAL")
{
	const struct method *m;
	int i;

	objects_make(&o);
	FOR_EACH_ARG(m, i) {
		cmd.attrs[cmd.hdr.num_attrs++] = cmd.attrs[i];
		method_check(m, &o, &cmd, "an attribute twice", EINVAL);
	}
}

TEST(unknown_attr, "DEV-4", "an unknown mandatory attribute is refused with EPROTONOSUPPORT, and an unknown optional one is ignored")
{
	static const uint16_t ids[] = { 100, 0x1064, 0x2000, 0xf000, 0xffff };
	const struct method *m;
	size_t i;

	objects_make(&o);
	FOR_EACH_METHOD(m)
		for (i = 0; i < sizeof(ids) / sizeof(*ids); i++) {
			method_build(m, &o, &cmd);
			raw_obj(&cmd, ids[i], 0);
			method_check(m, &o, &cmd, "an unknown attribute",
				     EPROTONOSUPPORT);
			if (m->once)
				continue;
			cmd.attrs[m->args_count].flags = 0;
			method_check(m, &o, &cmd, "an optional one", 0);
		}
}

TEST(reserved, "DEV-4", "a non-zero reserved field of any attribute is refused with EINVAL")
{
	const struct method *m;
	int i, bit;

	objects_make(&o);
	FOR_EACH_ARG(m, i)
		for (bit = 0; bit < 16; bit++) {
			cmd.attrs[i].attr_data.reserved = 1 << bit;
			method_check(m, &o, &cmd, "a reserved field", EINVAL);
		}
}

TEST(handles, "DEV-4", "an unknown, freed or foreign handle is refused with ENOENT, a negative handle or one of another type with EINVAL")
{
	struct objects other;
	const struct method *m;
	const struct arg *arg;
	uint64_t dead, foreign;
	struct ibv_pd *pd;
	int i;

	objects_make(&o);
	objects_make(&other);
	pd = MUST(ibv_alloc_pd(o.ctx));
	dead = pd->handle;
	CHECK_OK(ibv_dealloc_pd(pd));
	for (i = 0; i < 20; i++)
		foreign = MUST(ibv_alloc_pd(other.ctx))->handle;
	FOR_EACH_ARG(m, i) {
		arg = &m->args[i];
		if (arg->kind != ARG_OBJ)
			continue;
		cmd.attrs[i].data = dead;
		method_check(m, &o, &cmd, "a dead handle", ENOENT);
		cmd.attrs[i].data = foreign;
		method_check(m, &o, &cmd, "another's handle", ENOENT);
		cmd.attrs[i].data = 1000000;
		method_check(m, &o, &cmd, "no handle", ENOENT);
		/* The lower half is a valid handle. */
		cmd.attrs[i].data = 1ULL << 32 |
			objects_handle(&o, arg->object, m->once);
		method_check(m, &o, &cmd, "a large handle", ENOENT);
		cmd.attrs[i].data = 1ULL << 63 |
			objects_handle(&o, arg->object, m->once);
		method_check(m, &o, &cmd, "a negative handle", EINVAL);
		cmd.attrs[i].data = o.mr->handle;
		method_check(m, &o, &cmd, "an MR's handle", EINVAL);
		cmd.attrs[i].data = arg->object == UVERBS_OBJECT_DM ?
			o.pd->handle : o.dm->handle;
		method_check(m, &o, &cmd, "a handle of another type", EINVAL);
		cmd.attrs[i].data = objects_handle(&o, arg->object, m->once);
		cmd.attrs[i].len = 4;
		method_check(m, &o, &cmd, "a handle with a length", EINVAL);
	}
}

TEST(sizes, "DEV-4", "an attribute that is too short, or an input that is too long, is refused with EINVAL; a longer output ends in zeros")
{
	const struct method *m;
	const struct arg *arg;
	int i, len, j;

	objects_make(&o);
	FOR_EACH_ARG(m, i) {
		arg = &m->args[i];
		if (arg->kind < ARG_IN)
			continue;
		if (arg->kind == ARG_OUT_LIST) {
			cmd.attrs[i].len = arg->len - 1;
			method_check(m, &o, &cmd, "a broken list", EINVAL);
			continue;
		}
		for (len = 0; len < arg->len; len++) {
			cmd.attrs[i].len = len;
			method_check(m, &o, &cmd, "a short attribute", EINVAL);
		}
		cmd.attrs[i].data = (uintptr_t)method_out[i];
		for (len = arg->len + 1; len < 200; len += 3) {
			cmd.attrs[i].len = len;
			if (arg->kind != ARG_OUT) {
				method_check(m, &o, &cmd, "a long attribute",
					     EINVAL);
				continue;
			}
			memset(method_out[i], 0xaa, 512);
			method_check(m, &o, &cmd, "a long answer", 0);
			for (j = arg->len; j < len; j++)
				CHECK_EQ(method_out[i][j], 0);
			CHECK_EQ(method_out[i][len], 0xaa);
		}
	}
}

TEST(pointers, "DEV-4", "an output that the kernel cannot write is refused with EFAULT, and the call is undone")
{
	unsigned char *p = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const uint64_t bad[] = {
		0, 8, PAGE, ~0ULL, ~0ULL - PAGE, 1ULL << 63, 1ULL << 47,
		(uintptr_t)p, (uintptr_t)p + 2 * PAGE,
		(uintptr_t)p + 2 * PAGE - 1, (uintptr_t)methods,
	};
	const struct method *m;
	size_t n;
	int i;

	objects_make(&o);
	SYS(mprotect(p, PAGE, PROT_NONE));
	SYS(munmap(p + 2 * PAGE, PAGE));
	FOR_EACH_ARG(m, i) {
		if (!is_out(&m->args[i]))
			continue;
		for (n = 0; n < sizeof(bad) / sizeof(*bad); n++) {
			cmd.attrs[i].data = bad[n];
			method_check(m, &o, &cmd, "a bad pointer", EFAULT);
		}
	}
}

TEST(read_only, "DEV-4", "a command in read-only memory is refused with EFAULT, and the call is undone")
{
	struct raw_cmd *ro = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const struct method *m;
	char *before;
	int got;

	objects_make(&o);
	FOR_EACH_METHOD(m) {
		if (!method_has_output(m))
			continue;
		method_build(m, &o, &cmd);
		cmd.hdr.length = sizeof(cmd.hdr) + m->args_count *
				 sizeof(cmd.attrs[0]);
		SYS(mprotect(ro, PAGE, PROT_READ | PROT_WRITE));
		*ro = cmd;
		SYS(mprotect(ro, PAGE, PROT_READ));
		before = tree_text(KEEL0);
		got = ioctl(o.ctx->cmd_fd, RDMA_VERBS_IOCTL, ro) ? errno : 0;
		if (got != EFAULT)
			FAIL("%s: got %s, want EFAULT", m->name, t_errname(got));
		CHECK_SAME_TREE(before);
		free(before);
	}
}

static int run_header(const struct ib_uverbs_ioctl_hdr *hdr)
{
	struct raw_cmd copy = cmd;

	copy.hdr = *hdr;
	return ioctl(o.ctx->cmd_fd, RDMA_VERBS_IOCTL, &copy) ? errno : 0;
}

TEST(header, "DEV-4", "a wrong length, driver, object, method or reserved field in the header is refused as ib_uverbs documents")
{
	struct ib_uverbs_ioctl_hdr good, bad;
	const struct method *m;
	char *before;
	int i;

	objects_make(&o);
	before = tree_text(KEEL0);
	FOR_EACH_METHOD(m) {
		method_build(m, &o, &cmd);
		good = cmd.hdr;
		good.length = sizeof(good) + m->args_count * sizeof(cmd.attrs[0]);
		for (i = -24; i < 24; i++) {
			bad = good;
			bad.length += i;
			if (i)
				CHECK_RET(run_header(&bad), EINVAL);
		}
		bad = good;
		bad.length = 0xffff;
		CHECK_RET(run_header(&bad), EINVAL);
		bad = good;
		bad.num_attrs++;
		CHECK_RET(run_header(&bad), EINVAL);
		bad.num_attrs = 0xffff;
		CHECK_RET(run_header(&bad), EINVAL);
		bad = good;
		bad.driver_id = 0;
		CHECK_RET(run_header(&bad), EINVAL);
		bad.driver_id = ~0;
		CHECK_RET(run_header(&bad), EINVAL);
		bad = good;
		bad.reserved1 = 1;
		CHECK_RET(run_header(&bad), EPROTONOSUPPORT);
		bad.reserved1 = 0;
		bad.reserved2 = 1;
		CHECK_RET(run_header(&bad), EPROTONOSUPPORT);
		bad = good;
		bad.method_id = 0x1fff;
		CHECK_RET(run_header(&bad), EPROTONOSUPPORT);
		bad = good;
		bad.object_id = 0x1fff;
		CHECK_RET(run_header(&bad), EPROTONOSUPPORT);
		bad.object_id = UVERBS_OBJECT_AH;
		CHECK_RET(run_header(&bad), EPROTONOSUPPORT);
	}
	CHECK_SAME_TREE(before);
}

TEST(no_memory_there, "DEV-4", "a command that lies in unmapped memory, wholly or in part, is refused with EFAULT, and another ioctl with ENOTTY")
{
	unsigned char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const struct method *m;
	char *before;
	size_t len, cut;
	int fd;

	objects_make(&o);
	fd = o.ctx->cmd_fd;
	SYS(munmap(p + PAGE, PAGE));
	before = tree_text(KEEL0);
	CHECK_SYS(ioctl(fd, RDMA_VERBS_IOCTL, NULL), EFAULT);
	CHECK_SYS(ioctl(fd, RDMA_VERBS_IOCTL, ~0UL - 7), EFAULT);
	CHECK_SYS(ioctl(fd, RDMA_VERBS_IOCTL, p + PAGE), EFAULT);
	FOR_EACH_METHOD(m) {
		method_build(m, &o, &cmd);
		len = cmd.hdr.length = sizeof(cmd.hdr) + m->args_count *
				       sizeof(cmd.attrs[0]);
		for (cut = 1; cut < len; cut += 5) {
			memcpy(p + PAGE - len + cut, &cmd, len - cut);
			CHECK_SYS(ioctl(fd, RDMA_VERBS_IOCTL,
					p + PAGE - len + cut), EFAULT);
		}
		CHECK_SYS(ioctl(fd, RDMA_VERBS_IOCTL + 1, &cmd), ENOTTY);
	}
	CHECK_SAME_TREE(before);
}

TEST(offsets, "DEV-4", "DM_MAP at an offset beyond the buffer is refused with EINVAL")
{
	static const uint64_t bad[] = {
		8192, 8193, 1 << 20, 1ULL << 32, 1ULL << 63, ~0ULL - 4095, ~0ULL,
	};
	struct keel_uapi_dm_map map;
	size_t i;

	objects_make(&o);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		CHECK_RET(raw_dm_map(o.ctx->cmd_fd, o.dm->handle, bad[i], &map),
			  EINVAL);
	CHECK_OK(raw_dm_map(o.ctx->cmd_fd, o.dm->handle, 8191, &map));
}

TEST(parent_of_parent, "PDM-5,PDM-9,DEV-4", "the kernel refuses a parent domain of a parent domain with EINVAL, and freeing a busy TD with EBUSY")
{
	const struct method *parent = methods;

	while (strcmp(parent->name, "PD_ALLOC_PARENT"))
		parent++;
	objects_make(&o);
	method_build(parent, &o, &cmd);
	method_check(parent, &o, &cmd, "nothing wrong", 0);
	/* Use the new parent domain's handle as the PD of the next. */
	cmd.attrs[1].data = cmd.attrs[0].data;
	method_check(parent, &o, &cmd, "a parent below", EINVAL);
	raw_init(&cmd, KEEL_OBJECT_TD, KEEL_METHOD_TD_FREE);
	raw_obj(&cmd, KEEL_ATTR_TD_FREE_HANDLE, o.td_handle);
	CHECK_RET(raw_run(o.ctx->cmd_fd, &cmd), EBUSY);
}

static uint64_t next_random(void)
{
	static uint64_t seed = 88172645463325252ULL;

	return t_random(&seed);
}

static uint64_t random_data(void)
{
	switch (next_random() % 6) {
	case 0:
		return next_random() % 16;
	case 1:
		return (uintptr_t)method_out[next_random() % METHOD_ARGS];
	case 2:
		return next_random() % 3 - 1;
	case 3:
		return 1ULL << next_random() % 64;
	case 4:
		return next_random() | 1ULL << 63;
	default:
		return next_random() % 32 << 12;
	}
}

static void spoil(void)
{
	struct ib_uverbs_attr *attr =
		&cmd.attrs[next_random() % (cmd.hdr.num_attrs + 1)];

	switch (next_random() % 8) {
	case 0:
		attr->attr_id ^= 1 << next_random() % 16;
		break;
	case 1:
		attr->len = next_random() % 64;
		break;
	case 2:
		attr->flags = next_random();
		break;
	case 3:
		attr->attr_data.reserved = next_random() % 2;
		break;
	case 4:
		cmd.hdr.method_id = next_random() % 8 |
				    (next_random() % 2) << UVERBS_ID_NS_SHIFT;
		break;
	case 5:
		cmd.hdr.object_id = next_random() % 20 |
				    (next_random() % 2) << UVERBS_ID_NS_SHIFT;
		break;
	default:
		attr->data = random_data();
		break;
	}
}

TEST(random, "DEV-4", "randomly spoiled commands never hang, crash or leave objects behind, and valid commands work afterwards")
{
	int rounds = t_rounds(20000), i, n, ok = 0;
	const struct method *m;

	for (i = 0; i < rounds; i++) {
		/* Create new objects every 500 rounds. */
		if (i % 500 == 0) {
			if (i)
				CHECK_OK(ibv_close_device(o.ctx));
			CHECK_EQ(tree_count(KEEL0, NULL), 0);
			objects_make(&o);
		}
		method_build(&methods[next_random() % methods_count], &o, &cmd);
		for (n = next_random() % 4; n; n--)
			spoil();
		ok += !raw_run(o.ctx->cmd_fd, &cmd);
	}
	t_note("%d of %d spoiled commands succeeded", ok, rounds);
	CHECK(ok > rounds / 100 && ok < rounds);
	objects_make(&o);
	FOR_EACH_METHOD(m) {
		method_build(m, &o, &cmd);
		method_check(m, &o, &cmd, "nothing wrong", 0);
	}
}
