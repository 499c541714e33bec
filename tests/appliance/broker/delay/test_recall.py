"""Recall handles: what they name, and what is none."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.broker.delay.recall import RecallHandle, handle_of
from appliance.broker.delay.timers import DUE_MS
from appliance.broker.intake import MessageDraft
from appliance.broker.tables.topics import TIMER_TOPIC
from appliance.testing import STORE_HOST


def test_a_handle_is_the_text_that_5x_clients_carry() -> None:
    handle = RecallHandle("T", "box", 1_700_000_000_001, "K")
    assert handle.encode() == "djEgVCBib3ggMTcwMDAwMDAwMDAwMSBL"
    assert RecallHandle.decode(handle.encode()) == handle


words = st.text(st.characters(exclude_characters=" ", exclude_categories=["Cs"]), max_size=8)


@settings(max_examples=40)
@given(words, words, st.integers(0, 1 << 62), st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
def test_a_handle_comes_back_whatever_the_key(topic: str, broker: str, due_ms: int, key: str) -> None:
    handle = RecallHandle(topic, broker, due_ms, key)
    assert RecallHandle.decode(handle.encode()) == handle


@settings(max_examples=60)
@given(st.text(max_size=20) | st.binary(max_size=40).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_any_other_text_is_refused_as_a_handle(text: str) -> None:
    with pytest.raises(ValueError, match=r"base64|does not have the form|ASCII"):
        RecallHandle.decode(text)


@pytest.mark.parametrize("due", ["-1", "1.0", "", "x", "1e5"])
def test_a_handle_without_a_moment_is_none(due: str) -> None:
    text = base64.urlsafe_b64encode(f"v1 T box {due} K".encode()).decode()
    with pytest.raises(ValueError, match="v1 topic broker time key"):
        RecallHandle.decode(text)


def test_only_a_draft_that_rests_among_the_timed_ones_has_a_handle() -> None:
    draft = MessageDraft("T", 0, b"", {"TIMER_OUT_MS": "5", "UNIQ_KEY": "K"}, 0, 0, 1, STORE_HOST)
    assert handle_of(draft, "T", "box") is None
    draft.topic, draft.properties[DUE_MS] = TIMER_TOPIC, "5"
    assert handle_of(draft, "T", "box") == RecallHandle("T", "box", 5, "K").encode()
    del draft.properties["UNIQ_KEY"]
    assert handle_of(draft, "T", "box") == RecallHandle("T", "box", 5, "").encode()
