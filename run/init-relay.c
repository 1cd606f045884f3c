// SPDX-License-Identifier: GPL-2.0
/*
 * The time of the command: its streams go to the ports of the console and come
 * from there, the launcher's signals reach it, its end is noticed.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "init.h"

/* One direction of one stream. Each holds at most what one read() gave. */
struct flow {
	int from, to;		/* -1: over */
	bool to_port;		/* the other end is at "from" */
	bool keep_from, keep_to;	/* another flow has it too */
	size_t start, end;	/* in data */
	char data[32 * 1024];
};

enum { FLOW_IN, FLOW_OUT, FLOW_ERR, FLOW_COUNT };

struct relay {
	struct flow *flow[FLOW_COUNT];
	struct command *command;
	int signals;
	bool ended;
	uint32_t status;
};

static void set_nonblocking(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static struct flow *flow_new(int from, int to)
{
	struct flow *flow = calloc(1, sizeof(*flow));

	if (!flow)
		fail(STATUS_FAILED, "the guest is out of memory: raise --mem");
	flow->from = from;
	flow->to = to;
	set_nonblocking(from);
	set_nonblocking(to);
	return flow;
}

static void flow_close(struct flow *flow)
{
	if (flow->from >= 0 && !flow->keep_from)
		close(flow->from);
	if (flow->to >= 0 && !flow->keep_to)
		close(flow->to);
	flow->from = flow->to = -1;
}

/* End of input on a terminal is a character. */
static void flow_end_terminal(struct flow *flow)
{
	const char eof = 4;

	if (flow->keep_to)
		write(flow->to, &eof, 1);
}

static void flow_fill(struct flow *flow)
{
	ssize_t n = read(flow->from, flow->data, sizeof(flow->data));

	if (n > 0) {
		flow->start = 0;
		flow->end = n;
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		flow_end_terminal(flow);
		flow_close(flow);
	}
}

static void flow_empty(struct flow *flow)
{
	ssize_t n = write(flow->to, flow->data + flow->start,
			  flow->end - flow->start);

	if (n > 0)
		flow->start += n;
	else if (n < 0 && errno != EAGAIN && errno != EINTR)
		flow_close(flow);
}

static bool flow_waits(const struct flow *flow)
{
	return flow->start < flow->end;
}

/* Move what can be moved without waiting, a bounded amount. */
static void flow_move(struct flow *flow)
{
	int left = 16;

	while (flow->from >= 0 && left--) {
		if (!flow_waits(flow)) {
			flow_fill(flow);
			if (!flow_waits(flow))
				break;
		}
		flow_empty(flow);
		if (flow->from >= 0 && flow_waits(flow))
			break;
	}
}

/* The descriptors that the flow waits for. The reader of a port may go while it is idle. */
static void flow_poll(const struct flow *flow, struct pollfd *fds)
{
	bool waits = flow && flow_waits(flow);

	fds[0] = (struct pollfd) { .fd = -1 };
	fds[1] = (struct pollfd) { .fd = -1 };
	if (!flow || flow->from < 0)
		return;
	if (!waits)
		fds[0] = (struct pollfd) { flow->from, POLLIN, 0 };
	/* POLLERR and POLLHUP come unasked. */
	fds[1] = (struct pollfd) { flow->to, waits ? POLLOUT : 0, 0 };
}

static void take_events(struct flow *flow, const struct pollfd *fds)
{
	if (!flow || flow->from < 0)
		return;
	if (fds[1].revents & (POLLERR | POLLHUP) && !flow->keep_to) {
		/* Nobody reads it any more: the command gets SIGPIPE. */
		flow_close(flow);
		return;
	}
	if (fds[0].revents || fds[1].revents)
		flow_move(flow);
}

static void set_size(const struct command *command,
		     const struct wire_winsize *win)
{
	struct winsize size = { .ws_row = win->rows, .ws_col = win->cols };

	if (command->tty >= 0)
		ioctl(command->tty, TIOCSWINSZ, &size);
}

static void take_message(struct relay *r)
{
	union {
		uint32_t signal;
		struct wire_winsize win;
		char bytes[64];
	} u;
	enum wire_type type;
	int len;

	len = control_read(&type, &u, sizeof(u));
	if (type == WIRE_SIGNAL && len == sizeof(u.signal) && !r->ended)
		kill(-r->command->pid, u.signal);
	else if (type == WIRE_WINSIZE && len == sizeof(u.win))
		set_size(r->command, &u.win);
}

static void reap(struct relay *r)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	while (read(r->signals, &info, sizeof(info)) == sizeof(info))
		;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != r->command->pid)
			continue;
		r->ended = true;
		r->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) :
			    WEXITSTATUS(status);
	}
}

static void wait_once(struct relay *r)
{
	enum { CONTROL, SIGNALS, FLOWS };
	struct pollfd fds[FLOWS + 2 * FLOW_COUNT] = {
		[CONTROL] = { control_fd(), POLLIN, 0 },
		[SIGNALS] = { r->signals, POLLIN, 0 },
	};
	int i;

	for (i = 0; i < FLOW_COUNT; i++)
		flow_poll(r->flow[i], &fds[FLOWS + 2 * i]);
	if (poll(fds, sizeof(fds) / sizeof(fds[0]), -1) < 0)
		return;
	if (fds[CONTROL].revents)
		take_message(r);
	for (i = 0; i < FLOW_COUNT; i++)
		take_events(r->flow[i], &fds[FLOWS + 2 * i]);
	if (fds[SIGNALS].revents)
		reap(r);
}

/* Send the output of the command that is still here. All writers are gone. */
static void flush(struct flow *flow)
{
	struct pollfd fd;

	while (flow && flow->from >= 0) {
		bool waits = flow_waits(flow);

		if (waits)
			fd = (struct pollfd) { flow->to, POLLOUT, 0 };
		else
			fd = (struct pollfd) { flow->from, POLLIN, 0 };
		/* The end of a pipe or a terminal is there at once. */
		if (poll(&fd, 1, waits ? -1 : 1000) <= 0)
			break;
		if (!waits)
			flow_fill(flow);
		else if (fd.revents & (POLLERR | POLLHUP))
			break;
		else
			flow_empty(flow);
	}
}

static void make_flows(struct relay *r, const struct settings *s)
{
	struct command *c = r->command;

	if (c->in >= 0) {
		r->flow[FLOW_IN] = flow_new(port_open(PORT_STDIN), c->in);
	} else if (s->run.stream[0] == STREAM_TTY) {
		r->flow[FLOW_IN] = flow_new(port_open(PORT_STDIN), c->tty);
		r->flow[FLOW_IN]->keep_to = true;
	}
	if (c->out >= 0)
		r->flow[FLOW_OUT] = flow_new(c->out, port_open(PORT_STDOUT));
	if (c->err >= 0)
		r->flow[FLOW_ERR] = flow_new(c->err, port_open(PORT_STDERR));
	/* A terminal prints where a stream of the caller's is one. */
	if (s->run.stream[1] == STREAM_TTY) {
		r->flow[FLOW_OUT] = flow_new(c->tty, port_open(PORT_STDOUT));
		r->flow[FLOW_OUT]->keep_from = true;
	} else if (s->run.stream[2] == STREAM_TTY) {
		r->flow[FLOW_ERR] = flow_new(c->tty, port_open(PORT_STDERR));
		r->flow[FLOW_ERR]->keep_from = true;
	}
}

/*
 * Nothing survives the command: only closed files are complete. A process may
 * wait in the kernel for something that does not come.
 */
static void end_processes(void)
{
	const struct timespec pause = { .tv_nsec = 1000 * 1000 };
	int left = 5000;
	pid_t pid;

	kill(-1, SIGKILL);
	while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0 && left) {
		if (pid)
			continue;
		nanosleep(&pause, NULL);
		left--;
	}
	if (left)
		return;
	warn("a process of the command cannot be killed");
	log_line("WARNING: a process of the command cannot be killed");
}

/**
 * relay() - serve the command until its end
 * @command: the command, which runs
 * @settings: from the launcher
 *
 * All that the command and its children wrote has been sent.
 *
 * Return: its exit status, 128 + N if signal N ended it.
 */
uint32_t relay(struct command *command, const struct settings *settings)
{
	struct relay r = { .command = command };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	r.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (r.signals < 0)
		fail(STATUS_FAILED, "the guest cannot watch its processes");
	make_flows(&r, settings);
	/* Not earlier: a port that is not open loses what it gets. */
	control_send(WIRE_READY, NULL, 0);
	reap(&r);
	while (!r.ended)
		wait_once(&r);
	end_processes();
	/* The launcher may end the guest if nobody reads the output. */
	sync();
	control_send(WIRE_ENDED, &r.status, sizeof(r.status));
	/* The terminal ends with its last user. */
	if (command->slave >= 0)
		close(command->slave);
	flush(r.flow[FLOW_OUT]);
	flush(r.flow[FLOW_ERR]);
	return r.status;
}
