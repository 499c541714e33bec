"""Asks a broker again and again, one line per answer: seconds since the start, `ok` or what went wrong."""

import socket
import struct
import sys
import time

FIELDS = b'{"topic":"RBX_PROBE","queueId":"0"}'
ASK = b'{"code":30,"flag":0,"language":"PYTHON","opaque":%d,"version":409,"extFields":' + FIELDS + b"}"


def ask(number: int, timeout_s: float) -> str:
    header = ASK % number
    frame = struct.pack(">II", 4 + len(header), len(header)) + header
    with socket.create_connection(("127.0.0.1", 10911), timeout_s) as line:
        line.settimeout(timeout_s)
        line.sendall(frame)
        return "ok" if line.recv(65536) else "closed"


def main(seconds: float, timeout_s: float) -> None:
    began, number = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        number += 1
        sent = time.monotonic() - began
        try:
            said = ask(number, timeout_s)
        except OSError as exc:
            said = type(exc).__name__
        print(f"{sent:.3f} {time.monotonic() - began:.3f} {said}", flush=True)
        time.sleep(0.02)


main(float(sys.argv[1]), float(sys.argv[2]))
