#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""qemu_migration.py ADDRESS [CAPABILITY...]: migrate a running guest by RDMA.

Two QEMUs of this machine are the source and the destination. The memory of the
guest holds random bytes, and its program writes to some of its pages all the time.
After the migration the memory of the destination must be that of the source, and
except for the counters of the program that of the image. Then the guest must
continue on the destination.
"""
import json
import os
import random
import socket
import subprocess
import sys
import time

MEMORY = 32 << 20
# QEMU loads its firmware to the end of the memory, and writes parameters of the
# program to the first 128 KiB.
IMAGE = MEMORY - (4 << 20)
PARAMETERS = 128 << 10
PORT = 4790
# The program counts in the first word of each of these pages.
COUNTERS = range(24 << 20, (24 << 20) + (64 << 12), 1 << 12)
WORD = 4
CODE = 0x10000
# Machine code of z/Architecture
PROGRAM = bytes.fromhex(
    'a52e0180'          # 0: llilh r2,0x0180       r2 = 24 MiB
    'a53e0184'          #    llilh r3,0x0184       r3 = r2 + 64 pages
    'eb012000006a'      # 1: asi   0(r2),1
    'a72b1000'          #    aghi  r2,4096
    'b9200023'          #    cgr   r2,r3
    'a744fff9'          #    jl    1b
    'a7f4fff3')         #    j     0b


def new_image():
    """Return random memory with the program. It begins with a short PSW, which has
    the address to start at."""
    memory = bytearray(random.randbytes(IMAGE))
    memory[:8] = bytes.fromhex('00080000') + (1 << 31 | CODE).to_bytes(4, 'big')
    memory[CODE:CODE + len(PROGRAM)] = PROGRAM
    for at in COUNTERS:
        memory[at:at + WORD] = bytes(WORD)
    return bytes(memory)


def without_counters(memory):
    memory = bytearray(memory)
    for at in COUNTERS:
        memory[at:at + WORD] = bytes(WORD)
    return bytes(memory)


def wait_for(what, condition, seconds=100):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.exit(f'no {what} in {seconds} seconds')
        time.sleep(0.1)


class Qemu:
    """A QEMU, controlled by QMP."""

    def __init__(self, name, *words):
        self.name = name
        self.sock, end = socket.socketpair()
        self.sock.settimeout(60)
        command = ['qemu-system-s390x', '-accel', 'tcg,tb-size=16', '-machine',
                   's390-ccw-virtio', '-m', f'{MEMORY >> 20}M', '-nodefaults',
                   '-display', 'none', '-chardev', f'socket,id=qmp,fd={end.fileno()}',
                   '-mon', 'chardev=qmp,mode=control', *words]
        print('$', *command, flush=True)
        with end:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                            pass_fds=[end.fileno()])
        self.lines = self.sock.makefile()
        self.call('qmp_capabilities')

    def call(self, command, **arguments):
        self.sock.sendall(json.dumps(
            {'execute': command, 'arguments': arguments}).encode() + b'\n')
        for line in self.lines:
            answer = json.loads(line)
            if 'error' in answer:
                sys.exit(f'{self.name}: {command}: {answer["error"]["desc"]}')
            if 'return' in answer:
                return answer['return']
        sys.exit(f'{self.name} ended during {command}')

    def status(self):
        return self.call('query-status')['status']

    def migration(self):
        """Return the state of the migration, and end if it has failed."""
        now = self.call('query-migrate')
        if now.get('status') in ('failed', 'cancelled'):
            sys.exit(f'{self.name}: the migration has {now["status"]}: {now}')
        return now

    def memory(self, start=0, size=MEMORY):
        path = os.path.abspath(f'{self.name}.memory')
        self.call('pmemsave', val=start, size=size, filename=path)
        with open(path, 'rb') as file:
            return file.read()

    def counters(self):
        memory = self.memory(COUNTERS.start, COUNTERS.stop - COUNTERS.start)
        return [int.from_bytes(memory[at:at + WORD], 'big')
                for at in range(0, len(memory), COUNTERS.step)]

    def quit(self):
        self.call('quit')
        status = self.process.wait(60)
        if status:
            sys.exit(f'{self.name} ended with status {status}')


def migrate(source, destination, address, capabilities):
    wanted = [{'capability': name, 'state': True} for name in capabilities]
    for side in (source, destination):
        side.call('migrate-set-capabilities', capabilities=wanted)
    destination.call('migrate-incoming', uri=f'rdma:{address}:{PORT}')
    source.call('migrate', uri=f'rdma:{address}:{PORT}')
    wait_for('migration', lambda: source.migration()['status'] == 'completed')
    wait_for('arrival', lambda: destination.migration()['status'] == 'completed')
    return source.migration()


def compare(image, want, have):
    """Compare the memory of the image, the source and the destination."""
    if without_counters(want)[PARAMETERS:IMAGE] != image[PARAMETERS:]:
        sys.exit('the source has other memory than the image')
    wrong = [at for at in range(0, MEMORY, 4096)
             if want[at:at + 4096] != have[at:at + 4096]]
    if wrong:
        sys.exit(f'{len(wrong)} of {MEMORY >> 12} pages differ on the destination, '
                 f'the first at {wrong[0]:#x}')


def run(qemus, address, capabilities):
    image = new_image()
    with open('image', 'wb') as file:
        file.write(image)
    # The destination has to start a program, which the migration overwrites.
    with open('other', 'wb') as file:
        file.write(image[:8])
    source = Qemu('source', '-kernel', 'image')
    qemus.append(source)
    destination = Qemu('destination', '-kernel', 'other', '-S', '-incoming', 'defer')
    qemus.append(destination)
    wait_for('guest that counts', lambda: all(source.counters()), 30)
    at_start = source.counters()
    done = migrate(source, destination, address, capabilities)
    print(json.dumps(done))
    states = source.status(), destination.status()
    if states != ('postmigrate', 'paused'):
        sys.exit(f'the source and the destination are {states}')

    compare(image, source.memory(), destination.memory())
    arrived = destination.counters()
    if done['ram']['dirty-sync-count'] < 2 or \
            any(new == old for old, new in zip(at_start, arrived)):
        sys.exit('the guest wrote nothing during the migration')
    destination.call('cont')
    wait_for('guest that continues', lambda: all(
        new != old for old, new in zip(arrived, destination.counters())), 30)
    source.quit()
    destination.quit()
    print('# figure memory', round(done['ram']['mbps'] / 8), 'MB/s')


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    qemus = []
    try:
        run(qemus, sys.argv[1], sys.argv[2:])
    finally:
        for qemu in qemus:
            qemu.process.kill()


if __name__ == '__main__':
    main()
