"""docs/metrics.md, made of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator

from appliance.metrics.families import FAMILIES, MOST_PAIRS, MOST_TOPICS, NODE, SECTIONS, Family

HEAD = f"""# Metrics

Made by `rocketbox metrics --docs`; a test compares it.

`rocketbox metrics` prints them on the box. The box serves them as `GET /metrics` on the socket
`/run/rocketbox/metrics.sock` (of the user and group rocketbox) and, when `metrics.port` is set, on that port of
`metrics.host` (default `127.0.0.1`). Other machines need the box's token; `rocketbox page --token` prints it.

```yaml
scrape_configs:
  - job_name: rocketbox
    authorization: {{ credentials_file: /etc/prometheus/rocketbox.token }}
    static_configs: [{{ targets: ["press-17.example:9877"] }}]
```

Metrics add no work per message, and their code is loaded at the first scrape. [alerts.yml](alerts.yml) has alert
rules, [dashboard.json](dashboard.json) is a Grafana dashboard.

**Bounds.** A topic has series while it is among the first {MOST_TOPICS} of the topic table, a pair of topic and group
while it is among the first {MOST_PAIRS}; the order is stable, so series do not come and go. `rocketbox_series_left_out`
counts those without series. The series of a deleted topic end with it. At most {{series}} series in all. `node` stands
for the labels `cluster`, `node_type`, `node_id`.

**Recent values** of averages since the start: messages per sync in the last five minutes is
`rate(rocketbox_stored_messages_total[5m]) / rate(rocketbox_sync_seconds_count[5m])`, bytes written per byte ingested
`rate(rocketbox_disk_written_bytes_total[5m]) / rate(rocketbox_stored_bytes_total[5m])`.
"""


def document() -> str:
    """Return the whole page."""
    most = sum(family.most for family in FAMILIES.values())
    return HEAD.replace("{series}", f"{most:,}") + "".join(_section(name) for name in SECTIONS)


def _section(name: str) -> str:
    rows = "\n".join(_row(family) for family in SECTIONS[name])
    head = "| metric | kind | meaning | labels | series at most |\n| --- | --- | --- | --- | --- |"
    return f"\n## {name}\n\n{head}\n{rows}\n"


def _row(family: Family) -> str:
    return f"| `{family.name}` | {family.kind} | {family.meaning} | {' '.join(_labels(family))} | {family.most} |"


def _labels(family: Family) -> Iterator[str]:
    if family.labels[: len(NODE)] == NODE:
        yield "node"
    yield from (f"`{label}`" for label in family.labels if label not in NODE)
