"""The file of accounts, and the box's own key: `<data>/access/accounts.json`, mode 0600, replaced atomically.

Commands write the file, the box looks at it every five seconds; what cannot be read leaves the accounts in force that
were there before. The own key is made at each start, held in memory, good from this machine alone, and told to whoever
may open admin.sock.
"""

import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import trio

from appliance.access.private_file import replace_private
from appliance.admin import AdminRequest
from appliance.broker.access.accounts import WHITE_LISTED, Account, AccountError, Accounts, check_signature
from appliance.broker.access.permissions import Asker, Denied
from netstack.wire.acl import ACCESS_KEY, sign
from netstack.wire.command import RemotingCommand
from storage_driver.named_tuple import NamedTuple

FILE = "access/accounts.json"
LOOK_S = 5.0
OWN_KEY = "rocketbox-own"
log = logging.getLogger("appliance.access")


def accounts_path(data: Path, named: str = "") -> Path:
    """Return the file that `access.accounts` names, or the one in the data folder."""
    return Path(named) if named else data / FILE


def load_accounts(path: Path) -> Accounts:
    """Return the accounts of a file, none where there is no file. Raises AccountError, OSError."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return Accounts()
    try:
        return Accounts.from_object(json.loads(raw.decode()))
    except (ValueError, RecursionError) as exc:
        raise AccountError(f"{path}: {exc}") from exc


@contextmanager
def changing(path: Path) -> Iterator[Callable[[Accounts], None]]:
    """Keep other commands out and yield what replaces the file. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lambda accounts: replace_private(path, json.dumps(accounts.to_object(), indent=1))
    finally:
        os.close(lock)


class AccessStatistics(NamedTuple):
    """How many keys there are, how often they changed, and why the file on disk is not in force, or empty."""

    accounts: int
    reloads: int
    failure: str
    denied: int


class Keys:
    """The accounts in force: the `account_of` of the permissions, and the own key."""

    def __init__(self, path: Path, *, now_ms: Callable[[], int]) -> None:
        """Raises nothing: a damaged file leaves the box without accounts, which is the safe side."""
        self.path, self._now_ms = path, now_ms
        self.accounts, self._reloads, self._denied, self._failure = Accounts(), 0, 0, ""
        self._seen: tuple[int, ...] | None = None
        self.own = Account(OWN_KEY, os.urandom(32).hex(), admin=True)
        self.check()

    def __call__(self, request: RemotingCommand, peer: Asker) -> Account | None:
        """Return who signed a request, None for nobody. Raises Denied."""
        try:
            if request.ext.get(ACCESS_KEY) == OWN_KEY:
                return self._own_signed(request, peer)
            return self.accounts.signer(request, peer.remote[0], self._now_ms)
        except Denied:
            self._denied += 1
            raise

    def proven(self, name: str, peer: Asker, proves: Callable[[str], bool]) -> Account:
        """Return the account of a name that its secret proves, whatever was signed with it. Raises Denied."""
        try:
            return self.accounts.proven(name, peer.remote[0], proves, self._now_ms)
        except Denied:
            self._denied += 1
            raise

    def white_listed(self, address: str) -> Account | None:
        """Return the account that stands for an address without a key, None where there is none."""
        return WHITE_LISTED if self.accounts.from_white(address) else None

    def _own_signed(self, request: RemotingCommand, peer: Asker) -> Account:
        if not ip_address(peer.remote[0].partition("%")[0]).is_loopback and peer.remote[0] != peer.local[0]:
            raise Denied(f"No acl config for {OWN_KEY}")
        check_signature(request, self.own, self._now_ms)
        return self.own

    def sign(self, command: RemotingCommand) -> RemotingCommand:
        """Sign a request of the box to itself, and return it."""
        sign(command, self.own.name, self.own.secret)
        return command

    async def run(self) -> None:
        """Take up a changed file until cancelled."""
        while True:
            await trio.sleep(LOOK_S)
            if await trio.to_thread.run_sync(_stamp, self.path) != self._seen:
                await trio.to_thread.run_sync(self.check)

    def check(self) -> bool:
        """Look at the file once; True when new accounts have come into force. Blocks for one small file."""
        seen = _stamp(self.path)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            self.accounts = load_accounts(self.path)
        except (AccountError, OSError) as exc:
            self._failure = str(exc)
            log.error(
                "event=accounts_unusable reason=%r next_step=fix_the_file_the_previous_keys_stay_in_use", self._failure
            )
            return False
        self._failure, self._reloads = "", self._reloads + 1
        if seen and seen[3] & 0o077:
            log.warning("event=accounts_readable_by_others path=%s next_step=chmod_600", self.path)
        if seen:
            log.info("event=accounts_loaded accounts=%d", len(self.accounts.keys))
        return True

    def change(self, changed: Callable[[Accounts], Accounts]) -> None:
        """Replace the file by what `changed` makes of it, and use it at once. Blocks. Raises AccountError, OSError."""
        with changing(self.path) as replace:
            now = load_accounts(self.path)
            made = changed(now)
            replace(Accounts(made.keys, made.white, now.version + 1, self._now_ms()))
        self.check()

    def statistics(self) -> AccessStatistics:
        return AccessStatistics(len(self.accounts.keys), self._reloads, self._failure, self._denied)

    def actions(self, said: Mapping[str, object]) -> dict[str, Callable[[AdminRequest], Any]]:
        """Return what admin.sock may ask: the own key with what else is said of the doors, and to look at the file."""

        async def own(question: AdminRequest) -> object:
            await trio.lowlevel.checkpoint()
            return {**said, "key": self.own.name, "secret": self.own.secret}

        async def reload(question: AdminRequest) -> object:
            await trio.to_thread.run_sync(self.check)
            return {"accounts": len(self.accounts.keys), "failure": self._failure}

        return {"access.own": own, "access.reload": reload}


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        seen = path.stat()
    except OSError:
        return ()
    return (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_mode & 0o777)
