// SPDX-License-Identifier: GPL-2.0
/* The messages to the guest before the command starts */
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "keel-run.h"

extern char **environ;

/**
 * buffer_add() - append bytes
 * @buf: the buffer, zeroed at first
 * @data: the bytes
 * @len: how many
 */
void buffer_add(struct buffer *buf, const void *data, size_t len)
{
	if (buf->size - buf->len < len) {
		buf->size = (buf->len + len) * 2;
		buf->data = need_memory(realloc(buf->data, buf->size));
	}
	if (len)
		memcpy(buf->data + buf->len, data, len);
	buf->len += len;
}

/**
 * buffer_drop() - remove bytes from the front
 * @buf: the buffer
 * @len: how many, at most all
 */
void buffer_drop(struct buffer *buf, size_t len)
{
	buf->len -= len;
	memmove(buf->data, buf->data + len, buf->len);
}

/**
 * wire_put() - append a message
 * @buf: what is to be sent
 * @type: of the message
 * @data: its content
 * @len: its length
 */
void wire_put(struct buffer *buf, enum wire_type type, const void *data,
	      size_t len)
{
	struct wire_head head = { .type = type, .len = len };

	buffer_add(buf, &head, sizeof(head));
	buffer_add(buf, data, len);
}

/**
 * wire_put_string() - append a message that is a string
 * @buf: what is to be sent
 * @type: of the message
 * @text: its content
 */
void wire_put_string(struct buffer *buf, enum wire_type type, const char *text)
{
	if (strlen(text) >= WIRE_MAX)
		die("an argument or variable is longer than %u bytes", WIRE_MAX);
	wire_put(buf, type, text, strlen(text));
}

static void put_identity(struct buffer *buf, bool root)
{
	struct wire_ids ids = { .uid = geteuid(), .gid = getegid() };
	gid_t *groups;
	int i, count;

	ids.umask = umask(0);
	umask(ids.umask);
	if (root)
		ids.uid = ids.gid = 0;
	wire_put(buf, WIRE_IDS, &ids, sizeof(ids));
	if (root)
		return;
	count = getgroups(0, NULL);
	groups = need_memory(calloc(count + 1, sizeof(*groups)));
	count = getgroups(count, groups);
	for (i = 0; i < count; i++)
		wire_put(buf, WIRE_GROUP, &(uint32_t){ groups[i] },
			 sizeof(uint32_t));
	free(groups);
}

/* Locked memory is what RDMA is made of: the guest does not limit it. */
static void put_rlimits(struct buffer *buf)
{
	static const int passed[] = {
		RLIMIT_AS, RLIMIT_CORE, RLIMIT_CPU, RLIMIT_DATA, RLIMIT_FSIZE,
		RLIMIT_NOFILE, RLIMIT_STACK,
	};
	size_t i;

	for (i = 0; i < sizeof(passed) / sizeof(passed[0]); i++) {
		struct wire_rlimit limit = { .resource = passed[i] };
		struct rlimit lim;

		if (getrlimit(passed[i], &lim))
			continue;
		limit.soft = lim.rlim_cur;
		limit.hard = lim.rlim_max;
		wire_put(buf, WIRE_RLIMIT, &limit, sizeof(limit));
	}
}

static void put_directories(struct buffer *buf, const struct options *opt)
{
	/* The caller's directory is none of another system's. */
	char *cwd = opt->system ? format("/") : getcwd(NULL, 0);
	size_t i;

	/* "(unreachable)..." is how Linux says that it is outside the root. */
	if (!cwd || *cwd != '/')
		die("the working directory: %s", cwd ? cwd : strerror(errno));
	wire_put_string(buf, WIRE_CWD, cwd);
	free(cwd);
	for (i = 0; i < opt->layers.count; i++)
		wire_put_string(buf, WIRE_LAYER, opt->layers.item[i]);
	wire_put_string(buf, WIRE_LAYER, opt->system ?: "/");
	for (i = 0; i < opt->rw.count; i++)
		wire_put_string(buf, WIRE_RW, opt->rw.item[i]);
}

static void put_modules(struct buffer *buf, const struct options *opt)
{
	struct buffer text = { 0 };
	const char *p;
	size_t i;

	buffer_add(&text, "keel", 4);
	if (opt->dm_size) {
		char *param = format(" dm_size=%llu",
				     (unsigned long long)opt->dm_size);

		buffer_add(&text, param, strlen(param));
		free(param);
	}
	if (!opt->devices)
		buffer_add(&text, " default_device=0", 17);
	for (i = 0; i < opt->params.count; i++) {
		buffer_add(&text, " ", 1);
		buffer_add(&text, opt->params.item[i],
			   strlen(opt->params.item[i]));
	}
	if (text.len >= WIRE_MAX)
		die("the parameters of --param are too long");
	wire_put(buf, WIRE_MODULE, text.data, text.len);
	free(text.data);
	for (p = opt->with; p && *p; p += strspn(p, ",")) {
		size_t len = strcspn(p, ",");

		wire_put(buf, WIRE_MODULE, p, len);
		p += len;
	}
}

/* perftest takes the speed of the clock from there; the guest has no such line. */
static void put_cpu(struct buffer *buf)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		if (strncmp(line, "cpu MHz", 7))
			continue;
		wire_put_string(buf, WIRE_CPU, line);
		break;
	}
	if (file)
		fclose(file);
}

/**
 * settings_put() - append everything that the guest must know, up to WIRE_GO
 * @buf: what is to be sent
 * @opt: the options
 * @bundle: where the guest's modules are
 * @run: the streams and what else is fixed
 */
void settings_put(struct buffer *buf, const struct options *opt,
		  const struct bundle *bundle, const struct wire_run *run)
{
	struct utsname names;
	char **p;

	for (p = opt->command; *p; p++)
		wire_put_string(buf, WIRE_ARG, *p);
	for (p = environ; *p; p++)
		wire_put_string(buf, WIRE_ENV, *p);
	put_directories(buf, opt);
	put_identity(buf, opt->root);
	put_rlimits(buf);
	wire_put_string(buf, WIRE_BUNDLE, bundle->dir);
	if (!opt->kernel)
		put_modules(buf, opt);
	if (!uname(&names))
		wire_put_string(buf, WIRE_HOST, names.nodename);
	put_cpu(buf);
	wire_put(buf, WIRE_RUN, run, sizeof(*run));
	wire_put(buf, WIRE_GO, NULL, 0);
}
