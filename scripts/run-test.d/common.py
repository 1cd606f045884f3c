# SPDX-License-Identifier: GPL-2.0
"""Shared by the cases of scripts/run-test: the list of cases, and runs of keel-run.

The command line is that of scripts/run-test-cases.
"""
import os
import subprocess
import sys
import tempfile

BUNDLE, ENTER, INPUTS = sys.argv[1:4]
ROOTS = dict(word.split('=', 1) for word in sys.argv[4:])
KEEL_RUN = BUNDLE + '/keel-run'
SHORT = bool(os.environ.get('KEEL_SHORT'))
NOBODY = ['setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups',
          '--no-new-privs', '--bounding-set', '-all']
CASES = []
WORK = tempfile.mkdtemp(prefix='keel-run-test.')


def case(title):
    def add(function):
        CASES.append((title, function))
        return function
    return add


def same(got, wanted):
    if got != wanted:
        raise AssertionError(f'got {got!r}, wanted {wanted!r}')


def run(*words, options=(), text_in=None, user=NOBODY, cwd=WORK, timeout=120,
        program=KEEL_RUN, **more):
    """(status, standard output, standard error) of a command in keel-run."""
    got = subprocess.run([*user, program, *options, '--', *words], cwd=cwd,
                         input=text_in, capture_output=True, timeout=timeout,
                         check=False, **({} if text_in is not None else
                                         {'stdin': subprocess.DEVNULL}), **more)
    return got.returncode, got.stdout, got.stderr


def wrong(words, status, sentence, **more):
    got = subprocess.run([*NOBODY, KEEL_RUN, *words], cwd=WORK, check=False,
                         capture_output=True, timeout=120, **more)
    same((got.returncode, got.stderr.decode()), (status, f'keel-run: {sentence}\n'))


def in_root(name, *words, timeout=180):
    """Run a command as nobody in a root, with the bundle at /opt/keel-run."""
    got = subprocess.run([ENTER, name, ROOTS[name], BUNDLE, WORK, '--', *words],
                         check=False, capture_output=True, timeout=timeout,
                         stdin=subprocess.DEVNULL)
    return got.returncode, got.stdout.decode(), got.stderr.decode()


def keel_run_in(name):
    """The name of keel-run in a root."""
    return KEEL_RUN if ROOTS[name] == '/' else '/opt/keel-run/keel-run'


def ours(exe, parent):
    """Return whether a process belongs to a guest of this bundle, or is what a dead
    guest left. Processes of a guest are children of its kernel, whose name is
    linux: other tests have guests, too."""
    if exe.startswith(BUNDLE):
        return True
    if 'uml-userspace' not in exe:
        return False
    try:
        kernel = os.readlink(f'/proc/{parent}/exe')
    except OSError:
        return True
    return kernel.startswith(BUNDLE) or os.path.basename(kernel) != 'linux'


def processes():
    """Return all processes that live: pid, program, and pid of the parent."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            exe = os.readlink(f'/proc/{pid}/exe')
            with open(f'/proc/{pid}/stat', encoding='ascii') as file:
                state, parent = file.read().rsplit(')', 1)[1].split()[:2]
        except OSError:
            continue
        if state != 'Z':
            found.append((pid, exe, parent))
    return found


def guests():
    """Return the processes of the guests of this bundle: pid and program."""
    return [(pid, exe) for pid, exe, parent in processes() if ours(exe, parent)]


def family(pid):
    """Return a process with all its descendants: pid and program."""
    every, found = processes(), []
    heads = [pid]
    while heads:
        found += [(child, exe) for child, exe, _ in every if child in heads]
        heads = [child for child, _, parent in every if parent in heads]
    return found
