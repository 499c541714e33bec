"""Sources as trees, parsed once for all tests of the form, which run in one worker (tests/conftest.py)."""

import ast
from functools import cache


@cache
def parsed(source: str) -> ast.Module:
    """Return what a source says. Who asks changes nothing in it."""
    return ast.parse(source)
