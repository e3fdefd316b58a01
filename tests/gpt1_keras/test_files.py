"""Files that are written whole or not at all."""

import os
import subprocess
import sys

import pytest

from gpt1_keras import files
from gpt1_keras.files import (
    atomic_path,
    check_writable,
    leftovers,
    move_to_next_number,
    remove_leftovers,
    temporary_path,
)
from tests.helpers.small_disk import fill, small_disk


def write_file(path, content="new"):
    with open(path, "w") as file:
        file.write(content)


def write_folder(path, content="new"):
    os.mkdir(path)
    write_file(os.path.join(path, content), content)


def assert_holds(path, content):
    """`path` is a file of this content, or a folder with one such file."""
    if path.is_dir():
        assert [child.name for child in path.iterdir()] == [content]
        path = path / content
    assert path.read_text() == content


def assert_alone(path):
    assert [child.name for child in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("write", [write_file, write_folder])
def test_a_new_path(tmp_path, write):
    path = tmp_path / "not" / "yet" / "there.txt"
    with atomic_path(path) as temporary:
        write(temporary)
        assert not path.exists()
        assert os.path.splitext(temporary)[1] == ".txt"
    assert_holds(path, "new")
    assert_alone(path)


@pytest.mark.parametrize(
    ("write_old", "write"),
    [(write_file, write_file), (write_folder, write_folder), (write_folder, write_file)],
)
def test_a_file_or_folder_is_replaced(tmp_path, write_old, write):
    path = tmp_path / "path"
    write_old(path, "old")
    with atomic_path(path) as temporary:
        write(temporary)
        assert_holds(path, "old")
    assert_holds(path, "new")
    assert_alone(path)


@pytest.mark.parametrize("write", [write_file, write_folder])
def test_a_failure_leaves_the_old_one(tmp_path, write):
    path = tmp_path / "path"
    write(path, "old")
    with pytest.raises(RuntimeError, match="on purpose"):
        with atomic_path(path) as temporary:
            write(temporary)
            raise RuntimeError("on purpose")
    assert_holds(path, "old")
    assert_alone(path)


def test_a_failure_leaves_nothing_where_nothing_was(tmp_path):
    with pytest.raises(RuntimeError, match="on purpose"):
        with atomic_path(tmp_path / "path") as temporary:
            write_folder(temporary)
            raise RuntimeError("on purpose")
    assert not list(tmp_path.iterdir())


def test_a_folder_does_not_replace_a_file(tmp_path):
    path = tmp_path / "path"
    write_file(path, "old")
    with pytest.raises(OSError):
        with atomic_path(path) as temporary:
            write_folder(temporary)
    assert_holds(path, "old")
    assert_alone(path)


@pytest.mark.parametrize("write_old", [write_file, write_folder])
def test_a_block_that_writes_nothing_leaves_the_old_one(tmp_path, write_old):
    path = tmp_path / "path"
    write_old(path, "old")
    with pytest.raises(FileNotFoundError):
        with atomic_path(path):
            pass
    assert_holds(path, "old")
    assert_alone(path)


@pytest.mark.parametrize("write_old", [None, write_file, write_folder])
@pytest.mark.parametrize("write", [write_file, write_folder])
def test_a_folder_that_appears_meanwhile_is_not_replaced(tmp_path, write, write_old):
    path = tmp_path / "path"
    if write_old:
        write_old(path, "old")
    with pytest.raises(FileExistsError, match="meanwhile.*/path'"):
        with atomic_path(path) as temporary:
            write(temporary)
            if write_old:
                path.rename(tmp_path / "moved")
            write_folder(path, "another's")
    assert_holds(path, "another's")
    assert {child.name for child in tmp_path.iterdir()} <= {"path", "moved"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_the_old_folder_comes_back_if_the_new_one_cannot_take_its_place(
    tmp_path, monkeypatch, error
):
    path = tmp_path / "path"
    write_folder(path, "old")

    def fail(*_):
        assert not path.exists()  # it was moved away for the new one
        raise error

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(error):
        with atomic_path(path) as temporary:
            write_folder(temporary)
    assert_holds(path, "old")
    assert_alone(path)


def test_numbers_are_taken_once(tmp_path, monkeypatch):
    """By several programs at once, whose numbers come between; nothing that exists is replaced."""
    others = iter(["3", "4"])

    def rename(source, target, rename=os.rename):
        if name := next(others, None):
            write_folder(tmp_path / name, "another's")
        rename(source, target)

    for name in ("1", "02", "5.old"):
        write_folder(tmp_path / name, "another's")
    monkeypatch.setattr(os, "rename", rename)
    with temporary_path(tmp_path, "new") as temporary:
        write_folder(temporary)
        assert move_to_next_number(temporary, tmp_path) == str(tmp_path / "5")
    assert_holds(tmp_path / "5", "new")
    for name in ("1", "02", "3", "4", "5.old"):
        assert_holds(tmp_path / name, "another's")
    assert not leftovers(tmp_path)


def test_a_path_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with atomic_path("name") as temporary:
        write_file(temporary)
    assert_holds(tmp_path / "name", "new")


@pytest.mark.parametrize("write", [write_file, write_folder])
def test_content_reaches_the_disk_before_its_name(tmp_path, monkeypatch, write):
    path = tmp_path / "path"
    events = []

    def sync(descriptor):
        events.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))

    def replace(source, target, rename=os.replace):
        events.append("renamed")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    with atomic_path(path) as temporary:
        write(temporary)
    before = ["path"] if write is write_file else ["new", "path"]
    assert events == [*before, "renamed", tmp_path.name]


def test_what_a_killed_process_left_is_removed_and_no_more(tmp_path):
    folder = tmp_path / "[a] folder"
    with atomic_path(folder / "whole") as temporary:
        write_file(temporary)
    killed = subprocess.run(
        [
            sys.executable, "-c",
            # Without the package around it, which imports TensorFlow.
            "import os, runpy, sys; atomic_path = runpy.run_path(sys.argv[1])['atomic_path']\n"
            "with atomic_path(sys.argv[2]) as path:\n"
            "    open(path, 'w').write('half'); os.kill(os.getpid(), 9)",
            files.__file__, str(folder / "other"),
        ],
        start_new_session=True,
    )  # fmt: skip
    assert killed.returncode == -9
    assert len(list(folder.iterdir())) == 2
    remove_leftovers(folder)
    assert [path.name for path in folder.iterdir()] == ["whole"]
    remove_leftovers(tmp_path / "nowhere")


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    with small_disk(tmp_path / "small", "16k") as folder:
        check_writable(folder / "not" / "yet")
        fill(folder)
        with pytest.raises(OSError, match="No space.*/small/not/yet'"):
            check_writable(folder / "not" / "yet")
    with pytest.raises(PermissionError, match=r"\[Errno 1\d?\] .*: '/sys/run'"):
        check_writable("/sys/run")  # where root may not write either


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_json_has_no_such_numbers(tmp_path, number):
    with pytest.raises(ValueError, match=r"result\.json cannot be written"):
        files.write_json(tmp_path / "result.json", {"score": number})
    assert not list(tmp_path.iterdir())


def test_rows_of_csv(tmp_path):
    """Cells with a line end have quotation marks, by any version of Python."""
    rows = [["a\rb", "\r", "x"], ["a\r\n", 'say "hi",', ""], ["\n", 1.5, None]]
    with open(tmp_path / "a.csv", "w", encoding="utf-8", newline="") as file:
        write = files.csv_writer(file)
        write(rows[:1])
        write(iter(rows[1:]))
    content = (tmp_path / "a.csv").read_bytes()
    assert content == b'"a\rb","\r",x\n"a\r\n","say ""hi"",",\n"\n",1.5,\n'
