import pytest

from provisioning.labels import Label, labels_csv, labels_page

LABEL = Label("RBX-0007", "press-007", "Hall <2>", "10.0.0.2/24", "1.4.0", "acme")


def test_the_csv_has_a_header_and_one_line_per_box() -> None:
    assert labels_csv([LABEL]) == (
        "serial,name,site,address,version,owner_id\nRBX-0007,press-007,Hall <2>,10.0.0.2/24,1.4.0,acme\n"
    )


def test_the_page_has_a_sticker_with_a_code_and_escapes_what_people_typed() -> None:
    pytest.importorskip("segno")
    page = labels_page([LABEL, LABEL])
    assert page.count("<svg") == 2
    assert "Hall &lt;2&gt;" in page
    assert "<b>press-007</b>" in page


def test_the_code_finds_the_box_and_tells_no_secret() -> None:
    assert LABEL.code == "rocketbox:RBX-0007?name=press-007"
