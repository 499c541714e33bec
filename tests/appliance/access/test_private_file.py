"""Private files: who may read them, and what lies in their way."""

from pathlib import Path

from appliance.access.private_file import replace_private


def test_a_replaced_file_is_for_its_owner_alone_whatever_the_old_one_was(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    replace_private(path, "new\n")
    assert (path.read_text(), path.stat().st_mode & 0o777, list(tmp_path.iterdir())) == ("new\n", 0o600, [path])


def test_a_link_in_the_way_of_the_new_file_is_not_followed(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "secret", tmp_path / "elsewhere"
    elsewhere.write_text("untouched")
    (tmp_path / "secret.tmp").symlink_to(elsewhere)
    replace_private(path, "new")
    assert (path.read_text(), elsewhere.read_text(), path.is_symlink()) == ("new", "untouched", False)
