"""docs/architecture.md names every room."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]


def test_every_room_is_described():
    page = (ROOT / "docs/architecture.md").read_text()
    described = set(re.findall(r"`((?:gpt1_keras|training|serving)/[\w/]+)/`", page))
    rooms = {
        str(path.parent.relative_to(ROOT))
        for package in ("gpt1_keras", "training", "serving")
        for path in (ROOT / package).glob("*/**/__init__.py")
    }
    assert sorted(rooms - described) == []
