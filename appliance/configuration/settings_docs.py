"""The reference of every setting, from `settings.py`: a page, a file with every key commented out, one key.

A setting that is added there is in all three; `test_settings_docs.py` compares what is in the tree.
"""

from collections.abc import Iterator

from appliance.configuration.config_rules import Choice, Flag, Key, Many, Network, Real, Record, Rule, Text, Whole
from appliance.configuration.settings import tables

TYPES: dict[type, str] = {
    Whole: "integer", Real: "number", Flag: "boolean", Text: "string", Choice: "string", Network: "string",
    Many: "list", Record: "inline table",
}  # fmt: skip
APPLIES = "at the next start of the box"
EXAMPLES: dict[str, str] = {  # where the default is empty and shows no form
    "box.name": '"press-17"',
    "box.site": '"Hall 2"',
    "advertise.rules": '[{ from = "10.0.0.0/8", address = "10.1.2.3", port = 10911 }]',
    "access.allow": '["10.1.0.0/16", "192.168.7.0/24"]',
    "access.accounts": '"/etc/rocketbox/accounts.json"',
    "tls.cert": '"/etc/rocketbox/keys/box.crt"',
    "tls.private_key": '"/etc/rocketbox/keys/box.key"',
    "tls.passphrase_file": '"/etc/rocketbox/keys/passphrase"',
    "tls.trust": '"/etc/rocketbox/keys/clients-ca.crt"',
    "store.classes": '[{ topics = ["audit-*"], retention_h = 720 }]',
    "broker.dedup_topics": '["orders", "payments"]',
    "namesrv.register_at": '["10.1.0.5:9876"]',
    "replication.slaves": '["10.1.0.12/32"]',
    "replication.master": '"10.1.0.5:10911"',
    "group.member": '"a"',
    "group.members": '["a=10.1.0.11:10912", "b=10.1.0.12:10912", "w=10.1.0.20:10912 witness"]',
    "group.preferred": '"a"',
    "group.address": '"10.1.0.10/24@eth0"',
    "group.certs": '"/etc/rocketbox/keys"',
    "page.names": '["press-17.example"]',
    "uplink.gateway": '"centre.example:7000"',
    "uplink.certs": '"/etc/rocketbox/keys"',
    "uplink.express": '["alarms"]',
    "uplink.windows": '[{ days = "mon-fri", hours = "07:00-19:00", kbit_s = 256 }]',
    "uplink.metered": '{ interfaces = ["wwan0"], month_mbytes = 2000, backlog = false }',
}
PAGE_HEAD = """# Configuration

`rocketbox config reference` prints this page from the source of the settings; a test compares the two.

A box reads one TOML file, `/etc/rocketbox/rocketbox.toml`, or the file that `--config FILE` names. Every key is
optional. A later source overrides an earlier one: default, file, environment variable
(`ROCKETBOX_LISTEN_HOST` for `listen.host`), command line. An unknown key is an error that names the nearest known key.
The log of a start tells of a variable `ROCKETBOX_…` that sets nothing. Those that Kubernetes makes of the names of
services (`ROCKETBOX_GRPC_PORT=tcp://10.0.0.1:8081` of `rocketbox-grpc`) set nothing.

| command | result |
| --- | --- |
| `rocketbox config template` | a file with every key commented out |
| `rocketbox config check FILE` | every error of a file |
| `rocketbox config show --origin` | every value in force and its source |
| `rocketbox config show --explain KEY` | the entry of this page for one key |
| `rocketbox config set KEY=VALUE` | checks one value and writes it into the file |

A box reads its configuration once: every key takes effect at the next start. Accounts are not part of it, and
`rocketbox access` changes them without a restart.
"""
FILE_HEAD = """# Configuration of Rocketbox, /etc/rocketbox/rocketbox.toml.
# Every key is commented out and shows its default.
# Remove the "#" in front of a key to set it, run "rocketbox config check", then restart the box.
# Reference: "rocketbox config show --explain KEY" or docs/configuration.md.
"""


def toml_value(value: object) -> str:
    """Return a value as TOML spells it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = "".join(f"\\u{ord(c):04x}" if ord(c) < 32 or c in '"\\' else c for c in value)
        return f'"{escaped}"'
    if isinstance(value, tuple) and hasattr(value, "_asdict"):  # a record: a named tuple
        spelled = {"network": "from"}
        pairs = ((spelled.get(name, name), inner) for name, inner in value._asdict().items())
        return "{ " + ", ".join(f"{name} = {toml_value(inner)}" for name, inner in pairs) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return str(value)


def page() -> str:
    """Return docs/configuration.md."""
    return PAGE_HEAD + "".join(_section(name) for name in tables())


def template() -> str:
    """Return a configuration file whose keys are all commented out."""
    lines = [FILE_HEAD]
    for name, kind in tables().items():
        lines += [f"# {_purpose(name)}", f"[{name}]"]
        for key, each in kind.keys.items():
            lines += [f"# {line}" for line in _comment(f"{name}.{key}", each)]
            lines.append(f"#{key} = {toml_value(each.default)}")
        lines.append("")
    return "\n".join(lines)


def explain(name: str) -> str:
    """Return what the reference says of "table.key"; KeyError for an unknown one."""
    table, _, key = name.partition(".")
    each = tables()[table].keys[key]
    facts = {
        "Meaning": each.meaning,
        "Type": TYPES[type(each.rule)],
        "Allowed": allowed(each.rule),
        "Default": toml_value(each.default),
        "Example": f"{key} = {example(name, each)}  (in [{table}])",
        "Environment": f"ROCKETBOX_{table}_{key}".upper(),
        "Applies": APPLIES,
    }
    return "\n".join([name, *(f"  {head:12} {fact}" for head, fact in facts.items())])


def example(name: str, each: Key) -> str:
    """Return an example value in TOML: the default where it shows the form."""
    return EXAMPLES.get(name) or toml_value(each.default)


def allowed(rule: Rule) -> str:
    """Say what is allowed, the keys of inline tables included."""
    if isinstance(rule, Many):
        return f"at most {rule.most} items, each: {allowed(rule.item)}"
    if isinstance(rule, Record):
        return "{ " + ", ".join(f"{key} = {allowed(inner)}" for key, inner in rule.keys.items()) + " }"
    return rule.allowed()


def _comment(name: str, each: Key) -> Iterator[str]:
    yield f"{each.meaning} ({allowed(each.rule)})"
    if name in EXAMPLES:
        yield f"example: {name.partition('.')[2]} = {EXAMPLES[name]}"


def _purpose(table: str) -> str:
    return (tables()[table].__doc__ or "").strip()


def _section(table: str) -> str:
    head = "| key | type | default | allowed | meaning | example |\n| --- | --- | --- | --- | --- | --- |"
    rows = (_row(f"{table}.{key}", each) for key, each in tables()[table].keys.items())
    return f"\n## {table}\n\n{_purpose(table)}\n\n{head}\n" + "\n".join(rows) + "\n"


def _row(name: str, each: Key) -> str:
    code = f"`{name.partition('.')[2]} = {example(name, each)}`"
    cells = [
        f"`{name}`",
        TYPES[type(each.rule)],
        f"`{toml_value(each.default)}`",
        allowed(each.rule),
        each.meaning,
        code,
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
