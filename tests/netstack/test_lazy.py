import dataclasses
import sys
import threading
from collections.abc import Callable

import pytest

from netstack.lazy import made, make_all, value_class


def pair() -> tuple[type, Callable[..., object]]:
    @value_class
    class Base:
        number: int
        text: str = "none"

    @value_class
    class Derived(Base):
        more: list[int] = dataclasses.field(default_factory=list)

    return Base, Derived


def test_the_first_value_makes_a_frozen_dataclass_of_the_class_and_its_bases() -> None:
    base, derived = pair()
    assert not hasattr(base, "__dataclass_fields__")
    value = derived(3, more=[1])
    assert value == derived(3, "none", [1]) != derived(4)
    assert [item.name for item in dataclasses.fields(value)] == ["number", "text", "more"]  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.number = 4  # type: ignore[attr-defined]
    assert base(5) == base(number=5)


def test_fields_are_there_when_asked_for_before_any_value() -> None:
    _, derived = pair()
    assert isinstance(derived, type)
    assert [item.name for item in dataclasses.fields(made(derived))] == ["number", "text", "more"]
    assert made(int) is int


def test_a_wrong_argument_is_the_error_of_a_dataclass_also_the_first_time() -> None:
    base, _ = pair()
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        base(colour=1)


def test_threads_that_make_all_classes_first_can_make_values_at_once() -> None:
    values, beginning = list[object](), threading.Lock()

    def make(derived: Callable[..., object]) -> None:
        with beginning:
            make_all()
        values.append(derived(1, more=[2]))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            _, derived = pair()
            threads = [threading.Thread(target=make, args=(derived,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(before)
    assert len(values) == 80
