"""A connection over TCP notices a peer that has vanished; a socket of another family is left as it is."""

import socket

import trio

from netstack.serving.socket_options import TIMES, set_options


async def test_a_connection_over_tcp_has_them_all() -> None:
    with trio.socket.socket() as sock:
        set_options(sock)
        options = {name: sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in TIMES}
        assert options == TIMES
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


async def test_a_socket_of_this_machine_has_none() -> None:
    one, other = trio.socket.socketpair()
    with one, other:
        set_options(one)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
