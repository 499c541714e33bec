"""Let mypyc write C: python systemd/compiled/generate.py FOLDER PYTHON SOURCE... (build.py calls it).

PYTHON is the version that the C is for, 3.13: types are laid out otherwise from 3.12 on, so it fits no other version.
FOLDER gets one C file for each source, what they share, and three lists, one path a line: `read.txt` has all sources
that mypy read, `lib-rt.txt` the folder of mypyc's runtime, `runtime.txt` the files of that folder which the C needs.
Exit 1 with mypyc's messages when it refuses a source.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mypy.fscache import FileSystemCache
from mypyc.build import construct_groups, get_mypy_config, include_dir
from mypyc.codegen import emitmodule
from mypyc.common import RUNTIME_C_FILES
from mypyc.errors import Errors
from mypyc.options import CompilerOptions


def main(folder: Path, python: tuple[int, int], paths: list[str]) -> int:
    """Return the exit code."""
    wanted = CompilerOptions(multi_file=True, target_dir=str(folder), group_name="rocketbox", capi_version=python)
    cache = FileSystemCache()
    sources, everything, options = get_mypy_config(paths, None, wanted, cache)
    groups = construct_groups(sources, separate=False, use_shared_lib=True, group_name_override="rocketbox")
    result = emitmodule.parse_and_typecheck(everything, options, wanted, groups, cache)
    errors = Errors(options)
    if result.errors:
        print("\n".join(result.errors))
        return 1
    sys.version_info = (*python, 0, "final", 0)  # type: ignore[assignment] # mypyc 2.4 looks there for how types are laid out
    built, written, _ = emitmodule.compile_modules_to_c(result, wanted, errors, groups)
    if errors.num_errors:
        print("\n".join(errors.new_messages()))
        return 1
    for name, text in (file for group in written for file in group):
        (folder / name).write_text(text)
    needed = sorted(source.path for source in emitmodule.collect_source_dependencies(built))
    write_list(folder / "runtime.txt", [*RUNTIME_C_FILES, *needed])
    write_list(folder / "lib-rt.txt", [include_dir()])
    write_list(folder / "read.txt", [state.path for state in result.graph.values() if state.path])
    return 0


def write_list(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines))


if __name__ == "__main__":
    major, minor = map(int, sys.argv[2].split("."))
    sys.exit(main(Path(sys.argv[1]), (major, minor), sys.argv[3:]))
