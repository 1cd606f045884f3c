// SPDX-License-Identifier: GPL-2.0
/*
 * The harness: run the tests of a program and print TAP. See t.h.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "t.h"
#include "tree.h"

#define T_LIMIT		60

static struct t_case *cases, **cases_end = &cases;
/* Any process of a test writes failures here; the harness reads them. */
static int report_fd = -1;

void t_add(struct t_case *c)
{
	*cases_end = c;
	cases_end = &c->next;
}

const char *t_errname(int err)
{
	const char *name = err ? strerrorname_np(err) : "0";

	return name ? name : "an unknown errno";
}

void t_fail(const char *file, int line, const char *fmt, ...)
{
	const char *base = strrchr(file, '/');
	char text[900], *p;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (p = text; *p; p++)
		if (*p == '\n')
			*p = '|';
	dprintf(report_fd, "%s at %s:%d\n", text, base ? base + 1 : file, line);
	_exit(1);
}

void t_note(const char *fmt, ...)
{
	char text[900];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	printf("# %s\n", text);
	fflush(stdout);
}

void t_check_err(const char *file, int line, const char *what, int got,
		 int want)
{
	if (got != want)
		t_fail(file, line, "%s: got %s, want %s", what, t_errname(got),
		       t_errname(want));
}

void t_check_null(const char *file, int line, const char *what,
		  const void *got, int err, int want)
{
	if (got)
		t_fail(file, line, "%s: got a pointer, want NULL and %s", what,
		       t_errname(want));
	t_check_err(file, line, what, err, want);
}

void t_check_mem(const char *file, int line, const char *what,
		 const void *got, const void *want, size_t len)
{
	const unsigned char *g = got, *w = want;
	size_t i;

	if (!memcmp(got, want, len))
		return;
	for (i = 0; g[i] == w[i];)
		i++;
	t_fail(file, line, "%s: got 0x%02x, want 0x%02x in byte %zu of %zu",
	       what, g[i], w[i], i, len);
}

void t_check_all(const char *file, int line, const char *what,
		 const void *got, int byte, size_t len)
{
	const unsigned char *g = got;
	size_t i;

	for (i = 0; i < len; i++)
		if (g[i] != byte)
			t_fail(file, line,
			       "%s: got 0x%02x, want 0x%02x in byte %zu of %zu",
			       what, g[i], byte, i, len);
}

static void run_child(const struct t_case *c)
{
	setpgid(0, 0);
	/* Allow for a slow or emulated guest, but stop a test that hangs. */
	alarm((c->limit ? c->limit : T_LIMIT) *
	      (t_debug_kernel() || !t_uml() ? 4 : 1));
	c->run();
	_exit(0);
}

/* End everything that the test started. */
static void reap_group(pid_t pid)
{
	kill(-pid, SIGKILL);
	while (waitpid(-pid, NULL, 0) > 0 || errno == EINTR)
		;
}

/* Read without waiting for a writer that the test left behind. */
static size_t read_report(int fd, char *text, size_t size)
{
	ssize_t n = read(fd, text, size - 1);
	char *end;

	text[n > 0 ? n : 0] = '\0';
	/* Report the first failure only. */
	end = strchr(text, '\n');
	if (end)
		*end = '\0';
	return strlen(text);
}

static bool run_case(const struct t_case *c, char *why, size_t size)
{
	int fds[2], status;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK)) {
		snprintf(why, size, "pipe: %s", strerror(errno));
		return false;
	}
	report_fd = fds[1];
	fflush(stdout);
	pid = fork();
	if (!pid)
		run_child(c);
	waitpid(pid, &status, 0);
	reap_group(pid);
	if (t_after)
		t_after();
	close(fds[1]);
	if (!read_report(fds[0], why, size) && WIFSIGNALED(status))
		snprintf(why, size, "killed by SIG%s%s",
			 sigabbrev_np(WTERMSIG(status)),
			 WTERMSIG(status) == SIGALRM ? ", it took too long" : "");
	else if (!*why && WEXITSTATUS(status))
		snprintf(why, size, "exit status %d", WEXITSTATUS(status));
	close(fds[0]);
	if (*why)
		return false;
	return tree_is_empty(KEEL0, why, size);
}

/*
 * Older x86 kernels record the cache type of every mapping of device pages.
 * They look it up in the page table at unmap, and warn if they find nothing.
 * Kernels with pfnmap_track() find the cache type without the page table.
 */
static bool warns_of_lost_pages(void)
{
	return !t_uml() && !t_shell_status("grep -qw get_pat_info "
					   "/proc/kallsyms");
}

static bool t_arm64(void)
{
#ifdef __aarch64__
	return true;
#else
	return false;
#endif
}

static const char *left_out_why(const struct t_case *c)
{
	if (c->not_uml && t_uml())
		return c->not_uml;
	if (c->not_debug && t_debug_kernel())
		return c->not_debug;
	if (c->only_debug && !t_debug_kernel())
		return c->only_debug;
	if (c->not_pat && warns_of_lost_pages())
		return c->not_pat;
	if (c->not_arm64 && t_arm64())
		return c->not_arm64;
	if (c->not_kernel && t_kernel(c->not_kernel))
		return c->not_kernel_why;
	return NULL;
}

int main(int argc, char **argv)
{
	int n = 0, failed = 0, left_out = 0;
	const char *why_not;
	struct t_case *c;
	char why[1024];
	time_t start;

	/*
	 * Adopt the orphans of a test, so that the harness can wait for their
	 * end.
	 */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	signal(SIGPIPE, SIG_IGN);
	for (c = cases; c; c = c->next) {
		/*
		 * An argument picks the tests that have it in their title or
		 * ids.
		 */
		if (argc > 1 && !strstr(c->title, argv[1]) &&
		    !strstr(c->ids, argv[1]))
			continue;
		why_not = left_out_why(c);
		if (why_not) {
			t_note("not in this guest, %s: %s: %s", why_not, c->ids,
			       c->title);
			left_out++;
			continue;
		}
		n++;
		start = time(NULL);
		if (run_case(c, why, sizeof(why))) {
			printf("ok %d - %s: %s\n", n, c->ids, c->title);
		} else {
			printf("not ok %d - %s: %s  # %s\n", n, c->ids,
			       c->title, why);
			failed++;
		}
		if (time(NULL) - start > 2)
			t_note("that took %d s", (int)(time(NULL) - start));
		fflush(stdout);
	}
	if (t_end)
		t_end();
	printf("1..%d\n", n);
	/* It is an error if the argument picks no test. */
	return failed || n + left_out == 0;
}
