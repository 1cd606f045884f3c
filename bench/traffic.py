# SPDX-License-Identifier: GPL-2.0
"""For bench/run and bench/across: rounds that measure each row on one device after the other,
runs of perftest, and programs of this folder.
"""
import itertools
import json
import os
import platform
import subprocess
import time

import rdma_guest

HERE = os.path.dirname(os.path.realpath(__file__))
# How long the traffic of one run lasts.
SECONDS = 0.6
PORTS = itertools.count(20000)


class Failed(Exception):
    pass


def numbers(text):
    """The columns of perftest's last line that begins with a size."""
    rows = [line.split() for line in text.splitlines()]
    rows = [row for row in rows if len(row) >= 5 and row[0].isdigit()]
    try:
        return [float(column) for column in rows[-1]]
    except (IndexError, ValueError):
        raise Failed('it printed no result\n' + text) from None


def perftest(device, about, count):
    """One run of a row. (the value, the seconds that a message takes)

    perftest asks the clock how fast it is. On a busy machine it does not
    believe the answer and divides by zero: then once more.
    """
    for _ in range(5):
        value, took = perftest_once(device, about, count)
        if 0 < value < float('inf'):
            return value, took
    raise Failed(f'{about[2]} prints {value} again and again')


def perftest_once(device, about, count):
    _, unit, tool, arguments, _ = about
    port, server = next(PORTS), device.server or device

    def side(of, *more):
        return of.command(tool, '-d', of.name, '-x', of.gid_index, '-F',
                          '-p', port, '-n', count, *arguments, *more)

    sides = rdma_guest.run_pair(
        side(server), side(device, server.address if server.host else '127.0.0.1'),
        lambda: rdma_guest.tcp_listens(port, server), 60)
    for one in reversed(sides):
        if one.status != 0:
            raise Failed(one.report())
    columns = numbers(sides[1].text)
    if unit == 'us':
        # bytes, messages, least, most, typical, ...
        return columns[4], 2e-6 * columns[4]
    # bytes, messages, peak, average, M/s
    bandwidth = columns[3]
    took = columns[0] / (bandwidth * 2**20) if bandwidth else 1
    return (bandwidth if unit == 'MiB/s' else columns[4]), took


def program(*command):
    """Run a program of ours. Return its output, which is JSON."""
    words = [os.path.join(HERE, command[0]), *map(str, command[1:])]
    try:
        done = subprocess.run(words, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=60, check=False)
    except subprocess.TimeoutExpired:
        raise Failed(f'{" ".join(words)}: not through after 60 s') from None
    if done.returncode:
        raise Failed(f'{" ".join(words)}: {done.stdout}')
    return json.loads(done.stdout)


class Bench:
    """Measures rows on devices.

    traffic: the rows of perftest. Each is (what it is called, unit, program, arguments,
        messages of the trial run).
    others: other rows: (what it is called, unit)
    A row that cannot be measured is left out, with the reason in "failures".
    """
    # The kind of the module that is loaded.
    loaded = 'keel'

    def __init__(self, lane, rounds, devices, traffic, others):
        self.rounds, self.devices, self.rows = rounds, devices, traffic
        self.counts = {}
        self.start = time.monotonic()
        self.result = {
            'lane': lane, 'kernel': platform.release(), 'rounds': rounds,
            'processors': os.cpu_count(),
            'devices': [device.kind for device in devices],
            'rows': {row: {'title': about[0], 'unit': about[1], 'values': {}}
                     for row, about in (traffic | others).items()},
            'machine': {}, 'failures': {},
        }

    def say(self, text):
        print(f'{time.monotonic() - self.start:4.0f} s  {text}', flush=True)

    def note(self, row, device, value):
        self.result['rows'][row]['values'].setdefault(
            device.kind, []).append(value)
        return f'{row} {value:.4g}'

    def attempt(self, what, device, measure):
        """measure(), unless it failed before; what it failed with is kept."""
        key = f'{what} {device.kind}'
        if key in self.result['failures']:
            return
        try:
            self.load(device)
            said = measure()
            if said:
                self.say(f'  {device.kind}: {said}')
        except Failed as why:
            self.result['failures'][key] = str(why)
            self.say(f'  {device.kind}: {what} cannot be measured:\n{why}')

    def load(self, device):
        """Load the module of the device, if it is another one."""

    def devices_of(self, _row):
        """The devices on which a row of perftest is measured."""
        return self.devices

    def messages(self, row, device, count):
        """One run of a row. (the value, the seconds that a message takes)"""
        return perftest(device, self.rows[row], count)

    def calibrate(self, row, device):
        """Determine how many messages of each queue pair make a run."""
        about = self.rows[row]
        _, took = self.messages(row, device, about[4])
        arguments = about[3]
        qps = arguments[arguments.index('-q') + 1] if '-q' in arguments else 1
        self.counts[row, device.kind] = min(
            500000, max(about[4], int(SECONDS / took / qps)))

    def traffic(self, row, device):
        value, _ = self.messages(row, device, self.counts[row, device.kind])
        return self.note(row, device, value)

    def limits(self):
        nodes = {device.node(): device.kind for device in self.devices
                 if device.kind in ('rxe', self.loaded)}
        got = {f'ioctl {nodes[key]}' if key in nodes else key: value
               for key, value in program('limits', *nodes).items()}
        for key, value in got.items():
            self.result['machine'].setdefault(key, []).append(value)
        self.say('  the machine: ' + ', '.join(
            f'{key} {value:.4g}' for key, value in got.items()))

    def one_round(self):
        self.attempt('the machine', self.devices[0], self.limits)
        for row in self.rows:
            for device in self.devices_of(row):
                self.attempt(row, device, lambda r=row, d=device: self.traffic(r, d))

    def run(self):
        self.say('how many messages make a run')
        for row in self.rows:
            for device in self.devices_of(row):
                self.attempt(row, device,
                             lambda r=row, d=device: self.calibrate(r, d))
        for number in range(1, self.rounds + 1):
            self.say(f'round {number} of {self.rounds}')
            self.one_round()

    def save(self, output):
        """Write all numbers. Return the exit status."""
        with open(output, 'w', encoding='utf-8') as file:
            json.dump(self.result, file, indent=1)
            file.write('\n')
        return 1 if self.result['failures'] else 0
