# SPDX-License-Identifier: GPL-2.0
"""What runs programs on RDMA devices in a guest has in common: the devices,
brought up alike, and two processes that talk to each other.
"""
import os
import re
import signal
import subprocess
import tempfile
import time

CLASS = '/sys/class/infiniband'


class Device:
    """An RDMA device with an address that rdma_cm can use."""

    def __init__(self, kind, name, netdev, address):
        self.kind, self.name = kind, name
        self.netdev, self.address = netdev, address
        self.gid_index = None

    def node(self):
        """Its char device."""
        verbs = '/sys/class/infiniband_verbs'
        for entry in os.listdir(verbs):
            if read(f'{verbs}/{entry}/ibdev').strip() == self.name:
                return '/dev/infiniband/' + entry
        raise RuntimeError(f'{self.name} has no node')

    def wait(self):
        """Until the port is up and there is a GID of the address; a device
        comes up as its netdev does: not in the same instant."""
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
    """A file of sysfs, empty if it cannot be read."""
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
    """keel0 on its own netdev."""
    device = Device('keel', 'keel0', 'keel0', '10.77.0.1')
    call('ip', 'address', 'add', device.address + '/24', 'dev', device.netdev)
    return device.wait()


def rxe():
    """rxe0 on a pair of virtual Ethernets: rdma_cm finds no route over "lo".
    With large frames, for then its MTU is 4096 like keel's."""
    device = Device('rxe', 'rxe0', 'rxenet0', '10.78.0.1')
    call('modprobe', 'rdma_rxe')
    call('ip', 'link', 'add', device.netdev, 'mtu', '9000', 'type', 'veth',
         'peer', 'name', 'rxenet1', 'mtu', '9000')
    # Nobody else has its link-local address: it need not wait for an answer.
    with open(f'/proc/sys/net/ipv6/conf/{device.netdev}/accept_dad', 'w',
              encoding='ascii') as file:
        file.write('0')
    call('ip', 'address', 'add', device.address + '/24', 'dev', device.netdev)
    call('ip', 'link', 'set', device.netdev, 'up')
    call('ip', 'link', 'set', 'rxenet1', 'up')
    call('rdma', 'link', 'add', device.name, 'type', 'rxe',
         'netdev', device.netdev)
    return device.wait()


BRING_UP = {'keel': keel, 'rxe': rxe}


def tcp_listens(port):
    """Whether somebody listens at a TCP port of this machine."""
    want = re.compile(r'^ *\d+: \w+:%04X \w+:0000 0A ' % port, re.M)
    return any(want.search(read('/proc/net/' + name)) for name in ('tcp', 'tcp6'))


def cm_listens(port):
    """Whether somebody listens at a port of rdma_cm."""
    said = subprocess.run(['rdma', 'resource', 'show', 'cm_id'], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          check=False).stdout
    return re.search(rf'state LISTEN .*src-addr \S+:{port}\b', said) is not None


class Side:
    """One of two processes: what it printed, and its exit status, which is
    None as long as it runs and for one that was late."""

    def __init__(self, command):
        self.command = command
        self.status = None
        # Apart, so that no remark stands in the middle of a result.
        self.files = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        # A group of its own, so that its threads and children end with it.
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL,
            stdout=self.files[0], stderr=self.files[1], process_group=0)

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
        """What it printed, then what it said on the side."""
        for file in self.files:
            file.seek(0)
        return '\n'.join(file.read().decode(errors='replace')
                         for file in self.files)

    def report(self):
        state = 'was stopped: it took too long' if self.status is None \
            else f'ended with status {self.status}'
        return f'{" ".join(map(str, self.command))}\n{state}\n{self.text}'


def run_pair(server, client, ready, timeout, patience=15):
    """Start server, client as soon as ready() says so, and wait for both; for
    a server that has nobody to serve any more, patience seconds."""
    end = time.monotonic() + timeout
    first = Side(server)
    second = None
    try:
        while not ready() and first.process.poll() is None and \
                time.monotonic() < end:
            time.sleep(0.01)
        second = Side(client)
        second.wait(end)
        first.wait(min(end, time.monotonic() + patience))
    finally:
        first.stop()
        if second:
            second.stop()
    return first, second
