"""Remoting frames by hand, for what no client sends: lies, and a topic made before a client that cannot make one."""

import json
import socket
import struct

FIXED = {"flag": 0, "language": "JAVA", "opaque": 1, "serializeTypeCurrentRPC": "JSON", "version": 409}


def frame(header: bytes, body: bytes = b"", *, kind: int = 0, header_length: int | None = None) -> bytes:
    """Return one remoting frame, or one that lies about its header."""
    length = len(header) if header_length is None else header_length
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | length) + header + body


def command(code: int, **ext: str) -> bytes:
    """Return the JSON header of a request."""
    return json.dumps({"code": code, **FIXED, "extFields": ext}).encode()


def what_comes_back(connection: socket.socket) -> bytes:
    """Return one answer, or what there is of it when the other side closes."""
    received = b""
    try:
        while len(received) < 8 or len(received) < 4 + struct.unpack(">i", received[:4])[0]:
            chunk = connection.recv(65536)
            if not chunk:
                break
            received += chunk
    except ConnectionResetError:
        pass
    return received


def answered_code(received: bytes) -> int:
    length = struct.unpack(">I", received[4:8])[0] & 0xFFFFFF
    return int(json.loads(received[8 : 8 + length])["code"])


def make_topic(broker: str, topic: str, queues: int = 4, attributes: str = "") -> None:
    """Create a topic by UPDATE_AND_CREATE_TOPIC (17), as an administrator would."""
    host, port = broker.split(":")
    numbers = {"readQueueNums": str(queues), "writeQueueNums": str(queues), "perm": "6", "topicSysFlag": "0"}
    more = {"topicFilterType": "SINGLE_TAG", "order": "false", "defaultTopic": "TBW102"}
    more |= {"attributes": attributes} if attributes else {}
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(frame(command(17, topic=topic, **numbers, **more)))
        answer = what_comes_back(connection)
        assert answered_code(answer) == 0, answer


def make_group(broker: str, group: str) -> None:
    """Create a consumer group by UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)."""
    host, port = broker.split(":")
    body = f'{{"groupName":"{group}","consumeEnable":true,"retryQueueNums":1,"retryMaxTimes":16}}'.encode()
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(frame(command(200), body))
        assert answered_code(what_comes_back(connection)) == 0


def route(namesrv: str, topic: str) -> bytes:
    """Return a NameServer's whole answer about a topic (105); nothing when it does not answer."""
    host, port = namesrv.split(":")
    try:
        with socket.create_connection((host, int(port)), 5) as connection:
            connection.sendall(frame(command(105, topic=topic)))
            return what_comes_back(connection)
    except OSError:
        return b""
