"""Which folder an export's path stands for."""

import pytest

from serving.export_names import find_export


@pytest.fixture
def exports(tmp_path):
    """A base folder of three versions, below a folder that is none."""
    for version in ("2", "10", "9"):
        (tmp_path / "mine" / version).mkdir(parents=True)
        (tmp_path / "mine" / version / "saved_model.pb").touch()
    (tmp_path / "mine" / "notes").mkdir()
    return tmp_path


def test_the_newest_version(exports):
    assert find_export(exports / "mine") == exports / "mine" / "10"
    assert find_export(exports / "mine" / "2") == exports / "mine" / "2"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("mien", "mien is not an export: .* holds mine/. Did you mean .*/mine?"),
        ("mine/3", "/3 is not an export: .*/mine holds 10/, 2/, 9/, notes/"),
        (".", "is not an export: it has no saved_model.pb. .* holds mine/."),
    ],
)
def test_no_export(path, message, exports):
    with pytest.raises(FileNotFoundError, match=message):
        find_export(exports / path)


def test_a_version_that_is_not_whole(exports):
    (exports / "mine" / "11").mkdir()
    with pytest.raises(FileNotFoundError, match="/mine/11 is not an export: .* holds nothing."):
        find_export(exports / "mine")
