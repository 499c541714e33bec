from pathlib import Path

from appliance.broker.access import request_docs
from appliance.broker.access.request_table import ROWS


def test_the_page_of_requests_is_made_from_the_table() -> None:
    assert Path("docs/requests.md").read_text() == request_docs.page(), f"run `python -m {request_docs.__name__}`"


def test_every_code_has_one_row_of_six_cells() -> None:
    rows = [line for line in request_docs.page().splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert sorted(int(row.split(" | ")[0].strip("| ")) for row in rows) == sorted(row.code for row in ROWS.values())
    assert {len(row.strip("|").split("|")) for row in rows} == {6}
