"""Ours beside typing's: whatever is done with a value, the same comes out."""

import copy
import pickle
import sys
import typing
from collections.abc import Callable
from typing import Any

import pytest

from storage_driver.named_tuple import NamedTuple


class Ours(NamedTuple):
    """Three fields."""

    first: int
    second: str = "two"
    third: typing.Sequence[int] | None = None

    @property
    def doubled(self) -> int:
        return 2 * self.first


class Theirs(typing.NamedTuple):
    """Three fields."""

    first: int
    second: str = "two"
    third: typing.Sequence[int] | None = None

    @property
    def doubled(self) -> int:
        return 2 * self.first


@pytest.mark.parametrize(
    "look",
    [
        lambda kind: kind(1),
        lambda kind: kind(1, third=[3]).third,
        lambda kind: kind(second="b", first=7).doubled,
        lambda kind: kind(1)._replace(first=4, third=()),
        lambda kind: kind(1, "b")._asdict(),
        lambda kind: kind._make([1, "b", None]),
        lambda kind: (kind._fields, kind._field_defaults, kind.__match_args__, kind.__doc__),
        lambda kind: typing.get_type_hints(kind),
        lambda kind: repr(kind(1, "b")).replace("Theirs", "Ours"),
        lambda kind: (hash(kind(1)), kind(1) == kind(1), kind(1) == (1, "two", None), kind(1) < kind(2)),
        lambda kind: pickle.loads(pickle.dumps(kind(1))),
        lambda kind: copy.deepcopy(kind(1, third=[3])),
        lambda kind: type(pickle.loads(pickle.dumps(kind(1)))) is kind,
        lambda kind: sys.getsizeof(kind(1)),
    ],
)
def test_a_value_is_what_typing_makes_of_it(look: Callable[[Any], Any]) -> None:
    assert look(Ours) == look(Theirs)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda kind: kind(),
        lambda kind: kind(1, 2, 3, 4),
        lambda kind: kind(1, fourth=4),
        lambda kind: kind(1)._replace(fourth=4),
        lambda kind: setattr(kind(1), "first", 2),
        lambda kind: setattr(kind(1), "fourth", 2),
        lambda kind: kind._make([1, 2, 3, 4]),
    ],
)
def test_what_typing_refuses_is_refused(wrong: Callable[[Any], Any]) -> None:
    for kind in (Ours, Theirs):
        with pytest.raises((TypeError, ValueError, AttributeError)):
            wrong(kind)


def test_a_first_value_that_is_wrong_says_so_by_the_name_of_its_class() -> None:
    class Fresh(NamedTuple):
        number: int

    with pytest.raises(TypeError, match=r"Fresh.__new__\(\) missing 1 required positional argument: 'number'"):
        Fresh()  # type: ignore[call-arg]
    assert Fresh(1) == (1,)


def test_a_field_without_a_default_behind_one_with_a_default_is_no_class() -> None:
    with pytest.raises(TypeError, match="without a default"):

        class Wrong(NamedTuple):
            first: int = 1
            second: int  # type: ignore[misc]
