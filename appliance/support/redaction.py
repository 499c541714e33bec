"""Takes secrets out of text: values that are known to be secret wherever they stand, and whatever a name calls so.

Too much taken out is a nuisance, too little a breach: a name that may mean a secret counts as one.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

GONE = "[redacted]"
SHORTEST = 6  # characters of a known secret: shorter ones would redact ordinary words
NAMES = (
    r"secret|passw(?:or)?d|passphrase|pwd|token|credential|private[_-]?key|api[_-]?key|access[_-]?key|signature"
    r"|authorization|cookie|bearer"
)
SECRET_NAME = re.compile(rf"(?i)(?:{NAMES})")
QUOTED = r'"""[\s\S]*?"""|' + r"'''[\s\S]*?'''|" + r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'|\[[^\]]*\]"
# A name begins where a word does and is short: scanning from every letter of a long word would take seconds a megabyte.
NAMED = re.compile(
    rf"(?i)([\"']?(?<![\w.-])[\w.-]{{0,48}}?(?:{NAMES})[\w.-]{{0,48}}([\"']?)\s*(?:[:=]|=>)\s*)"
    rf"({QUOTED}|[^\s,;}}\]\"']+)"
)
RULES: tuple[tuple[str, re.Pattern[str], str], ...] = (
    (
        "private key",
        re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)"),
        GONE,
    ),
    ("header", re.compile(r"(?im)\b((?:proxy-)?authorization|(?:set-)?cookie)(\s*[:=]\s*)[^\n]+"), rf"\1\2{GONE}"),
    ("bearer", re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), rf"\1 {GONE}"),
    ("url", re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s:@\"']*:[^/\s@\"']+@"), rf"\1{GONE}@"),
    ("cloud key", re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), GONE),
    ("word after", re.compile(r"(?i)(--(?:secret|password|token|secret-key|access-key)[= ])\S+"), rf"\1{GONE}"),
)


class Redactor:
    """Redacts texts with the secrets of one box; `counts` says how much of which kind."""

    def __init__(self, known: Iterable[str]) -> None:
        whole = {secret.strip() for secret in known}
        self._known = sorted((secret for secret in whole if len(secret) >= SHORTEST), key=len, reverse=True)
        self.counts: Counter[str] = Counter()

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        for secret in self._known:
            self._count("known", text.count(secret))
            text = text.replace(secret, GONE)
        for kind, rule, kept in RULES:
            text, count = rule.subn(kept, text)
            self._count(kind, count)
        return NAMED.sub(self._named, text)

    def _named(self, found: re.Match[str]) -> str:
        """Replace what stands behind a name; between quotes where it or its name stood between some."""
        quote = found[3][0] if found[3][0] in "\"'" else found[2]
        if found[3].strip("\"'") == GONE:
            return found[0]
        self.counts["name"] += 1
        return f"{found[1]}{quote}{GONE}{quote}"

    def _count(self, kind: str, count: int) -> None:
        if count:
            self.counts[kind] += count

    def file(self, name: str, text: str) -> str:
        """Return a file's text without secrets; JSON by its names too, whatever its layout."""
        if name.endswith(".json"):
            try:
                text = json.dumps(self._tree(json.loads(text)), indent=1, ensure_ascii=False) + "\n"
            except (ValueError, RecursionError):
                pass  # Apache's tables have bare numbers as keys
        return self.text(text)

    def _tree(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._value(str(key), each) for key, each in value.items()}
        return [self._tree(each) for each in value] if isinstance(value, list) else value

    def _value(self, name: str, value: Any) -> Any:
        if SECRET_NAME.search(name) and value not in (None, "") and not isinstance(value, dict):
            self.counts["name"] += 1
            return GONE
        return self._tree(value)
