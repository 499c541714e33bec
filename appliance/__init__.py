"""The box: broker and NameServer behaviour, composition, command line."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - nobody checks that for a checkout
    sys.exit(f"rocketbox needs Python 3.11 or newer, this is {sys.version.split()[0]}: run it with another python3")

from appliance.compiled import install

install()  # before any module of the six packages that may be compiled is imported
