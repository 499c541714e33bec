"""plain_archive.py IN.tar OUT.tar: an image archive without what differs between two builds of the same inputs.

buildah notes the random names of the container it built in. No runtime needs those, so the configuration is written
without them, and the archive with one order, time and owner.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

OF_THE_BUILD = ("container", "container_config")


def plain(source: tarfile.TarFile) -> dict[str, bytes]:
    """Return name -> content: the layers, the configuration by its digest, the list of both."""

    def content(name: str) -> bytes:
        found = source.extractfile(name)
        assert found is not None, f"{name} is no file"
        return found.read()

    (image,) = json.loads(content("manifest.json"))
    config = {key: value for key, value in json.loads(content(image["Config"])).items() if key not in OF_THE_BUILD}
    config["config"].pop("Hostname", None)
    text = json.dumps(config, sort_keys=True).encode()
    name = f"{hashlib.sha256(text).hexdigest()}.json"
    files = {layer: content(layer) for layer in image["Layers"]}
    return {**files, name: text, "manifest.json": json.dumps([{**image, "Config": name}], sort_keys=True).encode()}


def main(source: Path, out: Path) -> int:
    with tarfile.open(source) as old:
        files = plain(old)
    with tarfile.open(out, "w") as new:
        for name, data in files.items():
            row = tarfile.TarInfo(name)
            row.size, row.mode = len(data), 0o644
            new.addfile(row, io.BytesIO(data))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
