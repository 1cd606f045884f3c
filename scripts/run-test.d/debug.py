# SPDX-License-Identifier: GPL-2.0
"""keel-run --debug: the status of a clean run, and reports of the kernel.

INPUTS/debug is a bundle with the kernel of --debug, INPUTS/keel_fault.ko a module
for it (run/fault).
"""
import shutil

from common import INPUTS, SHORT, WORK, case, run, same, wrong

DEBUG = INPUTS + '/debug/keel-run'


def debug(*words, root=False, options=()):
    """(status, standard output, standard error) of a command with --debug."""
    options = ['--debug', *(['--root'] if root else []), *options]
    status, out, error = run(*words, options=options, program=DEBUG, timeout=400)
    return status, out.decode(), error.decode()


def fault_case(title, fault, words):
    @case(f'--debug: {title} is printed, and the status is 125')
    def _():
        shutil.copy(INPUTS + '/keel_fault.ko', WORK)
        status, out, error = debug('sh', '-c', 'insmod ./keel_fault.ko '
                                   f'fault={fault}; echo $?', root=True)
        same((status, out), (125, '0\n'))
        assert error.startswith('keel-run: the kernel complained:\n'), error
        for word in words:
            assert word in error, error


@case('--debug of a bundle without its kernel gets one sentence')
def _():
    wrong(['--debug', '--', 'true'], 125, 'this bundle has no kernel for --debug: '
          'use one that was made with scripts/bundle --debug')


if not SHORT:
    @case('--debug: a run without reports has the status of the command')
    def _():
        same(debug('sh', '-c', 'ibv_rc_pingpong -d keel0 -g 1 >/dev/null & sleep 1; '
                   'ibv_rc_pingpong -d keel0 -g 1 localhost >/dev/null && wait; '
                   'echo $?; exit 3'), (3, '0\n', ''))
        shutil.copy(INPUTS + '/keel_fault.ko', WORK)
        same(debug('insmod', './keel_fault.ko', root=True), (0, '', ''))
        # The checks take longer.
        same(debug('true', options=['--timeout', '3']), (0, '', ''))
        same(debug('no-such'), (127, '', 'keel-run: no-such: command not found\n'))

    fault_case('a write beyond the end of memory', 'overflow',
               ('BUG: KASAN: slab-out-of-bounds in keel_fault_overflow',))
    fault_case('a leak', 'leak', ('unreferenced object', 'keel_fault_leak'))
    fault_case('a circular order of locks', 'lock',
               ('WARNING: possible circular locking dependency', 'keel_fault_take'))
