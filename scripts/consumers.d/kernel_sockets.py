#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""kernel_sockets.py rds ADDRESS ADDRESS2: exchange messages by RDS.
kernel_sockets.py smc-set-up DEVICE NETDEV: tell SMC which device reaches the peers
of a netdev, and give the machine an EID.
kernel_sockets.py smc ADDRESS: exchange a stream by SMC.
kernel_sockets.py rds-across ADDRESS ADDRESS2 FILE: exchange messages by RDS until
FILE exists, and for 20 messages after that. FILE is made after the device was
deleted and added again.
kernel_sockets.py smc-until-reset ADDRESS: send a stream by SMC until it is reset.

Data is verified. Python knows neither family, but their addresses are those of IPv4.
"""
import ctypes
import hashlib
import os
import random
import socket
import struct
import sys
import threading
import time

AF_RDS, AF_SMC = 21, 43


def open_socket(family, kind):
    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.socket(family, kind, 0)
    if number < 0:
        raise OSError(ctypes.get_errno(), 'socket()')
    sock = socket.socket(socket.AF_INET, kind, 0, fileno=number)
    sock.settimeout(60)
    return sock


def rds_ends(one, two):
    ends = []
    for address in (one, two):
        sock = open_socket(AF_RDS, socket.SOCK_SEQPACKET)
        sock.bind((address, 4791))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        ends.append((sock, address))
    return ends


def rds(one, two):
    ends = rds_ends(one, two)
    total, start = 0, time.monotonic()
    for size in (1, 100, 4096, 4097, 65536, 131072) * 10:
        for (here, _), (there, address) in (ends, ends[::-1]):
            data = random.randbytes(size)
            here.sendto(data, (address, 4791))
            got = there.recv(size)
            if got != data:
                sys.exit(f'a message of {size} bytes arrives with other bytes')
            total += size
    seconds = time.monotonic() - start
    print(f'# figure message-bytes {total / seconds / 2**20:.1f} MiB/s')


def rds_across(one, two, file):
    """RDS sends a message again over a new connection, so none is lost."""
    (here, _), (there, address) = rds_ends(one, two)
    after = number = 0
    while after < 20:
        after += os.path.exists(file)
        data = number.to_bytes(8, 'little') + random.randbytes(20000)
        here.sendto(data, (address, 4791))
        if there.recv(len(data)) != data:
            sys.exit(f'message {number} arrives with other bytes')
        number += 1
    print(f'{number} messages, all in order')


def attribute(kind, data):
    return struct.pack('HH', len(data) + 4, kind) + data + bytes(-len(data) % 4)


class Netlink:
    """A generic netlink socket for one family."""

    def __init__(self, family):
        self.sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
        self.family = 16
        # CTRL_CMD_GETFAMILY with CTRL_ATTR_FAMILY_NAME
        answer = self.call(3, 1, attribute(2, family.encode() + b'\0'))
        at = 20
        while at < len(answer):
            size, kind = struct.unpack_from('HH', answer, at)
            if kind == 1:
                self.family = struct.unpack_from('H', answer, at + 4)[0]
            at += (size + 3) & ~3

    def call(self, command, version, attributes):
        body = struct.pack('BBxx', command, version) + attributes
        # NLM_F_REQUEST | NLM_F_ACK
        self.sock.send(struct.pack('IHHII', len(body) + 16, self.family, 5, 1, 0)
                       + body)
        answer = b''
        while True:
            got = self.sock.recv(65536)
            kind = struct.unpack_from('H', got, 4)[0]
            if kind != 2:
                answer = got
                continue
            error = struct.unpack_from('i', got, 16)[0]
            if error:
                raise OSError(-error, f'{os.strerror(-error)}: command {command}')
            return answer


def smc_set_up(device, netdev):
    # SMC_PNETID_ADD and its attributes: name, Ethernet name, IB name, port
    pnet = Netlink('SMC_PNETID')
    name = attribute(1, b'KEEL\0')
    pnet.call(2, 1, name + attribute(2, netdev.encode() + b'\0'))
    pnet.call(2, 1, name + attribute(3, device.encode() + b'\0') +
              attribute(4, b'\1'))
    # SMC_NETLINK_ADD_UEID
    name = b'KEEL.CONSUMERS'.ljust(32) + b'\0'
    Netlink('SMC_GEN_NETLINK').call(10, 1, attribute(1, name))


def smc_listener(address):
    listener = open_socket(AF_SMC, socket.SOCK_STREAM)
    listener.bind((address, 4792))
    listener.listen()
    listener.setblocking(True)
    return listener


def smc_accept(listener):
    """accept() of Python would ask for the family of the new socket."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.accept4(listener.fileno(), None, None, 0)
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=number)


def smc_until_reset(address):
    listener = smc_listener(address)
    sock = open_socket(AF_SMC, socket.SOCK_STREAM)
    sock.connect((address, 4792))
    peer = smc_accept(listener)
    peer.settimeout(60)
    ended = []

    def receive():
        try:
            while peer.recv(1 << 16):
                pass
        except OSError as error:
            ended.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    try:
        while True:
            sock.sendall(bytes(1 << 16))
    except ConnectionError as error:
        print(f'the sender ends: {error}')
    thread.join()
    # ECONNRESET or ENOTCONN, but neither a timeout nor the end of the stream.
    if not ended or isinstance(ended[0], TimeoutError):
        sys.exit(f'the receiver got no error: {ended}')
    print(f'the receiver ends: {ended[0]}')


def smc(address):
    data = random.randbytes(1 << 20)
    rounds = 32
    listener = smc_listener(address)

    # The peer answers with a checksum. It must not send the data back: an error
    # that changes a byte in both directions could undo itself.
    def receive():
        peer = smc_accept(listener)
        received = hashlib.sha256()
        while got := peer.recv(1 << 18):
            received.update(got)
        peer.sendall(received.digest())
        peer.close()

    thread = threading.Thread(target=receive)
    thread.start()
    sock = open_socket(AF_SMC, socket.SOCK_STREAM)
    sock.connect((address, 4792))

    start = time.monotonic()
    for _ in range(rounds):
        sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)
    answer = sock.recv(32)
    seconds = time.monotonic() - start
    thread.join()
    sock.close()
    if answer != hashlib.sha256(data * rounds).digest():
        sys.exit('other bytes arrive than those that were sent')
    print(f'# figure stream {rounds / seconds:.1f} MiB/s')


def main():
    match sys.argv[1:]:
        case ['rds', one, two]:
            rds(one, two)
        case ['rds-across', one, two, file]:
            rds_across(one, two, file)
        case ['smc-until-reset', address]:
            smc_until_reset(address)
        case ['smc-set-up', device, netdev]:
            smc_set_up(device, netdev)
        case ['smc', address]:
            smc(address)
        case _:
            sys.exit(__doc__)


if __name__ == '__main__':
    main()
