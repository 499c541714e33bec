"""Planted secrets do not survive, in any notation; what is no secret does."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.support.redaction import GONE, Redactor

SECRET = "hunter2-Zx81q"


@pytest.mark.parametrize(
    "line",
    [
        f"secret = '{SECRET}'",
        f'secret_key = "{SECRET}"  # of the press line',
        f'password="""\n{SECRET}\nsecond {SECRET}\n"""',
        f"secretKey={SECRET}",
        f"secretKey: {SECRET}",
        f'{{"accounts":[{{"accessKey":"k","secretKey":"{SECRET}"}}]}}',
        f'"tokens": ["{SECRET}", "{SECRET}"],',
        f"Authorization: Bearer {SECRET}",
        f"event=asked authorization=Basic {SECRET} peer=1.2.3.4",
        f"curl -H 'X-Api-Key: {SECRET}' http://box",
        f"gateway = 'https://operator:{SECRET}@gateway.example:443/x'",
        f"Cookie: rocketbox={SECRET}; other=1",
        f"rocketbox send --secret {SECRET} --topic T",
        f"<14>Mar 1 10:00:00 box x[1]: event=x Signature={SECRET} code=10",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
        f"-----BEGIN EC PRIVATE KEY-----\n{SECRET}\n(torn)",
        f"aws AKIA{'A1B2C3D4E5F6G7H8'}",
    ],
)
def test_what_a_name_calls_a_secret_is_taken_out(line: str) -> None:
    said = Redactor([]).text(f"before\n{line}\nafter\n")
    assert SECRET not in said
    assert "AKIAA1B2" not in said
    assert GONE in said
    assert said.startswith("before\n")


def test_a_known_secret_is_taken_out_wherever_it_stands() -> None:
    redactor = Redactor([f"{SECRET}\n", "short"])
    assert redactor.text(f"peer said {SECRET}! and {SECRET}") == f"peer said {GONE}! and {GONE}"
    assert redactor.counts == {"known": 2}
    assert redactor.text("short words stay") == "short words stay"


def test_json_keeps_its_form_and_loses_its_secrets() -> None:
    text = json.dumps({"a": {"secret": SECRET, "keep": 1}, "keys": [{"token": [SECRET]}], "count": 7})
    found = json.loads(Redactor([]).file("x.json", text))
    assert found == {"a": {"secret": GONE, "keep": 1}, "keys": [{"token": GONE}], "count": 7}


def test_ordinary_lines_stay_as_they_are() -> None:
    text = "event=closed peer=10.0.0.1 reason=idle\nstore.segment_mib = 256\nkeys: cycle-1\nhttp://box:8087/metrics\n"
    redactor = Redactor([])
    assert redactor.text(text) == text
    assert not redactor.counts


@given(st.text(min_size=8, max_size=40).filter(lambda text: len(text.strip()) >= 8), st.text(max_size=80))
def test_a_known_secret_never_comes_through(secret: str, around: str) -> None:
    said = Redactor([secret]).text(f"{around}{secret}{around}")
    assert secret.strip() not in said or secret.strip() in GONE * 3


def test_a_megabyte_of_log_takes_no_minute() -> None:
    text = "event=x stack=" + "0123456789abcdef" * 65536 + "\nwords and words\n" * 20_000
    began = time.process_time()
    Redactor(["not in there"]).text(text)
    assert time.process_time() - began < 5
