import subprocess
import sys
from pathlib import Path

from appliance.version import package_version

TOP = Path(__file__).parents[2]


def test_the_version_is_told_without_the_libraries_of_a_box() -> None:
    code = "import sys; from appliance.__main__ import main; main(['--version']); print('trio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True, check=True)
    assert done.stdout == f"rocketbox {package_version()}\nFalse\n"
