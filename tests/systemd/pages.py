"""The commands of a documentation page: each fenced block has a comment above it that says where its lines are run."""

import re
import shlex
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

MARK = re.compile(r"<!-- (run|not run): (.+) -->")
OPTION = re.compile(r'(?:, |^)(background|until|file|skip) "([^"]+)"(?:: [^,]+)?')
AT_A_CABLE = ("rocketbox provision", "rocketbox fleet apply", "rocketbox flash app")


class Block(NamedTuple):
    """A fenced block: the heading it is below, where it is run ("" for nowhere), its options, its commands.

    Option `file`: its text is no commands, but a file of this name. Option `until`: what a background command says when
    it is there, else `ready`.
    """

    section: str
    place: str
    options: dict[str, str]
    commands: tuple[str, ...]
    line: int
    text: str

    def has(self, option: str, command: str) -> bool:
        """Tell whether an option of the block names this command."""
        return option in self.options and self.options[option] in command


class PageUnclear(Exception):
    """A block without a mark, or with one that says nothing."""


def read_blocks(page: Path, languages: Collection[str] = ("",)) -> list[Block]:
    """Return the blocks of some languages in their order. Raises PageUnclear."""
    found, section, mark, inside = list[Block](), "", "", ""
    body: list[str] = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if inside:
            if line.startswith("```"):
                if inside.removeprefix("```") in languages:
                    found.append(_block(page, section, mark, body, number - len(body)))
                inside, mark, body = "", "", []
            else:
                body.append(line)
        elif line.startswith("```"):
            inside = line.rstrip()
        elif line.strip():
            section = line.lstrip("# ") if line.startswith("#") else section
            mark = line if MARK.fullmatch(line) else ""
    return found


def _block(page: Path, section: str, mark: str, body: list[str], line: int) -> Block:
    read = MARK.fullmatch(mark)
    if read is None:
        raise PageUnclear(f"{page.name}:{line}: no <!-- run: … --> or <!-- not run: reason --> above this block")
    what, text = read.groups()
    place = text.partition(",")[0] if what == "run" else ""
    options: dict[str, str] = dict(OPTION.findall(text))
    if "online" in text.split(", "):
        options["online"] = "yes"
    return Block(section, place, options, tuple(_joined(body)), line, "\n".join(body))


def _joined(body: list[str]) -> list[str]:
    """Return the commands without comments; a line that ends with a backslash goes on."""
    lines = "\n".join(body).replace("\\\n", " ").splitlines()
    commands = (re.sub(r"(^|\s{2,})#.*$", "", line) for line in lines)
    return [re.sub(r"\s{2,}", " ", command).strip() for command in commands if command.strip()]


def script(blocks: Iterable[Block], *, words: str = "", logs: str = "/tmp") -> str:
    """Return what bash is to run, up to the first command that fails; words are added where a cable would be."""
    lines = ['fail() { printf \'FAILED: %s\\n\' "$1"; cat "${2:-/dev/null}"; exit 1; }']
    for block in blocks:
        if "file" in block.options:
            lines += [f"cat > {block.options['file']} <<'END_OF_FILE'", block.text, "END_OF_FILE"]
            continue
        for number, command in enumerate(block.commands):
            if block.has("skip", command):
                continue
            if words and command.startswith(AT_A_CABLE) and "--port" not in command:
                command += f" {words}"
            said = shlex.quote(command)
            lines.append(f"printf '+ %s\\n' {said}")
            if block.has("background", command):
                log, there = f"{logs}/line-{block.line}-{number}.log", shlex.quote(block.options.get("until", "ready"))
                lines.append(f"{command} > {log} 2>&1 &")
                lines.append(f"until grep -q {there} {log}; do kill -0 $! || fail {said} {log}; sleep 0.1; done")
            else:
                lines.append(f"{{ {command}\n}} || fail {said}")
    return "\n".join(lines) + "\n"
