"""sbom.py OUT VERSION NAME...: the parts of a slot as CycloneDX 1.6, by the CycloneDX project's own library.

For the build alone: the box never has that library. SOURCE_DATE_EPOCH fixes the time, the content fixes the number.
"""

from __future__ import annotations

import importlib.metadata as metadata
import os
import re
import sys
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

NAMES = {
    "Python Software Foundation License": "PSF-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "The MIT License (MIT)": "MIT",
    "Apache 2.0": "Apache-2.0",
}


def licence_of(one: metadata.Distribution) -> License:
    """Return the licence a distribution names: as an SPDX id or expression where it is one, else by its words."""
    expression = (one.metadata.get_all("License-Expression") or [""])[0]
    if expression:
        return LicenseFactory().make_from_string(expression)
    rows = one.metadata.get_all("Classifier") or []
    said = (one.metadata.get_all("License") or [""])[0].splitlines()
    words = said[0] if said and len(said[0]) < 60 else ""
    words = words or ", ".join(row.rpartition(" :: ")[2] for row in rows if row.startswith("License"))
    return LicenseFactory().make_from_string(NAMES.get(words, words or "unknown"))


def component(name: str) -> Component:
    one = metadata.distribution(name)
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=one.version,
        purl=PackageURL("pypi", None, name, one.version),
        bom_ref=f"{name}=={one.version}",
        licenses=[licence_of(one)],
    )


def needed(name: str, among: dict[str, Component]) -> list[Component]:
    """Return which of these parts another one asks for."""
    lines = [line for line in metadata.distribution(name).requires or [] if "extra ==" not in line]
    names = {re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower().replace("_", "-") for line in lines}
    return [part for other, part in among.items() if other in names]


def main(out: Path, version: str, names: list[str]) -> int:
    parts = {name: component(name) for name in sorted(names)}
    own = Component(
        type=ComponentType.APPLICATION,
        name="rocketbox",
        version=version,
        bom_ref=f"rocketbox=={version}",
        licenses=[LicenseFactory().make_from_string("Apache-2.0")],
    )
    made_s = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    key = " ".join(part.bom_ref.value or "" for part in parts.values())
    bom = Bom(components=parts.values(), serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"rocketbox {version} {key}"))
    bom.metadata.component, bom.metadata.timestamp = own, datetime.fromtimestamp(made_s, UTC)
    bom.register_dependency(own, parts.values())
    for name, part in parts.items():
        bom.register_dependency(part, needed(name, parts))
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
