#!/usr/bin/env python3
"""What another user of the machine can do to a job on loopback, without its token: connect to every port, with
well-formed frames in the name of members and of the coordinator; hold many unfinished frames; and listen where the
coordinator was. Says what it was told; the job must not notice.

Use: attack.py connect TOKEN PID...        every port that these processes listen on
     attack.py hold HOST:PORT PID          many unfinished frames; how much memory the process took for them
     attack.py listen HOST:PORT TOKEN SECONDS
"""
import os
import random
import re
import socket
import struct
import sys
import time

COORDINATOR, AGENT, WORKER, CLOUD = 1, 2, 3, 4
GREETING = b"TMLINK01"


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def fixed(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<Q", value)


def frame(role: int, peer: int, body: int, content: bytes) -> bytes:
    message = field(1, 1) + fixed(2, 7) + field(3, role)
    if peer:
        message += field(4, peer)
    message += fixed(5, random.getrandbits(64) | 1) + varint(body << 3 | 2) + varint(len(content)) + content
    return struct.pack("<I", len(message)) + message


def hostile() -> list[bytes]:
    hello = fixed(2, 5) + varint(3 << 3 | 2) + varint(11) + b"127.0.0.1:9" + varint(1 << 3 | 2) + b"\5token"
    frames = [frame(role, peer, 10, hello) for role in (AGENT, WORKER, CLOUD) for peer in (1, 2, 3, 4)]
    frames += [frame(COORDINATOR, 0, body, content) for body, content in (
        (11, fixed(1, 9)), (13, b"\x0a\4away"), (17, b"\x0a\4stop"), (18, field(1, 99)), (33, field(1, 1) + field(4, 1)))]
    frames += [frame(WORKER, peer, 37, field(1, generation) + field(2, 1) + field(3, layer))
               for peer in (2, 9) for generation in (1, 2) for layer in (0, 3)]
    frames += [frame(WORKER, 2, 25, field(1, generation) + field(2, 1) + field(3, 1) + field(7, 64))
               for generation in (1, 2)]
    frames += [frame(AGENT, 3, 32, field(1, 1 << 40) + field(6, 1))]
    return frames


def ports_of(pids: list[str]) -> list[int]:
    sockets = set()
    for pid in pids:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                found = re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}"))
            except OSError:
                continue
            if found:
                sockets.add(found.group(1))
    ports = []
    for line in open("/proc/net/tcp", encoding="ascii").read().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and words[9] in sockets:
            ports.append(int(words[1].split(":")[1], 16))
    return ports


def read_all(connection: socket.socket) -> bytes:
    heard = b""
    try:
        while True:
            more = connection.recv(1 << 16)
            if not more:
                break
            heard += more
    except OSError:
        pass
    return heard


def connect(token: bytes, pids: list[str]) -> int:
    wrong = 0
    ports = ports_of(pids)
    for port in ports:
        for greets in (False, True):
            for number, words in enumerate(hostile()):
                try:
                    with socket.create_connection(("127.0.0.1", port), 2) as connection:
                        connection.settimeout(0.01 if number % 8 else 0.1)
                        if greets:
                            connection.sendall(GREETING + bytes(32))
                            read_some = connection.recv(72) if number % 8 == 0 else b""
                            connection.sendall((read_some[40:] or bytes(32)) + words)
                        else:
                            connection.sendall(words)
                        heard = read_all(connection)
                except OSError:
                    continue
                if len(heard) > 256 or token in heard:
                    print(f"port {port} answers {len(heard)} bytes", file=sys.stderr)
                    wrong += 1
    print(f"{len(ports)} ports, {wrong} answers")
    return 0 if ports and wrong == 0 else 1


def resident(pid: str) -> int:
    for line in open(f"/proc/{pid}/status", encoding="ascii"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


def hold(address: str, pid: str) -> int:
    host, port = address.rsplit(":", 1)
    before = resident(pid)
    held = []
    for _ in range(60):
        connection = socket.create_connection((host, int(port)), 5)
        connection.settimeout(1)
        try:
            connection.sendall(struct.pack("<I", 4 << 20) + bytes((4 << 20) - 1))
        except OSError:
            pass
        held.append(connection)
    grown = resident(pid) - before
    print(f"grown by {grown >> 20} MB")
    return 0 if grown < 40 << 20 else 1


def listen(address: str, token: bytes, seconds: float) -> int:
    host, port = address.rsplit(":", 1)
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((host, int(port)))
    server.listen(64)
    server.settimeout(0.2)
    end = time.monotonic() + seconds
    callers, most, leaked = 0, 0, False
    words = GREETING + bytes(64) + b"".join(hostile()[-100:])
    while time.monotonic() < end:
        try:
            connection, _ = server.accept()
        except OSError:
            continue
        callers += 1
        with connection:
            connection.settimeout(0.1)
            heard = b""
            try:
                heard = connection.recv(1 << 16)
                connection.sendall(words if callers % 2 else b"".join(hostile()))
            except OSError:
                pass
            heard += read_all(connection)
        most, leaked = max(most, len(heard)), leaked or token in heard
    print(f"{callers} callers, {most} bytes of one{', THE TOKEN' if leaked else ''}")
    return 0 if callers and most <= 40 and not leaked else 1


if __name__ == "__main__":
    what, rest = sys.argv[1], sys.argv[2:]
    if what == "connect":
        sys.exit(connect(rest[0].encode(), rest[1:]))
    if what == "hold":
        sys.exit(hold(rest[0], rest[1]))
    sys.exit(listen(rest[0], rest[1].encode(), float(rest[2])))
