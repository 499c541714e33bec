"""Accounts from the `plain_acl.yml` of an Apache broker. The YAML reader is loaded for this alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from appliance.broker.access.accounts import DENY, Account, AccountError, perm_of
from appliance.broker.access.address_patterns import matcher
from appliance.broker.rights import Perm

NO_READER = (
    "{path}: reading YAML needs the package PyYAML (pip install 'rocketbox[acl]'). Or convert the file to JSON on a "
    "machine that has it, and import that: "
    "python3 -c 'import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)'"
)
BIGGEST = 4 << 20


def read_apache_file(path: Path) -> tuple[list[Account], list[str], list[str]]:
    """Return accounts, global white list, and what means something else here. Raises AccountError, OSError."""
    if path.stat().st_size > BIGGEST:
        raise AccountError(f"{path}: {path.stat().st_size >> 20} MiB is too large for a list of accounts")
    tree = _tree(path)
    if not isinstance(tree, dict):
        raise AccountError(f"{path}: expected a mapping with `accounts:`, as in plain_acl.yml")
    warnings: list[str] = []
    found: dict[str, Account] = {}
    for at, row in enumerate(_rows(tree.get("accounts"), path)):
        account = _account(row, f"{path}: account {at + 1}", warnings)
        if account.name in found:
            warnings.append(f"{account.name} is listed twice: the first entry is used")
        found.setdefault(account.name, account)
    listed = tree.get("globalWhiteRemoteAddresses") or []
    if not isinstance(listed, list):
        raise AccountError(f"{path}: `globalWhiteRemoteAddresses:` is not a list of addresses")
    white = [str(each) for each in listed if str(each).strip()]
    try:
        matcher(white)
    except ValueError as exc:
        raise AccountError(f"{path}: globalWhiteRemoteAddresses: {exc}") from exc
    if white:
        warnings.append(
            "a white list gives access to data, never to administration, which needs the signature of an admin key"
        )
    return list(found.values()), white, warnings


def _tree(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as exc:
        raise AccountError(f"{path}: {exc}") from exc
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as exc:
            raise AccountError(f"{path}: {exc}") from exc
    try:
        import yaml
    except ImportError as exc:
        raise AccountError(NO_READER.format(path=path)) from exc
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as exc:
        raise AccountError(f"{path}: {exc}") from exc


def _rows(rows: object, path: Path) -> Iterable[Mapping[str, Any]]:
    if rows is None:
        return []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise AccountError(f"{path}: `accounts:` is not a list of accounts")
    return rows


def _account(row: Mapping[str, Any], where: str, warnings: list[str]) -> Account:
    try:
        name = str(row.get("accessKey") or "")
        account = Account(
            name,
            str(row.get("secretKey") or ""),
            admin=str(row.get("admin", "false")).lower() == "true",
            white=str(row.get("whiteRemoteAddress") or ""),
            topic=_default(row.get("defaultTopicPerm"), f"{name}: defaultTopicPerm", warnings),
            group=_default(row.get("defaultGroupPerm"), f"{name}: defaultGroupPerm", warnings),
            topics=_listed(row.get("topicPerms")),
            groups=_listed(row.get("groupPerms")),
        )
        account.from_white("127.0.0.1")
    except ValueError as exc:
        raise AccountError(f"{where}: {exc}") from exc
    return account


def _default(word: object, what: str, warnings: list[str]) -> Perm:
    """Apache takes any other word for DENY."""
    try:
        return perm_of(str(word)) if word else DENY
    except AccountError:
        warnings.append(f"{what} = {word!r} is not a permission; it counts as DENY, as in Apache's broker")
        return DENY


def _listed(entries: object) -> dict[str, Perm]:
    if entries is None:
        return {}
    if not isinstance(entries, list):
        raise AccountError("topicPerms and groupPerms are lists of NAME=PERMISSION")
    pairs = [str(entry).partition("=") for entry in entries]
    for name, mark, _ in pairs:
        if not mark or not name.strip():
            raise AccountError(f"{name!r} is not NAME=PERMISSION")
    return {name.strip(): perm_of(word) for name, _, word in pairs}
