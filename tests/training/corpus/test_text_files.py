"""Which text files are documents, and their splits and groups."""

import codecs
import gzip
import os
import pathlib
import random

import numpy as np
import pytest

from tests.helpers.random_unicode import random_texts
from training.corpus.text_files import find_groups


def test_groups_are_consecutive_and_about_equal(tmp_path, write_texts):
    sizes = np.random.default_rng(0).integers(0, 1000, 300)
    write_texts(tmp_path, {f"{i:03}.txt": "x" * size for i, size in enumerate(sizes)})
    groups = find_groups(tmp_path, 5000)["train"]
    assert len(groups) == -(-sizes.sum() // 5000)
    names = [os.path.basename(path) for group in groups for path in group.paths]
    assert names == [f"{i:03}.txt" for i in range(300)]
    of_group = [sum(map(os.path.getsize, group.paths)) for group in groups]
    assert max(of_group) - min(of_group) <= 2 * sizes.max()


def test_a_validation_share_goes_by_name_alone(tmp_path, write_texts):
    texts = {f"{i}.txt": f"a film {i}" for i in range(200)}

    def divide(folder, names):
        write_texts(tmp_path / folder, {name: texts[name] for name in names})
        groups = find_groups(tmp_path / folder, 10**6, validation_share=0.2)
        return {
            split: {os.path.basename(path) for group in groups[split] for path in group.paths}
            for split in groups
        }

    every = divide("all", texts)
    assert 20 < len(every["validation"]) < 60
    assert every["train"] | every["validation"] == set(texts)
    some = divide("some", list(texts)[::2])
    assert some["validation"] == every["validation"] & set(list(texts)[::2])


def held_back(source, share=None):
    """The names and lines of each split."""
    groups = find_groups(source, 10**6, share)
    return {
        split: {
            os.path.relpath(path, source): list(lines)
            for group in groups[split]
            for path, lines in zip(group.paths, group)
        }
        for split in groups
    }


@pytest.mark.parametrize("count", [2, 3, 40, 400])
def test_validation_is_held_back_by_default(count, tmp_path, write_texts):
    """A twentieth of the documents, but at least one; what has splits of its own keeps them."""
    texts = {f"{number}.txt": f"a film {number}" for number in range(count)}
    texts |= {f"blank {number}.txt": " \n" for number in range(count if count < 40 else 0)}
    splits = held_back(write_texts(tmp_path, texts))
    assert splits["train"] | splits["validation"] == {
        name: [text.encode()] for name, text in texts.items()
    }
    held = [name for name in splits["validation"] if not name.startswith("blank")]
    assert max(1, count / 40) <= len(held) <= max(1, count / 10)
    assert set(held_back(tmp_path, 0.0)) == {"train"}


def test_splits_of_one_s_own_are_kept(stories, write_texts, tmp_path):
    assert held_back(stories) == held_back(stories, 0.0)
    write_texts(tmp_path / "two", {"train/a.txt": "one\ntwo", "test/b.txt": "three"})
    assert held_back(tmp_path / "two") == {
        "train": {"train/a.txt": [b"one\n"]},
        "validation": {"train/a.txt": [b"two"]},
        "test": {"test/b.txt": [b"three"]},
    }


def test_the_last_lines_of_a_single_document(tmp_path, capsys):
    path = tmp_path / "a.txt.gz"
    lines = [f"line {number}\n\n".encode() for number in range(100)]
    path.write_bytes(gzip.compress(b"".join(lines) + b"\n\n"))
    groups = {split: group for split, [group] in find_groups(path, 10**6, None).items()}
    assert capsys.readouterr().out == (
        f"Held back for validation: the last 5 of 100 lines of {path}.\n"
    )
    read = {split: b"".join(b"".join(each) for each in group) for split, group in groups.items()}
    assert read == {"train": b"".join(lines[:95]), "validation": b"".join(lines[95:]) + b"\n\n"}
    assert str(groups["train"]) == f"{path}, lines[0:190]"
    assert str(groups["validation"]) == f"{path}, lines[190:]"

    path.write_bytes(gzip.compress(b"one line\n\n"))
    assert set(find_groups(path, 10**6, None)) == {"train"}
    assert "has one line: nothing can be held back" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ({"more.txt": "outside"}, "more.txt lies outside the splits of .* ['train', 'valid']"),
        (
            {"validation/a.txt": "twice"},
            "must have one folder for validation. Received: ['train', 'valid', 'validation']",
        ),
        ({"test/a.md": "no text"}, "test holds no .txt or .text file"),
    ],
)
def test_odd_splits_are_refused(added, message, stories, write_texts):
    write_texts(pathlib.Path(stories), added)
    with pytest.raises(ValueError, match=message.replace("[", r"\[").replace("]", r"\]")):
        find_groups(stories, 10**6)


def documents(source):
    """The names and the text of the documents of each split."""
    return {
        split: {
            os.path.relpath(path, source): b"".join(lines).decode()
            for group in groups
            for path, lines in zip(group.paths, group)
        }
        for split, groups in find_groups(source, 10**6).items()
    }


@pytest.mark.parametrize(
    "names",
    [
        ("train", "valid", "test"),
        ("Train", "Valid", "TEST"),
        ("training", "val", "testing"),
        ("TRAIN", "Dev", "Test"),
    ],
)
def test_the_names_of_splits(names, write_texts, tmp_path):
    write_texts(tmp_path, {f"{name}/a.txt": name for name in names})
    expected = [{f"{name}/a.txt": name} for name in names]
    assert documents(tmp_path) == dict(zip(("train", "validation", "test"), expected))


def test_what_is_a_document_and_what_is_left_out(write_texts, tmp_path, capsys):
    names = ["a.txt", "b.TXT", "c.text", "d.txt.gz", "e.md", "sub/f.Txt", "sub/g.csv", "h.gz"]
    source = pathlib.Path(write_texts(tmp_path / "shelf", dict.fromkeys(names, "a film")))
    (source / "d.txt.gz").write_bytes(gzip.compress(b"a film"))
    (source / "i.txt").symlink_to("nowhere")
    expected = ["a.txt", "b.TXT", "c.text", "d.txt.gz", "sub/f.Txt"]
    assert documents(source) == {"train": dict.fromkeys(expected, "a film")}
    assert capsys.readouterr().err == (
        f"warning: 4 file(s) of {source} are left out, which are not .txt or .text files or are "
        "linked twice: e.md, h.gz, i.txt, sub/g.csv\n"
    )


def test_links_are_followed(write_texts, tmp_path):
    """Also to a folder that holds them; nothing is read twice, so nothing is in two splits."""
    write_texts(tmp_path, {"shelf/a.txt": "a film", "novels/b.txt": "a good one"})
    corpus = tmp_path / "corpus"
    (corpus / "valid").mkdir(parents=True)
    (corpus / "train").symlink_to("../shelf")
    (corpus / "valid" / "novels").symlink_to(tmp_path / "novels")
    (corpus / "valid" / "loop").symlink_to(tmp_path / "corpus")
    (corpus / "valid" / "again").symlink_to(tmp_path / "shelf")
    assert documents(corpus) == {
        "train": {"train/a.txt": "a film"},
        "validation": {"valid/novels/b.txt": "a good one"},
    }
    (corpus / "test").symlink_to("../shelf")
    with pytest.raises(ValueError, match="no .txt or .text file"):
        documents(corpus)


def test_any_encoding_is_read_right_or_refused(tmp_path):
    """Python's codecs say what is right. ASCII reads the same in Latin-1 and in UTF-8."""
    chance = random.Random(0)
    texts = [
        "Le pr\u00e9sident \u00e9tait d\u00e9j\u00e0 l\u00e0.\nOui.\n",
        "ascii\r\nonly",
        "\u6771\u4eac",
        "",
    ]
    texts += [text.replace("\0", "") for text in random_texts(np.random.default_rng(0), [30] * 40)]
    path, read, refused = tmp_path / "a.txt", 0, 0
    for text in texts:
        lines = text.replace("\n", " ").split(" ", chance.randrange(4))
        text = "\n".join(lines)
        for name, mark in [
            ("utf-8", b""),
            ("utf-8", codecs.BOM_UTF8),
            ("utf-16-le", codecs.BOM_UTF16_LE),
            ("utf-16-be", codecs.BOM_UTF16_BE),
            ("utf-16-le", b""),
            ("utf-16-be", b""),
            ("utf-32-le", codecs.BOM_UTF32_LE),
            ("latin-1", b""),
            ("cp1252", b""),
            ("shift_jis", b""),
        ]:
            try:
                content = mark + text.encode(name)
            except UnicodeEncodeError:
                continue
            path.write_bytes(content)
            try:
                found = documents(path)["train"]["."]
            except ValueError as error:
                assert f"{path}, line " in str(error)
                assert not name.startswith("utf-8") and not (name.startswith("utf-16") and mark)
                refused += 1
            else:
                assert found == text, (name, mark)
                read += 1
    assert min(read, refused) > 40


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a\nLe pr\u00e9sident\n".encode("latin-1"), 2),
        (b"x\n" * 9000 + b"\xff\n" + b"x\n" * 9000, 9001),
        ("a\n\u00e9\n".encode("utf-16-le"), 1),
        (codecs.BOM_UTF16_LE + "a\nb\n".encode("utf-16-le") + b"c", 3),
        (codecs.BOM_UTF16_LE + b"a\0\n\0\x00\xd8\n\0b\0", 2),
        (gzip.compress(b"a", mtime=0), 1),
    ],
)
def test_the_line_of_what_is_no_text(content, line, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"a.txt, line {line}: .*UTF-8"):
        documents(path)


@pytest.mark.parametrize("content", [b"no gzip", gzip.compress(b"a film", mtime=0)[:-4]])
def test_a_damaged_compressed_file(content, tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="a.txt.gz"):
        documents(path)
