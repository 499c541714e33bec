"""Apache's account commands: 50 put, 51 delete, 52 version, 53 white list, 54 everything but the secrets.

Source: RocketMQ 4.9.8 AdminBrokerProcessor, PlainPermissionManager.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import trio

from appliance.broker.access.accounts import DENY, Account, AccountError, Accounts, perm_of, word_of
from appliance.broker.rights import Perm
from appliance.requests import AsyncReply, Handle, Reply, RequestPeer
from netstack.errors import Refused
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.headers_admin import AclAccountHeader, AclVersionReply, DeleteAclHeader, WhiteAddressesHeader
from netstack.wire.json_body import encode

MASK = "******"


class AccountFile(Protocol):
    """The accounts in force and what changes their file."""

    accounts: Accounts
    path: Path

    def change(self, changed: Callable[[Accounts], Accounts]) -> None: ...


class AccountAdmin:
    """Handles account commands; the permissions were checked before."""

    def __init__(self, keys: AccountFile, *, broker: str, cluster: str, address: str) -> None:
        self._keys, self._broker, self._cluster, self._address = keys, broker, cluster, address

    def handlers(self) -> dict[int, Handle]:
        """Return request code -> handler."""
        code = RequestCode
        return {
            code.UPDATE_AND_CREATE_ACL_CONFIG: self.handle_put,
            code.DELETE_ACL_CONFIG: self.handle_delete,
            code.GET_BROKER_CLUSTER_ACL_INFO: self.handle_version,
            code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.handle_white,
            code.GET_BROKER_CLUSTER_ACL_CONFIG: self.handle_everything,
        }

    def handle_put(self, request: RemotingCommand, peer: RequestPeer) -> AsyncReply:
        """50: fields that are missing keep their value in an existing account."""
        asked = AclAccountHeader.from_ext(request.ext)
        failed = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        return self._changing(request, lambda now: now.changed(now.changed_ms, put=[_merged(now, asked)]), failed)

    def handle_delete(self, request: RemotingCommand, peer: RequestPeer) -> AsyncReply:
        """51."""
        name = DeleteAclHeader.from_ext(request.ext).access_key

        def dropped(now: Accounts) -> Accounts:
            if name not in now.keys:
                raise AccountError(f"no account {name}")
            return now.changed(now.changed_ms, drop=[name])

        return self._changing(request, dropped, ResponseCode.DELETE_ACL_CONFIG_FAILED)

    def handle_white(self, request: RemotingCommand, peer: RequestPeer) -> AsyncReply:
        """53: the addresses that need no key for data."""
        white = [each for each in WhiteAddressesHeader.from_ext(request.ext).global_white_addrs.split(",") if each]

        def listed(now: Accounts) -> Accounts:
            return Accounts.from_object({**now.to_object(), "white": white})

        return self._changing(request, listed, ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED)

    def handle_version(self, request: RemotingCommand, peer: RequestPeer) -> Reply:
        """52."""
        now = self._keys.accounts
        version = encode({"counter": now.version, "timestamp": now.changed_ms}).decode()
        files = encode({str(self._keys.path): {"counter": now.version, "timestamp": now.changed_ms}}).decode()
        return Reply(
            request.reply(ext=AclVersionReply(version, self._broker, self._address, self._cluster, files).to_ext())
        )

    def handle_everything(self, request: RemotingCommand, peer: RequestPeer) -> Reply:
        """54, secrets masked."""
        now = self._keys.accounts
        rows = [_as_apache(account) for _, account in sorted(now.keys.items())]
        return Reply(request.reply(body=encode({"globalWhiteAddrs": list(now.white), "plainAccessConfigs": rows})))

    def _changing(self, request: RemotingCommand, changed: Callable[[Accounts], Accounts], failed: int) -> AsyncReply:
        async def run() -> RemotingCommand:
            try:
                await trio.to_thread.run_sync(self._keys.change, changed)
            except (AccountError, ValueError, OSError) as exc:
                raise Refused(failed, str(exc)) from exc
            return request.reply()

        return AsyncReply(run)


def _merged(now: Accounts, asked: AclAccountHeader) -> Account:
    before = now.keys.get(asked.access_key)
    account = before or Account(asked.access_key, asked.secret_key or "")
    said: dict[str, Any] = {
        "secret": asked.secret_key,
        "white": asked.white_remote_address,
        "admin": asked.admin,
        "topic": perm_of(asked.default_topic_perm) if asked.default_topic_perm else None,
        "group": perm_of(asked.default_group_perm) if asked.default_group_perm else None,
        "topics": _perms(asked.topic_perms),
        "groups": _perms(asked.group_perms),
    }
    made = replace(account, **{name: value for name, value in said.items() if value is not None})
    made.from_white("127.0.0.1")  # a bad pattern is refused, not stored
    return made


def _perms(listed: str | None) -> Mapping[str, Perm] | None:
    if listed is None:
        return None
    pairs = [each.partition("=") for each in listed.split(",") if each.strip()]
    for name, mark, _ in pairs:
        if not mark or not name.strip():
            raise AccountError(f"{name!r} is not NAME=PERMISSION")
    return {name.strip(): perm_of(word) for name, _, word in pairs}


def _as_apache(account: Account) -> dict[str, Any]:
    def listed(perms: Mapping[str, Perm]) -> list[str]:
        return [f"{name}={word_of(perm)}" for name, perm in perms.items()]

    return {
        "accessKey": account.name,
        "secretKey": MASK,
        "whiteRemoteAddress": account.white,
        "admin": account.admin,
        "defaultTopicPerm": word_of(account.topic or DENY),
        "defaultGroupPerm": word_of(account.group or DENY),
        "topicPerms": listed(account.topics),
        "groupPerms": listed(account.groups),
    }
