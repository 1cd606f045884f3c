# SPDX-License-Identifier: GPL-2.0
"""The contract of keel-run: status, streams, signals, files, users, wrong use."""
import contextlib
import ctypes
import fcntl
import hashlib
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time

from common import (BUNDLE, KEEL_RUN, NOBODY, ROOTS, SHORT, WORK, case, guests, run,
                    same, wrong)


@case('the exit status is that of the command')
def _():
    same([run('sh', '-c', f'exit {n}')[0] for n in (0, 1, 7, 124, 255)],
         [0, 1, 7, 124, 255])
    same(run('sh', '-c', 'kill -9 $$')[0], 137)


@case('output and error come out apart, byte for byte')
def _():
    data = bytes(range(256)) * 400
    same(run('sh', '-c', 'cat; echo e >&2', text_in=data), (0, data, b'e\n'))


@case('arguments, environment, directory and umask are the caller\'s')
def _():
    words = ['a b', '', '"', "'", '\n', 'ä', '*', '\\']
    status, out, _err = run('printf', '%s|', *words)
    same((status, out.decode()), (0, '|'.join(words) + '|'))
    env = {'PATH': os.environ['PATH'], 'A': 'x  y\nz', 'B': ''}
    status, out, _err = run('sh', '-c', 'printf "%s|%s|" "$A" "${B-unset}"; pwd; umask',
                            env=env, umask=0o027)
    same((status, out.decode()), (0, f'x  y\nz||{WORK}\n0027\n'))


@case('the user is the caller, without privileges, with unlimited locked memory')
def _():
    out = run('sh', '-c', 'id -u; id -g; ulimit -l; grep CapEff /proc/self/status')[1]
    same(out.decode().split(), ['65534', '65534', 'unlimited', 'CapEff:', '0' * 16])
    user = ['setpriv', '--reuid', '1234', '--regid', '2345', '--groups', '7,8,9',
            '--no-new-privs']
    same(run('id', '-G', user=user)[1], b'2345 7 8 9\n')
    same(run('id', '-u', options=['--root'])[1], b'0\n')


@case('the working directory is written through, nothing else is')
def _():
    other = tempfile.mkdtemp(dir=WORK + '/..')
    os.chmod(other, 0o777)
    run('sh', '-c', f'echo one >one; chmod 640 one; mkdir d; mkdir -p {other}; '
        f'echo two >{other}/two')
    stat = os.stat(WORK + '/one')
    same((stat.st_uid, stat.st_gid, stat.st_mode & 0o777), (65534, 65534, 0o640))
    same(os.listdir(other), [])
    run('sh', '-c', f'echo two >{other}/two', options=['--rw', other])
    with open(other + '/two', encoding='ascii') as file:
        same(file.read(), 'two\n')
    status, out, _err = run('sh', '-c', 'echo 3 >three; cat one three', options=['--ro'])
    same((status, out, os.path.exists(WORK + '/three')), (0, b'one\n3\n', False))
    shutil.rmtree(other)
    out = run('sh', '-c', 'echo x >>/etc/hosts; tail -n 1 /etc/hosts',
              options=['--root'])[1]
    same(out, b'x\n')
    with open('/etc/hosts', encoding='ascii') as file:
        assert not file.read().endswith('\nx\n')


@case('/tmp is a copy of the machine\'s: its files are there, and changes vanish')
def _():
    with tempfile.NamedTemporaryFile('w', encoding='ascii') as file:
        os.chmod(file.name, 0o666)
        file.write('input\n')
        file.flush()
        status, out, _err = run('sh', '-c', f'cat {file.name}; echo x >>{file.name}; '
                                f'cat {file.name}; new=$(mktemp) && echo $new; '
                                'echo data >$new && mv $new $new.2 && cat $new.2; '
                                f'stat -c %a /tmp; rm {file.name}')
        lines = out.decode().split('\n')
        name = lines.pop(3)
        same((status, lines), (1, ['input', 'input', 'x', 'data', '1777', '']))
        with open(file.name, encoding='ascii') as same_file:
            same(same_file.read(), 'input\n')
    assert name.startswith('/tmp/') and not os.path.exists(name + '.2'), name


@case('a closed stream is closed for the command too')
def _():
    for closed, wanted in (('<&-', 'no 0'), ('>&-', 'no 1')):
        script = f'{KEEL_RUN} -- sh -c ' \
            f'"for i in 0 1; do test -e /proc/self/fd/\\$i || echo no \\$i >&2; done" {closed}'
        got = subprocess.run([*NOBODY, 'sh', '-c', script], cwd=WORK, check=False,
                             capture_output=True, timeout=60)
        assert wanted in got.stderr.decode(), got


@case('a reader that goes away ends the command')
def _():
    got = subprocess.run([*NOBODY, 'sh', '-c', f'{KEEL_RUN} -- yes | head -n 1'],
                         cwd=WORK, check=False, capture_output=True, timeout=60)
    same(got.stdout, b'y\n')


@case('a pipe of many bytes through the command keeps each of them')
def _():
    count = 64 if SHORT else 1024
    block = os.urandom(1 << 20)
    wanted, got = hashlib.sha256(), hashlib.sha256()
    start = time.monotonic()
    with subprocess.Popen([*NOBODY, KEEL_RUN, '--', 'cat'], cwd=WORK,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        feeder = os.fork()
        if not feeder:
            child.stdout.close()
            for _i in range(count):
                child.stdin.write(block)
            child.stdin.close()
            os._exit(0)
        child.stdin.close()
        while data := child.stdout.read(1 << 20):
            got.update(data)
        os.waitpid(feeder, 0)
    for _i in range(count):
        wanted.update(block)
    same(got.hexdigest(), wanted.hexdigest())
    return f'{count} MiB in {time.monotonic() - start:.1f} s'


@case('a signal reaches the command')
def _():
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        name = sig.name[3:]
        with subprocess.Popen(
                [*NOBODY, KEEL_RUN, '--', 'sh', '-c',
                 f'trap "echo {name}; exit 9" {name}; echo go; '
                 'while :; do sleep 0.05; done'],
                cwd=WORK, stdout=subprocess.PIPE) as child:
            same(child.stdout.readline(), b'go\n')
            child.send_signal(sig)
            same((child.stdout.read().decode(), child.wait()), (name + '\n', 9))


def wait_until_gone():
    """Nobody waits for the guest of a keel-run that was killed."""
    deadline = time.monotonic() + 5
    while guests() and time.monotonic() < deadline:
        time.sleep(0.05)
    same(guests(), [])


@contextlib.contextmanager
def killed_at_the_end(script):
    """A keel-run whose command has printed "go". It gets SIGKILL in any case."""
    with subprocess.Popen([*NOBODY, KEEL_RUN, '--', 'sh', '-c', script],
                          cwd=WORK, stdout=subprocess.PIPE) as child:
        try:
            same(child.stdout.readline(), b'go\n')
            yield
        finally:
            child.kill()


@case('SIGKILL of keel-run leaves nothing running')
def _():
    with killed_at_the_end('sleep 1000 & echo go; wait'):
        assert len(guests()) > 2
    wait_until_gone()


def is_stopped(pid):
    with open(f'/proc/{pid}/stat', encoding='ascii') as file:
        return file.read().rsplit(')', 1)[1].split()[0] == 'T'


def stop_in_start(kernel):
    """Stop a process of the guest before it executes its own program."""
    tasks = os.listdir(f'/proc/{kernel}/task')
    files = [f'/proc/{kernel}/task/{task}/children' for task in tasks]

    def children():
        found = set()
        for name in files:
            with open(name, encoding='ascii') as file:
                found.update(file.read().split())
        return found

    old, deadline = children(), time.monotonic() + 30
    while time.monotonic() < deadline:
        now = children()
        for pid in map(int, now - old):
            try:
                os.kill(pid, signal.SIGSTOP)
                # It may execute its program before it stops.
                while not is_stopped(pid) and time.monotonic() < deadline:
                    pass
                if os.readlink(f'/proc/{pid}/exe').endswith('/linux'):
                    return pid
                os.kill(pid, signal.SIGCONT)
            except OSError:
                pass
        old = now
    raise AssertionError('no process of the guest was seen in its start')


@case('SIGKILL of keel-run ends a process of the guest that just starts')
def _():
    with killed_at_the_end('echo go; while :; do (:); done'):
        kernel = next(pid for pid, exe in guests() if exe.endswith('/linux'))
        starting = stop_in_start(kernel)
    deadline = time.monotonic() + 5
    while os.path.exists(f'/proc/{kernel}/exe') and time.monotonic() < deadline:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.kill(starting, signal.SIGCONT)
    wait_until_gone()


def on_terminal(words, script, rows=37, cols=91, before=(), raw=False):
    """Output and status of a command on a terminal; SCRIPT is [(wait for, do)].

    BEFORE is a command that starts keel-run. RAW output has all its bytes.
    """
    pid, fd = pty.fork()
    if not pid:
        os.chdir(WORK)
        time.sleep(0.2)
        words = [*before, *NOBODY, KEEL_RUN, '--', *words]
        os.execvp(words[0], words)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', rows, cols, 0, 0))
    mode = termios.tcgetattr(fd)
    out, end = b'', time.monotonic() + 30
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                data = os.read(fd, 4096)
            except OSError:
                break
            out += data
        if script and script[0][0] in out:
            action = script.pop(0)[1]
            if isinstance(action, bytes):
                os.write(fd, action)
            else:
                action(fd)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        same(termios.tcgetattr(fd)[3] & termios.ICANON, mode[3] & termios.ICANON)
    except termios.error:
        pass
    os.close(fd)
    return (out if raw else out.replace(b'\r\n', b'\n')).decode(), status


@case('a terminal has its size, and Ctrl-C reaches the command')
def _():
    same(on_terminal(['sh', '-c', 'stty size; read x; echo "got $x"; sleep 60'],
                     [(b'37 91', b'abc\n'), (b'got abc', b'\3')]),
         ('37 91\nabc\ngot abc\n^C', 130))

    def resize(fd):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', 11, 22, 0, 0))
    same(on_terminal(['bash', '-c', 'trap "stty size; exit 3" WINCH; echo go; '
                      'while :; do sleep 0.1; done'], [(b'go', resize)]),
         ('go\n11 22\n', 3))


@case('another program on the terminal prints as ever')
def _():
    same(on_terminal(['sh', '-c', 'echo a; echo b; sleep 1; echo c'], [], raw=True,
                     before=['sh', '-c', '"$@" | cat', 'sh'])[0], 'a\r\nb\r\nc\r\n')


@case('the log of the kernel is complete, up to its last line')
def _():
    run('true', options=['--kernel-log', 'log'])
    with open(WORK + '/log', encoding='utf-8') as file:
        assert 'keel-run: booted' in file.read()


@case('each device is there, with its netdev and its addresses')
def _():
    out = run('sh', '-c', 'ls /sys/class/infiniband; '
              'ls /sys/class/infiniband/keel2/device/net 2>/dev/null; '
              'cat /proc/net/fib_trie | grep -c 198.18.2.1; '
              'cat /sys/class/infiniband/keel2/ports/1/state',
              options=['--devices', '3'])[1].decode().split('\n')
    same(out[:3], ['keel0', 'keel1', 'keel2'])
    assert '4: ACTIVE' in out, out
    same(run('ls', '/sys/class/infiniband', options=['--devices', '0'])[1], b'')
    same(run('ls', '/sys/class/infiniband', options=['--with', 'rxe,siw'])[1],
         b'keel0\nrxe0\nsiw0\n')


@case('parameters, memory and processors are what was asked for')
def _():
    out = run('sh', '-c', 'cat /sys/module/keel/parameters/dm_size; nproc; '
              'grep MemTotal /proc/meminfo',
              options=['--dm-size', '8M', '--cpus', '3', '--mem', '300M'])[1].split()
    same(out[:2], [b'8388608', b'3'])
    assert 220000 < int(out[3]) < 307200, out


@case('--timeout ends a command whose output is not read, and saves its files')
def _():
    with subprocess.Popen([*NOBODY, KEEL_RUN, '--timeout', '2', '--', 'sh', '-c',
                           'trap "" TERM; echo saved >file; yes'], cwd=WORK,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        same(child.wait(timeout=60), 124)
        with open(WORK + '/file', encoding='ascii') as file:
            same(file.read(), 'saved\n')
        same(child.stderr.read(), b'keel-run: the command was stopped after 2 s\n')
    same(guests(), [])


@case('--timeout does not cut the output of a command that has ended')
def _():
    words = ['sh', '-c', 'i=0; while [ $i -lt 1500 ]; do printf %0100d $i; '
             'i=$((i + 1)); done; echo end >&2']
    with subprocess.Popen([*NOBODY, KEEL_RUN, '--timeout', '8', '--', *words],
                          cwd=WORK, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as child:
        same(child.stderr.readline(), b'end\n')
        time.sleep(9)
        out, error = child.communicate(timeout=60)
    same((child.returncode, len(out), error), (0, 150000, b''))


@case('output that is not read is kept after a signal, and given up after the second')
def _():
    # More than the guest can buffer: the command must be there for the first signal.
    with subprocess.Popen([*NOBODY, KEEL_RUN, '--', 'head', '-c', '300000000',
                           '/dev/zero'], cwd=WORK, stdout=subprocess.PIPE) as child:
        count = bytearray(4)
        deadline = time.monotonic() + 60
        while struct.unpack('i', count)[0] < 65536 and time.monotonic() < deadline:
            fcntl.ioctl(child.stdout, termios.FIONREAD, count)
        child.send_signal(signal.SIGTERM)
        time.sleep(1)
        same(child.poll(), None)
        deadline = time.monotonic() + 60
        while child.poll() is None and time.monotonic() < deadline:
            child.send_signal(signal.SIGTERM)
            time.sleep(0.2)
        same(child.returncode, 143)
    same(guests(), [])


@case('a descriptor without blocking is waited for')
def _():
    data = os.urandom(1 << 20)
    with subprocess.Popen([*NOBODY, KEEL_RUN, '--', 'cat'], cwd=WORK,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        for fd in (child.stdin, child.stdout):
            # The open file is shared with keel-run.
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK)
        feeder = os.fork()
        if not feeder:
            fcntl.fcntl(child.stdin, fcntl.F_SETFL, os.O_NONBLOCK)
            time.sleep(1)
            left = memoryview(data)
            while left:
                select.select([], [child.stdin], [])
                left = left[os.write(child.stdin.fileno(), left[:65536]):]
            os._exit(0)
        child.stdin.close()
        got = b''
        while True:
            select.select([child.stdout], [], [])
            piece = os.read(child.stdout.fileno(), 1 << 16)
            if not piece:
                break
            got += piece
        os.waitpid(feeder, 0)
        same((child.wait(timeout=60), hashlib.sha256(got).digest()),
             (0, hashlib.sha256(data).digest()))


@case('a directory of --rw inside another one leads nowhere else')
def _():
    other = tempfile.mkdtemp(dir=WORK + '/..')
    os.chmod(other, 0o777)
    run('sh', '-c', f'mkdir -p nest/a/b; ln -s {other} nest/link')
    out = run('sh', '-c', 'echo in >nest/a/b/file; mv nest/a nest/old; mkdir nest/a; '
              f'ln -s {other} nest/a/b; echo out >nest/old/b/file; cat nest/old/b/file',
              options=['--rw', WORK + '/nest/a/b'])
    same((out[:2], os.listdir(other)), ((0, b'out\n'), []))
    shutil.rmtree(other)


@case('root of the guest cannot change the files of the bundle')
def _():
    status, _out, err = run('sh', '-c', 'touch /lib/modules/$(uname -r)/x',
                            options=['--root'])
    same((status != 0, b'Read-only file system' in err), (True, True))


@case('another system, with layers over it, hides the files of the machine')
def _():
    layers = []
    for name in ('upper', 'lower'):
        layers.append(f'{WORK}/{name}')
        os.mkdir(layers[-1])
        for file in (name, 'both'):
            with open(f'{layers[-1]}/{file}', 'w', encoding='ascii') as out:
                out.write(name + '\n')
            # The command may write it: to a copy.
            os.chmod(f'{layers[-1]}/{file}', 0o666)
    out = run('sh', '-c', 'pwd; cat upper lower both; ls -d /etc/passwd; echo x >/upper',
              options=['--system', ROOTS['bare'], '--layer', layers[0],
                       '--layer', layers[1]])
    same(out[:2], (0, b'/\nupper\nlower\nupper\n'))
    assert b'/etc/passwd' in out[2], out
    with open(layers[0] + '/upper', encoding='ascii') as file:
        same(file.read(), 'upper\n')


@case('another kernel gets its words, and no module')
def _():
    out = run('sh', '-c', 'cat /proc/cmdline; ls /sys/class/infiniband /sys/module/keel',
              options=['--kernel', BUNDLE + '/lib/uml/linux', '--append', 'one',
                       '--append', 'two=2'])
    assert b' one two=2 ' in out[1], out
    assert b'/sys/module/keel' in out[2] and b'keel0' not in out[1], out


@case('wrong use gets one sentence and a status')
def _():
    with open(WORK + '/text', 'w', encoding='ascii') as file:
        file.write('no program')
    wrong([], 125, 'no command was given: see keel-run --help')
    wrong(['--'], 125, 'no command was given: see keel-run --help')
    wrong(['--', 'no-such'], 127, 'no-such: command not found')
    wrong(['--', './no-such'], 127, './no-such: not found')
    wrong(['--', './text'], 126, './text: cannot be executed: Permission denied')
    wrong(['--', '/etc'], 126, '/etc: is a directory')
    wrong(['--mem', '1', '--', 'true'], 125,
          '--mem 1: the guest takes 128M to 64G of memory')
    wrong(['--mem', 'x', '--', 'true'], 125,
          '--mem takes a size like 64M or 1G, not "x"')
    wrong(['--cpus', '9', '--', 'true'], 125,
          '--cpus takes a number from 1 to 8, not "9"')
    wrong(['--ro', '--ro', '--', 'true'], 125, '--ro was given twice')
    wrong(['--timeout'], 125, '--timeout needs a value')
    wrong(['--ro=1', '--', 'true'], 125, '--ro takes no value')
    wrong(['--frob', '--', 'true'], 125,
          'unknown option "--frob": see keel-run --help')
    wrong(['--rw', '/no-such', '--', 'true'], 125,
          '--rw /no-such: No such file or directory')
    wrong(['--param', 'x', '--', 'true'], 125, '--param takes NAME=VALUE, not "x"')
    wrong(['--param', 'x=1', '--', 'true'], 125, 'the module keel has no parameter x')
    wrong(['--timeout', '1', '--', 'sleep', '60'], 124,
          'the command was stopped after 1 s')
    wrong(['--kernel-log', '/no/such', '--', 'true'], 125,
          '--kernel-log /no/such: No such file or directory')
    wrong(['--rw', '/', '--', 'true'], 125, '--rw /: a change of the command to any '
          'file would be for good: name directories below it')
    wrong(['--rw', '/sys/class', '--', 'true'], 125,
          '--rw /sys/class: the guest has /sys of its own')
    wrong(['--system', '/etc/hosts', '--', 'true'], 125,
          '--system /etc/hosts: Not a directory')
    wrong(['--layer', '/no/such', '--', 'true'], 125,
          '--layer /no/such: No such file or directory')
    wrong(['--kernel', '/no/such', '--', 'true'], 125,
          '--kernel /no/such: No such file or directory')


@case('a full disk gets one sentence and a status')
def _():
    with open('/dev/full', 'wb') as full:
        got = subprocess.run([*NOBODY, KEEL_RUN, '--', 'echo', 'x'], cwd=WORK,
                             stdout=full, stderr=subprocess.PIPE, check=False,
                             timeout=60)
    same((got.returncode, got.stderr),
         (125, b'keel-run: cannot write standard output: No space left on device\n'))


def forbid(number, error):
    """A seccomp filter under which system call NUMBER fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    words = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | error),
             (0x06, 0, 0, 0x7fff0000)]
    code = ctypes.create_string_buffer(
        b''.join(struct.pack('HBBI', *word) for word in words))
    program = ctypes.create_string_buffer(
        struct.pack('HxxxxxxQ', len(words), ctypes.addressof(code)))
    libc.prctl(38, 1, 0, 0, 0)
    assert libc.prctl(22, 2, ctypes.byref(program)) == 0


@case('a machine that forbids what the guest needs gets one sentence')
def _():
    wrong(['--', 'true'], 125, 'this machine forbids the seccomp filters that the '
          'guest needs: allow seccomp(2)', preexec_fn=lambda: forbid(317, 1))
    wrong(['--', 'true'], 125, 'there is no address space for the guest: lower '
          '--mem, or raise "ulimit -v"', preexec_fn=lambda: __import__('resource')
          .setrlimit(__import__('resource').RLIMIT_AS, (500 << 20, 500 << 20)))


@case('a host without close_range() is good enough')
def _():
    for error in (38, 1):
        same(run('echo', 'x', preexec_fn=lambda e=error: forbid(436, e))[:2],
             (0, b'x\n'))
