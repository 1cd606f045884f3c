// SPDX-License-Identifier: GPL-2.0
/*
 * A run, from the first message of the guest to the end of the last output: one
 * loop that waits for the guest, for signals, for the streams and for the clock.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "console.h"

/* Seconds from the start of the guest to that of the command */
#define BOOT_TIME	60
#define BOOT_TIME_DEBUG	240
/* Seconds from SIGTERM to SIGKILL when the time of the command is over */
#define GRACE_TIME	5
/* Seconds from that SIGKILL to the end of the guest, which saves files first */
#define KILL_TIME	2
/* Seconds for the checks of --debug, after the end of a command that took too long */
#define CHECK_TIME	60

struct session {
	struct guest *guest;
	const struct options *opt;
	const struct wire_run *run;
	struct console console;
	int signals, clock;
	int notes[2];		/* struct pump_note from the threads */
	bool ready;		/* the command was started */
	bool ended;		/* the command has ended: status is set */
	bool exited;		/* the guest has sent everything */
	bool over;		/* nothing more comes from the guest */
	bool died;		/* without a word */
	bool timed_out, killed, output_failed;
	bool abandoned;		/* the rest of the outputs is not waited for */
	unsigned int draining;	/* outputs that are not at their end */
	int status;
};

static const int forwarded[] = {
	SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM,
	SIGXCPU,
};

static int watch_signals(const struct wire_run *run)
{
	sigset_t set;
	size_t i;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGWINCH);
	if (!(run->ignored >> (SIGTSTP - 1) & 1))
		sigaddset(&set, SIGTSTP);
	for (i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++)
		if (!(run->ignored >> (forwarded[i] - 1) & 1))
			sigaddset(&set, forwarded[i]);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		die("cannot watch signals: %s", strerror(errno));
	return fd;
}

static void set_clock(struct session *s, unsigned int seconds)
{
	const struct itimerspec when = { .it_value.tv_sec = seconds };

	if (timerfd_settime(s->clock, 0, &when, NULL))
		die("cannot set a timer: %s", strerror(errno));
}

/*
 * No more input. The outputs are written to their end, unless a signal comes
 * first: a reader may never read.
 */
static void end(struct session *s, int status)
{
	if (s->over)
		return;
	s->over = true;
	s->status = status;
	/* Its time is over: its readers get a little more. */
	set_clock(s, s->timed_out ? GRACE_TIME : 0);
	if (s->ready)
		pump_finish();
}

static void start_command(struct session *s)
{
	enum wire_port port;

	s->ready = true;
	terminal_raw(s->run);
	for (port = PORT_STDOUT; port < PORT_COUNT; port++) {
		if (s->run->stream[port - PORT_STDIN] == STREAM_CLOSED)
			continue;
		pump_start(&s->console, port, s->notes[1]);
		s->draining++;
	}
	if (s->run->stream[0] != STREAM_CLOSED)
		pump_start(&s->console, PORT_STDIN, s->notes[1]);
	set_clock(s, s->opt->timeout);
}

static uint32_t number_of(const unsigned char *data, size_t len)
{
	uint32_t number = STATUS_FAILED;

	if (len >= sizeof(number))
		memcpy(&number, data, sizeof(number));
	return number;
}

static void message(struct session *s, uint32_t type, const unsigned char *data,
		    size_t len)
{
	switch (type) {
	case WIRE_READY:
		if (!s->ready)
			start_command(s);
		break;
	case WIRE_ENDED:
		s->ended = true;
		s->status = number_of(data, len);
		set_clock(s, !s->timed_out ? 0 : s->opt->debug ? CHECK_TIME :
			  GRACE_TIME);
		break;
	case WIRE_EXIT:
		s->exited = true;
		end(s, number_of(data, len));
		break;
	case WIRE_WARN:
		say("%.*s", (int)len, (const char *)data);
		break;
	case WIRE_FAIL:
		if (len > sizeof(struct wire_fail))
			say("%.*s", (int)(len - sizeof(struct wire_fail)),
			    (const char *)data + sizeof(struct wire_fail));
		end(s, number_of(data, len));
		break;
	}
}

static void hear(struct session *s)
{
	struct buffer *in = &s->console.in;
	struct wire_head head;

	while (in->len >= sizeof(head)) {
		memcpy(&head, in->data, sizeof(head));
		if (head.len > WIRE_MAX) {
			say("the guest sent nonsense");
			end(s, STATUS_FAILED);
			in->len = 0;
			return;
		}
		if (in->len < sizeof(head) + head.len)
			return;
		message(s, head.type, in->data + sizeof(head), head.len);
		buffer_drop(in, sizeof(head) + head.len);
	}
}

/* Do not wait for the rest of the output. */
static void abandon(struct session *s)
{
	end(s, s->status);
	s->abandoned = true;
}

static void send_signal(struct session *s, uint32_t sig)
{
	/* The command is over, but nobody reads its output. */
	if (s->over || s->ended) {
		abandon(s);
		return;
	}
	if (!s->ready) {
		end(s, 128 + sig);
		return;
	}
	wire_put(&s->console.out, WIRE_SIGNAL, &sig, sizeof(sig));
}

static void send_size(struct session *s)
{
	struct wire_winsize win;

	if (terminal_size(&win))
		wire_put(&s->console.out, WIRE_WINSIZE, &win, sizeof(win));
}

static void take_signals(struct session *s)
{
	struct signalfd_siginfo info;

	while (read(s->signals, &info, sizeof(info)) == sizeof(info)) {
		switch (info.ssi_signo) {
		case SIGCHLD:
			if (guest_reap(s->guest) && !s->over) {
				/* Its last message is still in its memory. */
				console_poll(&s->console);
				hear(s);
				s->died = !s->over;
				end(s, STATUS_FAILED);
			}
			break;
		case SIGWINCH:
			send_size(s);
			break;
		case SIGTSTP:
			/* The shell must not get a raw terminal. */
			terminal_restore();
			raise(SIGSTOP);
			if (s->ready && !s->over)
				terminal_raw(s->run);
			break;
		default:
			send_signal(s, info.ssi_signo);
		}
	}
}

static void take_notes(struct session *s)
{
	struct pump_note note;

	while (read(s->notes[0], &note, sizeof(note)) == sizeof(note)) {
		switch (note.event) {
		case PUMP_ERROR:
			s->output_failed = true;
			/* fall through */
		case PUMP_EOF:
		case PUMP_BROKEN:
			console_open_port(&s->console, note.port, false);
			break;
		case PUMP_DRAINED:
			s->draining--;
			break;
		}
	}
}

/* The boot takes too long, or the command; or the command ignores SIGTERM. */
static void take_clock(struct session *s)
{
	uint64_t n;

	if (read(s->clock, &n, sizeof(n)) != sizeof(n))
		return;
	if (s->over || s->ended) {
		abandon(s);
	} else if (!s->ready) {
		report_slow(s->guest);
		end(s, STATUS_FAILED);
	} else if (!s->timed_out) {
		s->timed_out = true;
		send_signal(s, SIGTERM);
		set_clock(s, GRACE_TIME);
		console_poll(&s->console);
		say("the command was stopped after %u s", s->opt->timeout);
	} else if (!s->killed) {
		s->killed = true;
		send_signal(s, SIGKILL);
		set_clock(s, KILL_TIME);
	} else {
		guest_kill(s->guest);
		end(s, STATUS_TIMEOUT);
		set_clock(s, 1);
	}
}

static void take_message(struct session *s)
{
	int ret = vhost_message(&s->console);

	if (!ret)
		return;
	if (ret < 0) {
		say("the guest broke the protocol of its console");
		end(s, STATUS_FAILED);
	}
	/* SIGCHLD tells of the end as well, and then the log is complete. */
	close(s->console.socket);
	s->console.socket = -1;
}

static void loop(struct session *s)
{
	enum { VHOST, SIGNALS, NOTES, CLOCK, RINGS };

	while (!s->over || (s->draining && !s->abandoned)) {
		struct pollfd fds[RINGS + RING_CONTROL_OUT + 1] = {
			[VHOST] = { s->console.socket, POLLIN, 0 },
			[SIGNALS] = { s->signals, POLLIN, 0 },
			[NOTES] = { s->notes[0], POLLIN, 0 },
			[CLOCK] = { s->clock, POLLIN, 0 },
		};
		unsigned int i;

		for (i = RING_IN; i <= RING_CONTROL_OUT; i++)
			fds[RINGS + i] = (struct pollfd) {
				s->console.ring[i].kick, POLLIN, 0 };
		if (poll(fds, sizeof(fds) / sizeof(fds[0]), -1) < 0)
			continue;
		if (fds[VHOST].revents)
			take_message(s);
		for (i = RING_IN; i <= RING_CONTROL_OUT; i++)
			if (fds[RINGS + i].revents)
				queue_wait(&s->console.ring[i]);
		if (fds[SIGNALS].revents)
			take_signals(s);
		if (fds[NOTES].revents)
			take_notes(s);
		if (fds[CLOCK].revents)
			take_clock(s);
		if (console_poll(&s->console) && !s->over) {
			say("the guest broke the rules of its console");
			end(s, STATUS_FAILED);
		}
		hear(s);
	}
}

/**
 * session_run() - start the guest and serve it until the command is over
 * @opt: the options
 * @bundle: the guest's kernel
 * @settings: what to tell the guest; taken over
 * @run: the streams of the command
 *
 * Return: the exit status of keel-run.
 */
int session_run(const struct options *opt, const struct bundle *bundle,
		struct buffer *settings, const struct wire_run *run)
{
	struct guest guest = { 0 };
	struct session s = { .guest = &guest, .opt = opt, .run = run };

	s.signals = watch_signals(run);
	s.clock = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (s.clock < 0 || pipe2(s.notes, O_CLOEXEC))
		die("cannot make a timer or a pipe: %s", strerror(errno));
	fcntl(s.notes[0], F_SETFL, O_NONBLOCK);
	guest_start(&guest, opt, bundle);
	console_init(&s.console, guest.socket);
	s.console.out = *settings;
	set_clock(&s, opt->debug || opt->kernel ? BOOT_TIME_DEBUG : BOOT_TIME);
	loop(&s);
	guest_kill(&guest);
	terminal_restore();
	if (s.died)
		report_death(&guest);
	if (s.timed_out)
		s.status = STATUS_TIMEOUT;
	if (s.output_failed)
		s.status = STATUS_FAILED;
	if (opt->debug && s.ended && !s.exited && !s.died) {
		say("the checks of --debug were interrupted");
		s.status = STATUS_FAILED;
	}
	if (opt->debug && report_complaints(&guest))
		s.status = STATUS_FAILED;
	return s.status;
}
