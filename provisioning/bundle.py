"""Signed bundles: `"RBX1"`, u32 length, manifest (CBOR), 64-byte Ed25519 signature, parts.

The signature covers `"rocketbox bundle 1\\0"` and the manifest, the manifest the hash of every part, so that nothing
unchecked is ever used. openssl does the arithmetic: it is on every Debian with TLS.
"""

from __future__ import annotations

import hashlib
import lzma
import platform
import struct
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import cbor2

from provisioning.errors import ProvisioningError
from provisioning.slots import list_tree

MAGIC = b"RBX1"
PURPOSE = b"rocketbox bundle 1\0"
LENGTH = struct.Struct(">I")
START = len(MAGIC) + LENGTH.size
SIGNATURE_BYTES = 64
COMPILED = "__pycache__"
SMALLEST = 9 | lzma.PRESET_EXTREME  # xz; half a minute for what a box needs, where 0 takes two seconds
MAX_MANIFEST = 1 << 20
READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class BundlePart:
    """One piece of a bundle: `app` (tar.xz), `root` (erofs) or `uki`; `at` is its place in the file."""

    name: str
    kind: str
    size: int
    sha256: str
    at: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a bundle says about itself."""

    version: str
    models: tuple[str, ...]
    arch: str
    python: str
    created: str
    key_id: str
    oldest: str
    parts: tuple[BundlePart, ...]
    files: Mapping[str, tuple[int, int, str]]  # of the app: path -> mode, size, sha256
    sbom: str = ""  # name of the CycloneDX list inside the app

    def to_cbor(self) -> bytes:
        value: dict[str, Any] = {name: getattr(self, name) for name in ("version", "arch", "python", "created")}
        value |= {"key_id": self.key_id, "oldest": self.oldest, "models": list(self.models), "sbom": self.sbom}
        value["parts"] = [
            {"name": one.name, "kind": one.kind, "size": one.size, "sha256": one.sha256} for one in self.parts
        ]
        value["files"] = {path: list(row) for path, row in self.files.items()}
        return cbor2.dumps(value, canonical=True)

    @classmethod
    def from_cbor(cls, data: bytes, at: int) -> Manifest:
        """Read a manifest whose first part begins at `at`. Raises ProvisioningError E303."""
        try:
            value = cbor2.loads(data)
            parts = []
            for row in value["parts"]:
                part = BundlePart(str(row["name"]), str(row["kind"]), int(row["size"]), str(row["sha256"]), at)
                parts.append(part)
                at += part.size
            files = {str(path): (int(mode), int(size), str(sha)) for path, (mode, size, sha) in value["files"].items()}
            words = {name: str(value[name]) for name in ("version", "arch", "python", "created", "key_id", "oldest")}
            models = tuple(map(str, value["models"]))
        except (cbor2.CBORError, KeyError, TypeError, ValueError, AttributeError) as exc:
            raise ProvisioningError("E303", f"the bundle's manifest cannot be read: {exc}") from exc
        return cls(**words, models=models, parts=tuple(parts), files=files, sbom=str(value.get("sbom", "")))


@dataclass(frozen=True, slots=True)
class Target:
    """The box a bundle is meant for."""

    model: str
    version: str
    bad: tuple[str, ...] = ()
    free_bytes: int = 1 << 40
    arch: str = platform.machine()
    python: str = f"{sys.version_info[0]}.{sys.version_info[1]}"


@dataclass(frozen=True, slots=True)
class InstallOptions:
    """What a technician may insist on."""

    downgrade: bool = False
    retry: bool = False
    again: bool = False  # the version that runs


def build_bundle(out: Path, manifest: Manifest, parts: Iterable[Path], private_key: Path) -> None:
    """Write a signed bundle; `manifest.parts` name the files in the same order."""
    data = manifest.to_cbor()
    if len(data) > MAX_MANIFEST:
        raise ProvisioningError("E303", f"the manifest has {len(data)} bytes, at most {MAX_MANIFEST} are allowed")
    signature = sign(PURPOSE + data, private_key)
    with out.open("wb") as target:
        target.write(MAGIC + LENGTH.pack(len(data)) + data + signature)
        for path in parts:
            with path.open("rb") as source:
                while block := source.read(READ_BYTES):
                    target.write(block)


def pack_app(tree: Path, out: Path, preset: int = SMALLEST) -> dict[str, tuple[int, int, str]]:
    """Pack `tree/lib` as a reproducible tar.xz, return its list of files; `preset`: xz's, 0 is quick."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = 0
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        return member

    sources = [path for path in (tree / "lib").rglob("*") if COMPILED not in path.parts]
    found = sorted(sources, key=lambda path: (path.is_file(), path.suffix, path))  # likes compress
    with tarfile.open(out, "w:xz", preset=preset) as packed:  # type: ignore[call-overload]
        for path in [tree / "lib", *found]:
            packed.add(path, str(path.relative_to(tree)), recursive=False, filter=plain)
    return {path: row for path, row in list_tree(tree).items() if f"/{COMPILED}/" not in path}


def describe_part(path: Path, kind: str) -> BundlePart:
    """Return name, size and hash of a file that becomes a part."""
    with path.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
    return BundlePart(path.name, kind, path.stat().st_size, digest)


def open_bundle(path: Path, keys: Path) -> Manifest:
    """Check length and signature, return the manifest; nothing else of the file has been used. Raises E303."""
    data, signature = _read_head(path)
    trusted = sorted(keys.glob("*.pem"))
    if not trusted:
        raise ProvisioningError("E303", f"no trusted key in {keys}: put the signer's public key there, NAME.pem")
    if not any(signature_fits(PURPOSE + data, signature, key) for key in trusted):
        names = ", ".join(key.stem for key in trusted)
        name = "the bundle" if path.suffix == ".part" else path.name
        text = (
            f"the signature of {name} matches none of the trusted keys ({names}): use a bundle signed with one of them"
        )
        raise ProvisioningError("E303", text)
    return _manifest(data)


def unsigned_manifest(path: Path) -> Manifest:
    """Return what a bundle claims to be when it is whole; whether to believe it is the box's to say. Raises E303."""
    manifest = _manifest(_read_head(path)[0])
    check_parts(path, manifest)
    return manifest


def head_bytes(path: Path) -> int:
    """Return how many bytes a bundle's manifest and signature end at; they come first. Raises E303."""
    with path.open("rb") as source:
        head = source.read(START)
    if len(head) < START or head[:4] != MAGIC:
        raise ProvisioningError("E303", f"{path.name} is not a rocketbox bundle")
    (length,) = LENGTH.unpack(head[4:])
    if not 0 < length <= MAX_MANIFEST:
        raise ProvisioningError("E303", f"the manifest claims {length} bytes, at most {MAX_MANIFEST} are allowed")
    return START + int(length) + SIGNATURE_BYTES


def _read_head(path: Path) -> tuple[bytes, bytes]:
    """Return the bytes of the manifest and their signature. Raises E303."""
    length = head_bytes(path) - START - SIGNATURE_BYTES
    with path.open("rb") as source:
        source.seek(START)
        data, signature = source.read(length), source.read(SIGNATURE_BYTES)
    if len(data) < length or len(signature) < SIGNATURE_BYTES:
        raise ProvisioningError("E303", f"{path.name} is incomplete: fetch it again")
    return data, signature


def _manifest(data: bytes) -> Manifest:
    return Manifest.from_cbor(data, START + len(data) + SIGNATURE_BYTES)


def check_fits(manifest: Manifest, target: Target, wishes: InstallOptions = InstallOptions()) -> None:
    """Raise unless this bundle may go on this box: model, version, space, in this order. E304, E305, E301."""
    if manifest.models and target.model not in manifest.models:
        raise ProvisioningError("E304", f"for {', '.join(manifest.models)}, the box is a {target.model}")
    if manifest.arch not in (target.arch, "any"):
        raise ProvisioningError("E304", f"built for {manifest.arch}, the box is {target.arch}")
    if any(part.kind == "app" for part in manifest.parts) and manifest.python != target.python:
        raise ProvisioningError("E304", f"built for Python {manifest.python}, the box has {target.python}")
    if manifest.version in target.bad and not wishes.retry:
        raise ProvisioningError(
            "E305", f"{manifest.version} was rolled back on this box: use --retry to install it anyway"
        )
    if newer(target.version, manifest.version) and not wishes.downgrade:
        raise ProvisioningError(
            "E305", f"{manifest.version} is older than {target.version}: use --downgrade to install it anyway"
        )
    if newer(manifest.oldest, target.version):
        raise ProvisioningError(
            "E305", f"{manifest.version} needs {manifest.oldest} first, the box has {target.version}"
        )
    needs = sum(part.size for part in manifest.parts) + sum(size for _, size, _ in manifest.files.values())
    if needs > target.free_bytes:
        text = f"needs {needs >> 20} MiB, {target.free_bytes >> 20} MiB are free: free space on the disk of the box"
        raise ProvisioningError("E301", text, needs=needs, free=target.free_bytes)


def check_parts(path: Path, manifest: Manifest) -> None:
    """Compare every part with its hash. Raises E303."""
    for part in manifest.parts:
        digest = hashlib.sha256()
        for block in read_part(path, part):
            digest.update(block)
        if digest.hexdigest() != part.sha256:
            raise ProvisioningError("E303", f"part {part.name} of {path.name} does not match its hash: fetch it again")
    end = manifest.parts[-1].at + manifest.parts[-1].size if manifest.parts else 0
    if path.stat().st_size != end:
        raise ProvisioningError("E303", f"{path.name} has {path.stat().st_size} bytes, its manifest says {end}")


def read_part(path: Path, part: BundlePart) -> Iterable[bytes]:
    """Yield the bytes of one part."""
    with path.open("rb") as source:
        source.seek(part.at)
        left = part.size
        while left and (block := source.read(min(left, READ_BYTES))):
            left -= len(block)
            yield block


def extract_part(path: Path, part: BundlePart, out: BinaryIO) -> None:
    """Copy one part into an open file and check it once more. Raises E303."""
    digest = hashlib.sha256()
    for block in read_part(path, part):
        digest.update(block)
        out.write(block)
    if digest.hexdigest() != part.sha256:
        raise ProvisioningError("E303", f"part {part.name} does not match its hash: fetch the bundle again")


def newer(one: str, other: str) -> bool:
    """Tell whether version `one` is later than `other`; `-` is no version and never newer or older."""
    return "-" not in (one, other) and _version_key(one) > _version_key(other)


def _version_key(version: str) -> tuple[tuple[int, int, str], ...]:
    words = version.replace("-", ".").replace("+", ".").split(".")
    parts = ((1, int(word), "") if word.isdecimal() else (0, 0, word) for word in words)
    return (*parts, (1, -1, ""))  # the end sorts after a word and before a number: 1.4.0-rc1 < 1.4.0 < 1.4.0.1


def make_key(private_key: Path, public_key: Path) -> None:
    """Make a signing key pair; the private file is readable by its owner only."""
    _openssl("genpkey", "-algorithm", "ed25519", "-out", str(private_key))
    private_key.chmod(0o600)
    _openssl("pkey", "-in", str(private_key), "-pubout", "-out", str(public_key))


def sign(data: bytes, private_key: Path) -> bytes:
    """Return the 64-byte signature."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "data").write_bytes(data)
        words = ("-sign", "-rawin", "-inkey", str(private_key), "-in", str(place / "data"), "-out", str(place / "sig"))
        _openssl("pkeyutl", *words)
        return (place / "sig").read_bytes()


def signature_fits(data: bytes, signature: bytes, public_key: Path) -> bool:
    """Tell whether the signature was made over these bytes by the owner of this key."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "data").write_bytes(data)
        (place / "sig").write_bytes(signature)
        words = ["-verify", "-rawin", "-pubin", "-inkey", str(public_key), "-in", str(place / "data")]
        return _run(["pkeyutl", *words, "-sigfile", str(place / "sig")]).returncode == 0


def _openssl(*words: str) -> None:
    done = _run(list(words))
    if done.returncode:
        raise ProvisioningError("E303", f"openssl {words[0]} failed: {done.stderr.decode(errors='replace').strip()}")


def _run(words: list[str]) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["openssl", *words], capture_output=True, check=False)
    except FileNotFoundError as exc:
        raise ProvisioningError("E303", "the program openssl is missing: `apt-get install openssl`") from exc
