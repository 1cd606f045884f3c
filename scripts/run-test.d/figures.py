# SPDX-License-Identifier: GPL-2.0
"""Times, memory, and what many runs leave behind."""
import os
import statistics
import subprocess
import time

from common import KEEL_RUN, NOBODY, SHORT, WORK, case, family, guests, run, same


@case('an empty command starts and ends')
def _():
    times = []
    for _i in range(5 if SHORT else 20):
        start = time.monotonic()
        same(run('true')[0], 0)
        times.append(time.monotonic() - start)
    # A time is no test: the machine may be busy.
    median = statistics.median(times)
    return (f'median of {len(times)}: {median:.2f} s, goal 1.5 s '
            f'{"met" if median <= 1.5 else "missed"}')


def pss(pid):
    """Return the memory of a process in kB, with its part of what it shares."""
    with open(f'/proc/{pid}/smaps_rollup', encoding='ascii') as file:
        return next(int(line.split()[1]) for line in file if line.startswith('Pss:'))


@case('an idle guest takes at most 150 MB')
def _():
    # A shell that starts a program is not idle: for a moment, a second process has the
    # memory of the guest's kernel, and would be counted, too.
    with subprocess.Popen([*NOBODY, KEEL_RUN, '--', 'sh', '-c', 'echo go; read line'],
                          cwd=WORK, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            child.stdout.readline()
            # Not all guests: that of another case or test may just end.
            members = family(str(child.pid))
            programs = ' '.join(os.path.basename(exe) for _, exe in members)
            for program in 'keel-run', 'linux', 'uml-userspace':
                assert program in programs, programs
            sizes = [(pss(pid), os.path.basename(exe)) for pid, exe in members]
        finally:
            child.terminate()
        same(child.wait(), 143)
    total = sum(size for size, _ in sizes)
    assert total <= 150 * 1000, f'{total} kB: {sorted(sizes, reverse=True)}'
    return f'{total // 1000} MB'


@case('200 runs in a row and 8 at once leave nothing behind')
def _():
    def left():
        files = []
        for place in ('/tmp', '/dev/shm', '/run', '/var/tmp', WORK):
            for entry in os.scandir(place):
                if entry.stat(follow_symlinks=False).st_uid == 65534:
                    files.append(entry.path)
        return guests(), sorted(files)
    before = left()
    start = time.monotonic()
    for i in range(20 if SHORT else 200):
        same(run('echo', str(i))[:2], (0, f'{i}\n'.encode()))
    took = time.monotonic() - start
    many = [subprocess.Popen([*NOBODY, KEEL_RUN, '--mem', '256M', '--', 'sh', '-c',
                              f'sleep 0.5; echo {i}'],
                             cwd=WORK, stdout=subprocess.PIPE) for i in range(8)]
    for i, child in enumerate(many):
        same((child.communicate()[0], child.returncode), (f'{i}\n'.encode(), 0))
    same(left(), before)
    return f'{took:.1f} s in a row'
