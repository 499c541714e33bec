"""The leader holds an address that clients connect to, and gives it up once the next one has it.

A stock client does not notice that a connection leads nowhere while it waits for an answer. So a box that led keeps
the address until another one announces it, answers what is under way, and then ends the connections to it.

The kernel is given the address for some seconds at a time: a box that hangs or whose process was killed loses it by
itself. Needs CAP_NET_ADMIN for the address and CAP_NET_RAW for the announcement.
"""

import errno
import logging
import os
import socket
from collections.abc import Callable
from ipaddress import IPv4Address
from math import ceil
from typing import Final

import trio

from appliance.group.address.floating_frames import (
    ARP,
    FloatingAddress,
    address_message,
    advertises,
    arp_announcement,
    error_of,
    neighbour_advertisement,
    says_elsewhere,
)

log = logging.getLogger("appliance.group")
LIFETIME_S: Final = 3  # times `group.timing` where that is above 1: the next one leads after 2 to 4
AGAIN_S: Final = 0.5
PARTING_S, ANSWERED_S = 2.0, 1.0  # until somebody else has the address; until what is under way is answered
LOOK_S: Final = 0.05
ANNOUNCED: Final = 10  # times, half a second apart: a frame may be lost
ALL_NODES: Final = "ff02::1"
ANSWER_BYTES: Final = 4096


class Floating:
    """One address on one interface of this box."""

    def __init__(self, floating: FloatingAddress, scale: float = 1.0) -> None:
        """scale: `group.timing`."""
        self._floating, self._failure = floating, ""
        self._lifetime_s = ceil(LIFETIME_S * max(1.0, scale))
        self.address = floating.address
        self.held = False
        self._led = trio.Event()

    async def run(self, end: Callable[[bool], int]) -> None:
        """Give the address up after this box has led, until cancelled.

        `end(busy)` ends the connections to it, without `busy` only those that wait for nothing; it returns how many
        are left.
        """
        try:
            while True:
                await self._led.wait()
                self._led = trio.Event()
                with trio.move_on_after(PARTING_S):
                    await self._wait_taken()
                with trio.move_on_after(ANSWERED_S):
                    while not self.held and end(False):  # noqa: ASYNC110 an answer that is written is no event
                        await trio.sleep(LOOK_S)
                if self.held:
                    continue  # it leads again
                end(True)
                await trio.sleep(LOOK_S)  # the ends of connections leave from this address
                if not self.held:
                    self.give_up()
        finally:
            self.give_up()

    async def _wait_taken(self) -> None:
        """Return once another box announces the address; where that cannot be heard, after a moment."""
        try:
            with self._listening() as line:
                line.setblocking(False)
                while not self.held:
                    await trio.lowlevel.wait_readable(line)
                    if self._is_elsewhere(line):
                        return
        except OSError:
            await trio.sleep(ANSWERED_S)

    def _listening(self) -> socket.socket:
        """Return a socket that gets what neighbours announce. Raises OSError."""
        if isinstance(self.address, IPv4Address):
            line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ARP))
            line.bind((self._floating.interface, ARP))
            return line
        return socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)

    def _is_elsewhere(self, line: socket.socket) -> bool:
        data, address = line.recv(ANSWER_BYTES), self.address
        if isinstance(address, IPv4Address):
            return says_elsewhere(data, address, line.getsockname()[4])
        return advertises(data, address)

    async def hold(self) -> None:
        """Hold the address until cancelled, and for `run` to give up; what fails is told once and tried again."""
        rounds = 0
        try:
            while True:
                rounds = self._renew(rounds)
                await trio.sleep(AGAIN_S)
        finally:
            self.held = False
            self._led.set()

    def _renew(self, rounds: int) -> int:
        """Renew the address, in the first rounds announce it; return how many rounds it has been held."""
        try:
            self._ask(self._lifetime_s)
            if rounds < ANNOUNCED:
                self._announce()
        except OSError as exc:
            self.held = False
            self._note(exc)
            return 0
        self.held, self._failure = True, ""
        return rounds + 1

    def give_up(self) -> None:
        """Take the address away from the interface if it is there."""
        try:
            self._ask(0)
        except OSError as exc:
            if exc.errno not in (errno.EADDRNOTAVAIL, errno.ENODEV, errno.EPERM):
                self._note(exc)

    def _note(self, exc: OSError) -> None:
        if str(exc) != self._failure:
            self._failure = str(exc)
            step = (
                "the unit needs CAP_NET_ADMIN and CAP_NET_RAW" if exc.errno == errno.EPERM else "look at the interface"
            )
            text = "event=address_not_held address=%s interface=%s reason=%r next_step=%r"
            log.error(text, self._floating.address, self._floating.interface, str(exc), step)

    def _ask(self, lifetime_s: int) -> None:
        """Have the kernel add the address, renew it or take it away. Raises OSError."""
        index = socket.if_nametoindex(self._floating.interface)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
            kernel.settimeout(AGAIN_S)
            kernel.send(address_message(self._floating, index, lifetime_s=lifetime_s))
            answer = kernel.recv(ANSWER_BYTES)
        try:
            code = error_of(answer)
        except ValueError as exc:
            raise OSError(errno.EPROTO, f"the kernel answered with {exc}") from exc
        if code:
            raise OSError(code, os.strerror(code))

    def _announce(self) -> None:
        """Tell the neighbours where the address is now. Raises OSError."""
        address, interface = self._floating.address, self._floating.interface
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as line:
            line.bind((interface, 0))
            mac: bytes = line.getsockname()[4]  # also where /sys shows another network
            if isinstance(address, IPv4Address):
                line.send(arp_announcement(address, mac))
                return
        with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as line:
            index = socket.if_nametoindex(interface)
            line.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
            line.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
            line.bind((str(address), 0, 0, index))
            line.sendto(neighbour_advertisement(address, mac), (ALL_NODES, 0, 0, index))
