"""docs/architecture.md names every room, and its picture every program and every large room."""

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


def test_the_picture_names_programs_and_rooms():
    picture = (ROOT / "docs/architecture.svg").read_text()
    names = set(re.findall(r"[\w.]+", re.sub(r"<[^>]*>", " ", picture)))
    programs = {
        path.parent.name if path.stem == "__main__" else path.stem
        for package in ("training", "serving")
        for path in (ROOT / package).rglob("*.py")
        if "\n@program(" in path.read_text()
    }
    rooms = {
        path.parent.name
        for package in ("gpt1_keras", "training", "serving")
        for path in (ROOT / package).glob("*/__init__.py")
    }
    assert sorted((programs | rooms) - names) == []
