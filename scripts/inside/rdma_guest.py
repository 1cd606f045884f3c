# SPDX-License-Identifier: GPL-2.0
"""Helpers for running RDMA programs in a guest: bringing up devices, and running
two processes that talk to each other.
"""
import os
import re
import select
import signal
import subprocess
import tempfile
import threading
import time

CLASS = '/sys/class/infiniband'


class Device:
    """An RDMA device with an address that rdma_cm can use.

    host: the network namespace of its netdev, or None
    server: the device of the other host, on which servers run, or None: this one
    """

    def __init__(self, kind, name, netdev, address, host=None):
        self.kind, self.name = kind, name
        self.netdev, self.address = netdev, address
        self.host, self.server = host, None
        self.gid_index = None

    def command(self, *words):
        """Return a command for this host."""
        return ([] if self.host is None else ['ip', 'netns', 'exec', self.host]) + \
            list(words)

    def node(self):
        """Return the path of the char device."""
        verbs = '/sys/class/infiniband_verbs'
        for entry in os.listdir(verbs):
            if read(f'{verbs}/{entry}/ibdev').strip() == self.name:
                return '/dev/infiniband/' + entry
        raise RuntimeError(f'{self.name} has no node')

    def wait(self):
        """Wait until the port is up and has a GID of the address. A device
        comes up with its netdev, which takes a moment."""
        want = 'ffff:%02x%02x:%02x%02x' % tuple(
            int(n) for n in self.address.split('.'))
        port = f'{CLASS}/{self.name}/ports/1'
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if 'ACTIVE' in read(port + '/state'):
                for index in range(16):
                    if read(f'{port}/gids/{index}').strip().endswith(want) and \
                            'v2' in read(f'{port}/gid_attrs/types/{index}'):
                        self.gid_index = index
                        return self
            time.sleep(0.1)
        raise RuntimeError(f'{self.name} has no active port with a RoCE v2 '
                           f'GID for {self.address}')


def read(path):
    """Return the content of a sysfs file, or '' if it cannot be read."""
    try:
        with open(path, encoding='ascii') as file:
            return file.read()
    except OSError:
        return ''


def call(*command):
    done = subprocess.run(command, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise RuntimeError(f'{" ".join(command)}: {done.stdout.strip()}')
    return done.stdout


def keel():
    """Bring up keel0 on its own netdev."""
    device = Device('keel', 'keel0', 'keel0', '10.77.0.1')
    call('ip', 'address', 'add', device.address + '/24', 'dev', device.netdev)
    return device.wait()


def rxe():
    """Bring up rxe0 on a veth pair, because rdma_cm finds no route over "lo".
    With large frames, so that its MTU is 4096 like keel's."""
    device = Device('rxe', 'rxe0', 'rxenet0', '10.78.0.1')
    call('modprobe', 'rdma_rxe')
    call('ip', 'link', 'add', device.netdev, 'mtu', '9000', 'type', 'veth',
         'peer', 'name', 'rxenet1', 'mtu', '9000')
    # Skip the duplicate address detection for the link-local address.
    with open(f'/proc/sys/net/ipv6/conf/{device.netdev}/accept_dad', 'w',
              encoding='ascii') as file:
        file.write('0')
    call('ip', 'address', 'add', device.address + '/24', 'dev', device.netdev)
    call('ip', 'link', 'set', device.netdev, 'up')
    call('ip', 'link', 'set', 'rxenet1', 'up')
    add_rxe(device)
    return device.wait()


def add_rxe(device):
    call('rdma', 'link', 'add', device.name, 'type', 'rxe',
         'netdev', device.netdev)


def renew_rxe(device):
    """Replace the device by a new one. Raises RuntimeError if it cannot be deleted
    or added."""
    call('timeout', '60', 'rdma', 'link', 'delete', device.name)
    add_rxe(device)
    return device.wait()


BRING_UP = {'keel': keel, 'rxe': rxe}


def tcp_listens(port, device=None):
    """Return whether a process listens on a TCP port of this machine, or of the host of a
    device."""
    if device and device.host:
        return bool(call(*device.command('ss', '-Hltn', f'sport = {port}')))
    want = re.compile(r'^ *\d+: \w+:%04X \w+:0000 0A ' % port, re.M)
    return any(want.search(read('/proc/net/' + name)) for name in ('tcp', 'tcp6'))


def cm_listens(port):
    """Return whether a process listens on an rdma_cm port."""
    said = subprocess.run(['rdma', 'resource', 'show', 'cm_id'], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          check=False).stdout
    return re.search(rf'state LISTEN .*src-addr \S+:{port}\b', said) is not None


class Side:
    """One of two processes, with its output and its exit status. The status is
    None while the process runs, and if it was stopped for being late."""

    def __init__(self, command, output=None):
        self.command = command
        self.status = None
        # Two files, so that stderr does not interrupt a line of results.
        self.files = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        # A separate process group, so that stop() kills the children, too.
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL,
            stdout=output or self.files[0], stderr=self.files[1],
            process_group=0)

    def wait(self, end):
        try:
            self.status = self.process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass

    def stop(self):
        if self.status is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()

    @property
    def text(self):
        """Return stdout, followed by stderr."""
        for file in self.files:
            file.seek(0)
        return '\n'.join(file.read().decode(errors='replace')
                         for file in self.files)

    def report(self):
        state = 'was stopped: it took too long' if self.status is None \
            else f'ended with status {self.status}'
        return f'{" ".join(map(str, self.command))}\n{state}\n{self.text}'


class HeldSide(Side):
    """A process that blocks when it prints its second line, because the pipe is
    full. let_go() continues it."""

    def __init__(self, command):
        self.pipe, self.end = os.pipe()
        self.reader = threading.Thread(target=self.read_all)
        self.first = b''
        super().__init__(['stdbuf', '-oL', *command], self.end)

    def has_said(self):
        """Return whether the first line was read. If so, the pipe is full."""
        if not self.first and select.select([self.pipe], [], [], 0)[0]:
            self.first = os.read(self.pipe, 4096)
            # A separate open file: only this end must be nonblocking.
            full = os.open(f'/proc/self/fd/{self.end}',
                           os.O_WRONLY | os.O_NONBLOCK)
            size = 4096
            while size:
                try:
                    os.write(full, bytes(size))
                except BlockingIOError:
                    size //= 2
            os.close(full)
        return bool(self.first)

    def read_all(self):
        with open(self.pipe, 'rb') as pipe:
            self.files[0].write(self.first + pipe.read().replace(b'\0', b''))

    def let_go(self):
        os.close(self.end)
        self.reader.start()

    @property
    def text(self):
        self.reader.join()
        return super().text


def run_pair(server, client, ready, timeout, patience=15, held=False):
    """Start the server, start the client when ready() returns true, and wait for
    both. After the client has ended, wait patience seconds for the server. A
    held server does not print its second line before the client has ended."""
    end = time.monotonic() + timeout
    first = HeldSide(server) if held else Side(server)
    second = None
    try:
        while not (ready() and (not held or first.has_said())) and \
                first.process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        second = Side(client)
        second.wait(end)
        if held:
            first.let_go()
        if second.status is None or second.status < 0:
            patience = min(patience, 1)
        first.wait(min(end, time.monotonic() + patience))
    finally:
        first.stop()
        if second:
            second.stop()
    return first, second
