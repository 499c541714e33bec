"""Named values that clients and tools keep in the NameServer, above all the order of topics.

Invariant: `to_object(KvConfig.from_object(x))` is x; a namespace stays when its last key is deleted.
Source: RocketMQ 4.9.8 KVConfigManager, KVConfigSerializeWrapper.
"""

from collections.abc import Mapping

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
MAX_ENTRIES, MAX_TEXT, MAX_BYTES = 10_000, 32_767, 8 << 20


class KvConfigDamaged(Exception):
    """The stored table is not `{"configTable": {namespace: {key: value}}}`."""


class KvConfig:
    """Namespace → key → value. `version` counts changes, so that a writer knows what is already on disk."""

    def __init__(self, table: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._table = {namespace: dict(values) for namespace, values in (table or {}).items()}
        self.version = 0

    @classmethod
    def from_object(cls, loaded: object) -> "KvConfig":
        """Read the decoded file; None (no file yet) is an empty table. Raises KvConfigDamaged."""
        if loaded is None:
            return cls()
        table = loaded.get("configTable") if isinstance(loaded, dict) else None
        if not isinstance(table, dict) or not all(_is_text_table(values) for values in table.values()):
            raise KvConfigDamaged('expected {"configTable":{namespace:{key:value}}}, every value a text')
        return cls(table)

    def to_object(self) -> dict[str, dict[str, dict[str, str]]]:
        return {"configTable": {namespace: dict(values) for namespace, values in self._table.items()}}

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return the entries of a namespace, None if there never was one."""
        values = self._table.get(namespace)
        return None if values is None else dict(values)

    def is_full_for(self, namespace: str, key: str, value: str) -> bool:
        """True when one more entry, or one this long, would exceed the table's limits."""
        too_long = max(len(namespace), len(key), len(value)) > MAX_TEXT
        old = self.get(namespace, key)
        many = old is None and sum(len(values) + 1 for values in self._table.values()) >= MAX_ENTRIES
        stored = sum(len(k) + len(v) for values in self._table.values() for k, v in values.items())
        much = stored - len(old or "") + len(key) + len(value) > MAX_BYTES
        return too_long or many or much

    def put(self, namespace: str, key: str, value: str) -> None:
        self._table.setdefault(namespace, {})[key] = value
        self.version += 1

    def delete(self, namespace: str, key: str) -> None:
        """Remove a key; the namespace stays, even empty. An unknown key changes nothing."""
        if self._table.get(namespace, {}).pop(key, None) is not None:
            self.version += 1


def _is_text_table(values: object) -> bool:
    return isinstance(values, dict) and all(isinstance(k, str) and isinstance(v, str) for k, v in values.items())
