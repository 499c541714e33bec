"""What the commands that talk to a cluster share: where it is, who asks, messages as JSON, errors as exit codes."""

import argparse
import base64
import binascii
import json
import os
import signal
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import trio

from appliance.access.local_credentials import own_key
from appliance.admin import NAME as SOCKET
from appliance.commands.box.status import health_path, running_ports
from appliance.commands.contexts import Context, chosen
from netstack.client import (
    BodyUnreadable,
    BrokerRefused,
    ClientError,
    Credentials,
    Instance,
    Message,
    ReceivedMessage,
    SendResult,
)
from netstack.serving.tls import client_context

DEFAULT_NAMESRV = "127.0.0.1:9876"
OK, FAILED, USAGE, NOTHING = 0, 1, 2, 3
INTERRUPTED = 130
PROGRESS_S = 1.0


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the cluster is and how to get in."""
    cluster = parser.add_argument_group("cluster and account")
    cluster.add_argument(
        "--namesrv",
        metavar="HOST:PORT[;…]",
        help=f"NameServers (default: context, NAMESRV_ADDR, the box on this machine, {DEFAULT_NAMESRV})",
    )
    cluster.add_argument("--context", metavar="NAME", help="one of `rocketbox context list`")
    cluster.add_argument("--access-key", metavar="NAME", help="account; its secret is read from ROCKETMQ_SECRET_KEY")
    cluster.add_argument("--tls-ca", type=Path, metavar="FILE", help="use TLS and trust this CA")
    cluster.add_argument("--data", type=Path, metavar="DIR", help="data folder of the box on this machine")


def open_instance(arguments: argparse.Namespace) -> Instance:
    """Return the client that the arguments describe. Raises ClientError."""
    context = chosen(arguments.context) if not arguments.namesrv or arguments.context else None
    namesrv = arguments.namesrv or (context.namesrv if context else os.environ.get("NAMESRV_ADDR") or _here(arguments))
    account, tls = _account(arguments, context), _tls(arguments.tls_ca, context)
    if account is None and tls is None and _is_here(namesrv):
        account, tls = _own_way(arguments)
    return Instance(namesrv, credentials=account, tls=tls)


def _here(arguments: argparse.Namespace) -> str:
    """Return the NameServer of the box on this machine, at the port it took."""
    port = running_ports(arguments).get("listen.namesrv_port")
    return f"127.0.0.1:{port}" if port else DEFAULT_NAMESRV


def _account(arguments: argparse.Namespace, context: Context | None) -> Credentials | None:
    if arguments.access_key:
        secret = os.environ.get("ROCKETMQ_SECRET_KEY")
        if not secret:
            raise ClientError("--access-key needs the secret in the environment variable ROCKETMQ_SECRET_KEY")
        return Credentials(arguments.access_key, secret)
    return Credentials(context.access_key, context.secret) if context and context.access_key else None


def _tls(trust: Path | None, context: Context | None) -> ssl.SSLContext | None:
    trust = trust or (Path(context.tls_ca) if context and context.tls_ca else None)
    if trust is None:
        return None
    try:
        made = ssl.create_default_context(cafile=trust)
        if context and context.tls_cert:
            made.load_cert_chain(context.tls_cert, context.tls_key or None)
    except OSError as error:
        why = error.strerror or str(error)
        raise ClientError(f"the certificates for TLS cannot be read: {error.filename or trust}: {why}") from error
    return made


def _is_here(namesrv: str) -> bool:
    return all(each.strip().startswith(("127.", "localhost:", "[::1]")) for each in namesrv.split(";"))


def _own_way(arguments: argparse.Namespace) -> tuple[Credentials | None, ssl.SSLContext | None]:
    """Return the key that the box on this machine gives to whoever may open its socket, and TLS if it is required."""
    said = own_key(health_path(arguments).with_name(SOCKET))
    if said is None:
        return None, None
    return Credentials(str(said["key"]), str(said["secret"])), client_context() if said.get("tls") else None


def raise_refusal(refused: BrokerRefused, group: str) -> NoReturn:
    """Raise a refusal, as a ClientError that names `--group` where the key lacks the right for this group."""
    if f"group:{group}".lower() not in (refused.remark or "").lower():
        raise refused
    text = f"the key may not consume as group {group}; name a group that it may use with --group. {refused}"
    raise ClientError(text) from refused


def run_command(main: Callable[[argparse.Namespace], Awaitable[int]], arguments: argparse.Namespace) -> int:
    """Run a command's body; failures become one line on stderr and an exit code."""
    try:
        return trio.run(_interruptible, main, arguments)
    except (ClientError, BrokenPipeError, ExceptionGroup) as error:
        failures = list(_leaves(error))
        if not all(isinstance(failure, (ClientError, BrokenPipeError)) for failure in failures):
            raise
    if any(isinstance(failure, BrokenPipeError) for failure in failures):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # who read our output has gone
        return OK
    print(f"rocketbox: {failures[0]}", file=sys.stderr)
    return FAILED


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Return the error, or what is inside a group of errors."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


async def _interruptible(main: Callable[[argparse.Namespace], Awaitable[int]], arguments: argparse.Namespace) -> int:
    """Run the body; SIGINT and SIGTERM cancel it, so that it leaves its groups and persists its offsets."""
    token = trio.lowlevel.current_trio_token()
    with trio.CancelScope() as scope:
        before = {
            number: signal.signal(number, lambda *_: token.run_sync_soon(scope.cancel))
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            return await main(arguments)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return INTERRUPTED


def print_json(row: Mapping[str, Any]) -> None:
    """Print one object per line."""
    print(json.dumps(row, ensure_ascii=False), flush=True)


def body_fields(body: bytes) -> dict[str, Any]:
    """Return the body as text where it is UTF-8, else in base64."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def message_row(message: ReceivedMessage) -> dict[str, Any]:
    """Return what is printed of a received message; `read_message` takes it back."""
    try:
        body = body_fields(message.body)
    except BodyUnreadable as error:
        body = {"body_base64": base64.b64encode(message.stored_body).decode(), "unreadable": str(error)}
    hidden = ("UNIQ_KEY", "TAGS", "KEYS", "WAIT", "MIN_OFFSET", "MAX_OFFSET")
    return {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "id": message.message_id,
        "tags": message.tags,
        "keys": message.keys,
        "born_ms": message.born_ms,
        "stored_ms": message.stored_ms,
        "reconsume_times": message.reconsume_times,
        "properties": {name: value for name, value in message.properties.items() if name not in hidden},
        **body,
    }


def result_row(result: SendResult) -> dict[str, Any]:
    """Return what is printed of a send."""
    row = {
        "status": result.status,
        "id": result.message_id,
        "offset_id": result.offset_message_id,
        "topic": result.queue.topic,
        "broker": result.queue.broker_name,
        "queue": result.queue.queue_id,
        "offset": result.queue_offset,
    }
    return row | ({"recall_handle": result.recall_handle} if result.recall_handle else {})


def read_message(line: str, topic: str) -> Message:
    """Return the message that a line of JSON describes: an object with `body` or `body_base64`. Raises ClientError."""
    try:
        row = json.loads(line)
        body = base64.b64decode(row["body_base64"]) if "body_base64" in row else row["body"].encode()
        properties = {str(name): str(value) for name, value in row.get("properties", {}).items()}
        return Message(
            topic,
            body,
            tags=str(row.get("tags") or ""),
            keys=str(row.get("keys") or ""),
            properties=properties,
            delay_level=int(row.get("delay_level") or 0),
            delay_ms=int(row.get("delay_ms") or 0),
        )
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        shown = line.strip()[:60]
        raise ClientError(f"not a message: {shown!r} ({error}); expected an object with body or body_base64") from error


class ProgressLine:
    """One line on stderr about long work: written over on a terminal, else every ten seconds."""

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        self._what, self._quiet = what, quiet
        self._terminal = sys.stderr.isatty()
        self._began = self._shown = time.monotonic()
        self.count = self.failed = 0

    def add(self, number: int = 1) -> None:
        self.count += number
        now = time.monotonic()
        if now - self._shown >= (PROGRESS_S if self._terminal else 10 * PROGRESS_S):
            self._shown = now
            self._show("\r\033[K" if self._terminal else "", "" if self._terminal else "\n")

    def _show(self, before: str, after: str) -> None:
        if not self._quiet:
            seconds = max(1e-9, time.monotonic() - self._began)
            failed = f", {self.failed:,} failed" if self.failed else ""
            text = (
                f"{before}{self.count:,} {self._what} in {seconds:.1f} s, {self.count / seconds:,.0f}/s{failed}{after}"
            )
            print(text, end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Show the final figures, if there was any line before or much to tell."""
        if self.count > 1 or self.failed:
            self._show("\r\033[K" if self._terminal else "", "\n")
