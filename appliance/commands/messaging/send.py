"""`rocketbox send`: messages from the command line or as JSON lines from stdin; exit 0 when all were acknowledged."""

import argparse
import io
import sys
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace

import trio

from appliance.commands.messaging.cluster import (
    FAILED,
    OK,
    ProgressLine,
    add_cluster_arguments,
    open_instance,
    print_json,
    read_message,
    result_row,
    run_command,
)
from netstack.client import ClientError, Message, Pending, Producer, ProducerOptions
from netstack.client.text import hashed_position
from uplink_spark.bounds import amount, whole

MOST_TEXTS = 10  # different errors that are told


class Complaints:
    """What went wrong: each text is told when it comes first, and at the end how often it came."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._others = 0

    def note(self, error: ClientError) -> None:
        """Take an error of one message."""
        text = str(error)
        if text in self._counts:
            self._counts[text] += 1
        elif len(self._counts) < MOST_TEXTS:
            self._counts[text] = 1
            print(f"rocketbox: {text}", file=sys.stderr)
        else:
            self._others += 1

    def end(self) -> None:
        """Tell how often the errors came that came again."""
        for text, count in self._counts.items():
            if count > 1:
                print(f"rocketbox: {count:,} messages failed so: {text}", file=sys.stderr)
        if self._others:
            print(f"rocketbox: {self._others:,} more failed in other ways", file=sys.stderr)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.epilog = "Without BODY, stdin is read: one message per line, with --json one JSON object per line."
    parser.add_argument("topic")
    parser.add_argument("body", nargs="?", help="text of one message; @FILE sends a file's bytes")
    parser.add_argument(
        "--json", action="store_true", help="lines of stdin are objects: body, tags, keys, properties …"
    )
    parser.add_argument("--tags", default="")
    parser.add_argument("--keys", default="", help="blank-separated keys, to find the message")
    parser.add_argument("--property", type=_property, action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--order-key", metavar="KEY", help="send to the queue of this key")
    delays = parser.add_mutually_exclusive_group()
    delays.add_argument("--delay-level", type=_level, default=0, metavar="1..18")
    delays.add_argument("--delay-ms", type=whole(0), default=0, metavar="MS")
    parser.add_argument("--oneway", action="store_true", help="do not wait for acknowledgements")
    parser.add_argument("--group", default="rocketbox_send")
    parser.add_argument("--timeout", type=amount(), default=10.0, metavar="S", help="per message (default: 10)")
    parser.add_argument("--window", type=whole(1), default=256, help="sends in flight (default: 256)")
    parser.add_argument("--quiet", action="store_true", help="print neither results nor progress")
    add_cluster_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Send; return 0, or 1 when any message was not acknowledged."""
    return run_command(_main, arguments)


async def _main(arguments: argparse.Namespace) -> int:
    options = ProducerOptions(timeout_s=arguments.timeout, window=arguments.window)
    progress, complaints = ProgressLine("messages sent", quiet=arguments.quiet), Complaints()
    under_way: deque[Pending] = deque()
    async with (
        open_instance(arguments) as instance,
        Producer(arguments.group, instance=instance, options=options) as producer,
    ):
        async for message in _messages(arguments):
            try:
                if arguments.oneway:
                    await producer.send_oneway(message)
                    progress.add()
                    continue
                queue = None
                if arguments.order_key is not None:
                    queues = await producer.queues(message.topic)
                    queue = queues[hashed_position(arguments.order_key, len(queues))]
                under_way.append(await producer.submit(message, queue=queue))
            except ClientError as error:
                progress.failed += 1
                complaints.note(error)
                if not progress.count and not under_way:
                    break  # the first one failed at once: the rest would as well
            while under_way and under_way[0].done:
                await _note(under_way.popleft(), progress, complaints, quiet=arguments.quiet)
        while under_way:
            await _note(under_way.popleft(), progress, complaints, quiet=arguments.quiet)
    complaints.end()
    if not arguments.quiet:
        progress.end()
    return FAILED if progress.failed else OK


async def _note(pending: Pending, progress: ProgressLine, complaints: Complaints, *, quiet: bool) -> None:
    try:
        result = await pending.wait()
    except ClientError as error:
        progress.failed += 1
        complaints.note(error)
    else:
        progress.add()
        if not quiet:
            print_json(result_row(result))


async def _messages(arguments: argparse.Namespace) -> AsyncIterator[Message]:
    """Return what is to be sent. Raises ClientError for a line that is no message."""
    like = Message(
        arguments.topic,
        b"",
        tags=arguments.tags,
        keys=arguments.keys,
        properties=dict(arguments.property),
        delay_level=arguments.delay_level,
        delay_ms=arguments.delay_ms,
    )
    if arguments.body is not None:
        yield replace(like, body=_body(arguments.body))
        return
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # a body may be any bytes
    while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        if arguments.json:
            read = read_message(line, arguments.topic)
            yield replace(
                read,
                tags=read.tags or like.tags,
                keys=read.keys or like.keys,
                properties={**like.properties, **read.properties},
                delay_level=read.delay_level or like.delay_level,
                delay_ms=read.delay_ms or like.delay_ms,
            )
        elif line.strip():
            yield replace(like, body=line.rstrip("\r\n").encode("utf-8", "surrogateescape"))


def _body(text: str) -> bytes:
    if not text.startswith("@"):
        return text.encode("utf-8", "surrogateescape")
    try:
        with open(text[1:], "rb") as file:
            return file.read()
    except OSError as error:
        raise ClientError(f"{text[1:]}: {error.strerror}") from error


def _level(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a level: 1 (1 s) to 18 (2 h); any other delay: --delay-ms")
    return int(text)


def _property(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
