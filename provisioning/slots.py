"""Two slots as directories: install into the idle one, try it, commit it, or return to the old one.

Standard library only and nothing of this package, so that the system's Python runs it (`/usr/lib/rocketbox/slot.py
VERB`) when a slot does not work; at every boot, so what only an installation needs is imported there. A try is taken
off and synced before the slot is used.
"""

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

TRIES = 3
READ_BYTES = 1 << 20
NO_SLOTS = "this box has no slots: apt or pip installed it, and installs updates too"
FileList = Mapping[str, tuple[int, int, str]]  # path -> mode, size, sha256


class SlotError(Exception):
    """A slot cannot be used: the text says which and why."""


class SlotState(NamedTuple):
    """`active` was committed, `trial` is being tried with `tries` left; `versions` by slot, `bad` never again."""

    active: str = "a"
    trial: str | None = None
    tries: int = 0
    versions: Mapping[str, str] = {}
    committed: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()
    serial: int = 0
    rolled_back: dict[str, Any] | None = None

    @property
    def idle(self) -> str:
        return "b" if self.active == "a" else "a"

    def version(self, slot: str) -> str:
        return self.versions.get(slot, "-")


def _state_of(found: Mapping[str, Any]) -> SlotState:
    """Return a state that was saved. Raises ValueError, TypeError, AttributeError for what nobody saved."""
    known = {key: value for key, value in found.items() if key in SlotState._fields}
    for name in ("committed", "bad"):
        known[name] = tuple(map(str, known.get(name, ())))
    state = SlotState(**known)
    slots = state.active in ("a", "b") and state.trial in (None, "a", "b") and isinstance(state.versions, dict)
    if not slots or type(state.tries) is not int or type(state.serial) is not int:
        raise ValueError("no state of slots")
    return state


def at_boot(state: SlotState) -> tuple[SlotState, str]:
    """Return the state to write and the slot to run now."""
    if state.trial is None:
        return state, state.active
    if state.tries > 0:
        return state._replace(tries=state.tries - 1), state.trial
    return rolled_back(state, "no try left"), state.active


def rolled_back(state: SlotState, reason: str) -> SlotState:
    """Return the state without its trial; that version is remembered as bad."""
    if state.trial is None:
        return state
    gone = state.version(state.trial)
    record = {"version": gone, "reason": reason, "wall_s": int(time.time())}
    return state._replace(trial=None, tries=0, bad=(*state.bad, gone), rolled_back=record)


def committed(state: SlotState) -> SlotState:
    """Return the state with the trial as the active slot."""
    if state.trial is None:
        return state
    version = state.version(state.trial)
    known = (*(one for one in state.committed if one != version), version)
    return state._replace(active=state.trial, trial=None, tries=0, committed=known)


class Slots:
    """The slots below `base` (`/opt`): `slots/a`, `slots/b`, `slots/state.json` and the link `appliance`."""

    def __init__(self, base: Path) -> None:
        self.base, self.folder = base, base / "slots"

    def load(self) -> SlotState:
        """Read the state, the one before where it is damaged; a missing file is a box that has only slot a.

        Raises SlotError.
        """
        damage = ""
        for name in ("state.json", "state.json.old"):
            try:
                return _state_of(json.loads((self.folder / name).read_text()))
            except FileNotFoundError:
                continue
            except (ValueError, TypeError, AttributeError, RecursionError) as exc:
                damage = damage or f"{self.folder / name} is damaged: {exc}"
        if damage:
            raise SlotError(f"{damage}; without it the box counts as one that has only slot a: install a bundle then")
        return SlotState()

    def save(self, state: SlotState) -> SlotState:
        """Replace the state durably, return it with its new serial number."""
        self.folder.mkdir(parents=True, exist_ok=True)
        counted = state._replace(serial=state.serial + 1)
        fresh = self.folder / "state.json.new"
        with fresh.open("w") as out:
            os.fchmod(out.fileno(), 0o644)
            json.dump(counted._asdict(), out)
            out.flush()
            os.fsync(out.fileno())
        with suppress(FileNotFoundError):  # the first one
            before = self.folder / "state.json.old"
            before.unlink(missing_ok=True)
            os.link(self.folder / "state.json", before)
        os.replace(fresh, self.folder / "state.json")
        sync_folder(self.folder)
        return counted

    def boot(self) -> tuple[SlotState, str]:
        """Take off a try or return to the old slot, then point the link at the slot to run."""
        state = self.load()
        after, slot = at_boot(state)
        if after != state:
            after = self.save(after)
        self.point_at(slot)
        return after, slot

    def point_at(self, slot: str) -> None:
        """Make `appliance` lead to a slot; the link changes by rename, so it always leads somewhere."""
        fresh = self.base / "appliance.new"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(f"slots/{slot}")
        os.replace(fresh, self.base / "appliance")
        sync_folder(self.base)

    def running(self) -> str | None:
        """Return the slot the link leads to."""
        try:
            return Path(os.readlink(self.base / "appliance")).name
        except OSError:
            return None

    def commit(self) -> SlotState:
        """Keep the slot on trial; nothing to do without one. Raises SlotError when another slot runs."""
        state = self.load()
        if state.trial is not None and self.running() != state.trial:
            raise SlotError(f"slot {state.trial} is on trial but slot {self.running()} runs: reboot first")
        return self.save(committed(state)) if state.trial else state

    def roll_back(self, reason: str) -> SlotState:
        """Give up the trial and point at the active slot."""
        state = self.load()
        after = self.save(rolled_back(state, reason)) if state.trial else state
        self.point_at(after.active)
        return after

    def install(
        self,
        archive: Path,
        files: FileList,
        version: str,
        *,
        tries: int = TRIES,
        progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
    ) -> str:
        """Unpack into the idle slot, read all back, put it on trial; return the slot.

        Interrupted at any point the box runs what it ran before, and a repeated call starts the slot again.
        """
        state = self.load()
        if state.trial is not None:
            raise SlotError(f"slot {state.trial} is on trial: commit it or roll it back first")
        slot = state.idle
        target = self.folder / slot
        remove_tree(target)
        target.mkdir(parents=True)
        total = sum(size for _, size, _ in files.values())
        unpack(archive, target, lambda done: progress("unpack", done, total))
        os.sync()
        check_tree(target, files, lambda done: progress("read back", done, total))
        compile_tree(target)
        prepare(target, self.folder / f"{slot}.json", version)
        os.sync()
        self.save(state._replace(trial=slot, tries=tries, versions={**state.versions, slot: version}))
        return slot

    def adopt(self, tree: Path, version: str, *, link: bool = False) -> str:
        """Put an unpacked tree into slot a of a box that has none yet; on others the package changes no slot.

        With `link` the slot is the tree itself: that of a read-only image, prepared when it was built.
        """
        state = self.load()
        if state.versions:
            return state.active
        target = self.folder / "a"
        remove_tree(target)
        if link:
            self.folder.mkdir(parents=True, exist_ok=True)
            target.symlink_to(tree)
            shutil.copyfile(tree.with_name(f"{tree.name}.json"), self.folder / "a.json")
        else:
            shutil.copytree(tree / "lib", target / "lib")
            prepare(target, self.folder / "a.json", version)
        os.sync()
        self.save(state._replace(versions={"a": version}, committed=(version,)))
        self.point_at("a")
        return "a"

    def check(self, slot: str) -> str:
        """Compare a slot with the list it was installed from, return its version. Raises SlotError."""
        try:
            found = json.loads((self.folder / f"{slot}.json").read_text())
        except (OSError, ValueError) as exc:
            raise SlotError(f"slot {slot} has no readable list of files: {exc}") from exc
        files = {path: (int(mode), int(size), str(digest)) for path, (mode, size, digest) in found["files"].items()}
        check_tree(self.folder / slot, files, lambda done: None)
        return str(found["version"])


def unpack(archive: Path, target: Path, progress: Callable[[int], None]) -> None:
    """Unpack folders and plain files below `lib/`; anything else is refused.

    By hand and not by tarfile's `data` filter: the Python 3.11.2 of Debian 12 does not have it.
    """
    import lzma
    import tarfile

    done = 0
    try:
        with tarfile.open(archive, "r:xz") as packed:
            for member in packed:
                parts = Path(member.name).parts
                if not parts or parts[0] != "lib" or ".." in parts or not (member.isdir() or member.isreg()):
                    raise SlotError(f"the archive holds {member.name!r}, only files below lib/ are allowed")
                if member.isdir():
                    (target / member.name).mkdir(parents=True, exist_ok=True)
                    continue
                source = packed.extractfile(member)
                assert source is not None  # a regular file
                (target / member.name).parent.mkdir(parents=True, exist_ok=True)
                with (target / member.name).open("wb") as out:
                    shutil.copyfileobj(source, out)
                (target / member.name).chmod(0o755 if member.mode & 0o100 else 0o644)
                done += member.size
                progress(done)
    except (tarfile.TarError, lzma.LZMAError, OSError, EOFError) as exc:
        raise SlotError(f"cannot unpack {archive.name}: {exc}") from exc


def add_interpreter(target: Path) -> None:
    """Make the folder an environment: Python finds the packages from where this link is, so a slot may be moved."""
    (target / "bin").mkdir(exist_ok=True)
    link = target / "bin/python"
    link.unlink(missing_ok=True)
    link.symlink_to("/usr/bin/python3")
    command = target / "bin/rocketbox"
    command.write_text('#!/bin/sh\nexec /opt/appliance/bin/python -I -m appliance "$@"\n')
    command.chmod(0o755)
    (target / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")


def compile_tree(target: Path) -> None:
    """Add byte code that is used without a look at its source: a start must not compile, the slot is read-only."""
    import compileall
    import py_compile

    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(target / "lib", quiet=2, invalidation_mode=mode, stripdir=str(target))


def check_tree(target: Path, files: FileList, progress: Callable[[int], None]) -> None:
    """Re-read every file with the page cache dropped. Raises SlotError naming the first that differs."""
    found = {str(path.relative_to(target)) for path in (target / "lib").rglob("*") if path.is_file()}
    if found != set(files):
        odd = sorted(found ^ set(files))[0]
        raise SlotError(f"{target.name}/{odd} is {'missing' if odd in files else 'not on the list'}")
    done = 0
    for path, (_, size, digest) in files.items():
        if file_digest(target / path) != (size, digest):
            raise SlotError(f"{target.name}/{path} differs from its list")
        done += size
        progress(done)


def file_digest(path: Path) -> tuple[int, str]:
    """Return size and SHA-256 as the disk has them, not the page cache, as far as the kernel lets go of it."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as source:
        os.posix_fadvise(source.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while block := source.read(READ_BYTES):
            digest.update(block)
            size += len(block)
    return size, digest.hexdigest()


def list_tree(target: Path) -> dict[str, tuple[int, int, str]]:
    """Return mode, size and hash of every file below `lib/`, by path."""
    found = {}
    for path in sorted((target / "lib").rglob("*")):
        if path.is_file():
            size, digest = file_digest(path)
            found[str(path.relative_to(target))] = (0o755 if os.access(path, os.X_OK) else 0o644, size, digest)
    return found


def prepare(target: Path, listed: Path, version: str) -> None:
    """Make an unpacked tree a slot: its interpreter, the list of its files, nothing to write to."""
    add_interpreter(target)
    write_list(listed, version, list_tree(target))
    make_read_only(target)


def write_list(path: Path, version: str, files: FileList) -> None:
    with path.open("w") as out:
        json.dump({"version": version, "files": {name: list(row) for name, row in files.items()}}, out)
        out.flush()
        os.fsync(out.fileno())


def make_read_only(target: Path) -> None:
    """Let everybody read and nobody write, whatever the umask was."""
    for path in [target, *target.rglob("*")]:
        if not path.is_symlink():
            runs = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o555 if runs else 0o444)


def remove_tree(target: Path) -> None:
    """Remove a slot whose folders are read-only, or the link to one that is part of an image."""
    if target.is_symlink():
        target.unlink()
    elif target.exists():
        for path in [target, *target.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(target)


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power cut. Blocks. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def main(arguments: list[str]) -> int:
    """Verbs: boot, commit, rollback REASON, check SLOT, status, adopt TREE VERSION; `--base DIR` (default /opt).

    For images: prepare TREE VERSION while building, adopt-link TREE VERSION at the first boot.
    """
    base = Path(arguments[arguments.index("--base") + 1]) if "--base" in arguments else Path("/opt")
    words = [one for one in arguments if one not in ("--base", str(base))]
    slots, verb = Slots(base), words[0] if words else ""
    try:
        if verb == "boot":
            state, slot = slots.boot()
            print(f"slot={slot} version={state.version(slot)} trial={state.trial} tries={state.tries}")
        elif verb == "commit":
            state = slots.commit()
            print(f"committed slot={state.active} version={state.version(state.active)}")
        elif verb == "rollback":
            state = slots.roll_back(words[1] if len(words) > 1 else "asked for")
            print(f"slot={state.active} version={state.version(state.active)} bad={','.join(state.bad)}")
        elif verb in ("adopt", "adopt-link") and len(words) == 3:
            print(f"slot={slots.adopt(Path(words[1]), words[2], link=verb == 'adopt-link')}")
        elif verb == "prepare" and len(words) == 3:
            prepare(Path(words[1]), Path(f"{words[1]}.json"), words[2])
        elif verb == "check" and len(words) == 2:
            print(f"slot={words[1]} version={slots.check(words[1])} ok")
        elif verb == "status":
            print(json.dumps(slots.load()._asdict()))
        else:
            print(f"usage: slot.py {main.__doc__}", file=sys.stderr)
            return 2
    except SlotError as exc:
        print(exc, file=sys.stderr)
        return 1
    return 0
