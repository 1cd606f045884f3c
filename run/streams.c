// SPDX-License-Identifier: GPL-2.0
/* The standard streams and the terminal of the caller */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "keel-run.h"

static struct termios saved;
static bool is_raw;

static bool in_foreground(int fd)
{
	return tcgetpgrp(fd) == getpgrp();
}

/**
 * terminal_size() - ask for the size of the caller's terminal
 * @win: filled in
 *
 * Return: true if one of the standard streams is a terminal that has a size.
 */
bool terminal_size(struct wire_winsize *win)
{
	struct winsize size;
	int fd;

	for (fd = 0; fd < 3; fd++) {
		if (!isatty(fd) || ioctl(fd, TIOCGWINSZ, &size))
			continue;
		win->rows = size.ws_row;
		win->cols = size.ws_col;
		return true;
	}
	return false;
}

/**
 * streams_inspect() - decide how the streams of the command are made
 * @run: stream, raw_tty, win and ignored are filled in
 *
 * Each terminal of the caller's becomes the terminal inside. Standard input does
 * so only with an output that can show what is typed.
 */
void streams_inspect(struct wire_run *run)
{
	struct sigaction action;
	int fd, sig;

	for (fd = 0; fd < 3; fd++) {
		if (fcntl(fd, F_GETFD) < 0)
			run->stream[fd] = STREAM_CLOSED;
		else
			run->stream[fd] = isatty(fd) ? STREAM_TTY : STREAM_PIPE;
		/* Nothing of ours may get the number of a standard stream. */
		if (run->stream[fd] == STREAM_CLOSED)
			open("/dev/null", O_RDWR);
	}
	if (run->stream[0] == STREAM_TTY && run->stream[1] != STREAM_TTY &&
	    run->stream[2] != STREAM_TTY)
		run->stream[0] = STREAM_PIPE;
	run->raw_tty = run->stream[0] == STREAM_TTY && in_foreground(0);
	terminal_size(&run->win);
	for (sig = 1; sig < NSIG; sig++)
		if (!sigaction(sig, NULL, &action) &&
		    action.sa_handler == SIG_IGN)
			run->ignored |= 1ull << (sig - 1);
}

/**
 * terminal_raw() - let every key go to the command
 * @run: what streams_inspect() found
 */
void terminal_raw(const struct wire_run *run)
{
	struct termios raw;

	if (!run->raw_tty || is_raw || tcgetattr(0, &saved))
		return;
	raw = saved;
	cfmakeraw(&raw);
	/* Others print there, too: "keel-run ... | tee file". */
	if (run->stream[1] != STREAM_TTY || run->stream[2] != STREAM_TTY)
		raw.c_oflag = saved.c_oflag;
	is_raw = !tcsetattr(0, TCSADRAIN, &raw);
}

/**
 * terminal_is_raw() - tell how a line ends on the terminal
 *
 * Return: true between terminal_raw() and terminal_restore().
 */
bool terminal_is_raw(void)
{
	return is_raw;
}

/**
 * terminal_restore() - undo terminal_raw()
 *
 * May be called at any time, any number of times.
 */
void terminal_restore(void)
{
	sigset_t set, old;

	if (!is_raw)
		return;
	/* In the background this would stop the process. */
	sigemptyset(&set);
	sigaddset(&set, SIGTTOU);
	sigprocmask(SIG_BLOCK, &set, &old);
	tcsetattr(0, TCSADRAIN, &saved);
	sigprocmask(SIG_SETMASK, &old, NULL);
	is_raw = false;
}
