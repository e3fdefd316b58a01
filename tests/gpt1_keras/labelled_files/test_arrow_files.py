"""Parquet files, and data sets that Hugging Face's `datasets` saved."""

import datetime
import os

import datasets
import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

from gpt1_keras.labelled_files import open_table, read_rows

FRAME = pd.DataFrame(
    {
        "Kommentar": ["schön, ja", "zwei\nZeilen", None, "ende"],
        "Note": [1, 2, None, 3],
        "am": [datetime.datetime(2024, 1, 2), None, None, datetime.datetime(2024, 1, 2, 3, 4)],
    }
)
COLUMNS = {"text": "Kommentar", "label": "Note"}
WANTED = [("text", "label")]


def dicts(path):
    return [(row["text"], row["label"]) for row in open_table(path, COLUMNS, WANTED)]


EXPECTED = [("schön, ja", "1"), ("zwei\nZeilen", "2"), ("ende", "3")]


def test_damaged_files(tmp_path):
    path = tmp_path / "a.parquet"
    FRAME.to_parquet(path)
    content = path.read_bytes()
    for damaged in (b"", b"text,label\na,b\n", content[:-30], b"PK" + content[40:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a\.parquet is damaged"):
            read_rows(path)


def test_parquet_that_pandas_writes(tmp_path):
    path = tmp_path / "a.parquet"
    FRAME.to_parquet(path)
    assert dicts(path) == EXPECTED
    FRAME.assign(Kommentar=FRAME.Kommentar.astype("category")).to_parquet(path)
    assert dicts(path) == EXPECTED
    frame = pd.DataFrame({"text": ["a", None], "label": ["b", "c"]})
    frame.to_parquet(path)
    with pytest.raises(ValueError, match="line 2: 'text' must be a text .* Received: null"):
        read_rows(path)


def test_parquet_with_other_columns_of_any_kind(tmp_path):
    path = tmp_path / "a.parquet"
    table = {"text": ["a"], "tags": [[{"x": 1}]], "choices": [["b", "c"]], "seen": [None]}
    pyarrow.parquet.write_table(pyarrow.table(table), path)
    [row] = open_table(path, wanted=[("text", "choices")])
    assert row == {"text": "a", "tags": '[{"x": 1}]', "choices": ["b", "c"], "seen": ""}
    with pytest.raises(ValueError, match="line 1: 'tags' must be a text"):
        read_rows(path)


def test_parquet_that_expands_beyond_measure(tmp_path):
    path = tmp_path / "a.parquet"
    column = pyarrow.array(["x" * 10_000] * 3_000).dictionary_encode()
    pyarrow.parquet.write_table(pyarrow.table({"text": column.cast("string")}), path)
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match="has more than [0-9,]+ bytes of text"):
        read_rows(path)


TEXT = "".join(map(chr, np.random.default_rng(0).integers(32, 127, 1_000_000)))
REPEATED = pyarrow.DictionaryArray.from_arrays(np.zeros(1_800, np.int32), [TEXT])


@pytest.mark.parametrize(
    "column",
    [
        REPEATED,
        pyarrow.ListArray.from_arrays([0, 600, 1_200, 1_800], REPEATED),
        pyarrow.StructArray.from_arrays([REPEATED], ["a"]),
    ],
    ids=["texts", "lists", "structs"],
)
def test_parquet_whose_rows_share_a_long_text(tmp_path, column):
    """The rows would take 2 GB, and are refused before they are made."""
    before = pyarrow.default_memory_pool().max_memory()
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": ["a"] * len(column), "other": column})
    pyarrow.parquet.write_table(table, path, dictionary_pagesize_limit=2**30)
    assert path.stat().st_size < 2_000_000
    with pytest.raises(ValueError, match="has more than [0-9,]+ bytes of text"):
        read_rows(path, wanted=[("text",)])
    assert pyarrow.default_memory_pool().max_memory() < max(before + 1, 100_000_000)


MAP = pyarrow.map_(pyarrow.string(), pyarrow.int8())


def test_parquet_as_programs_write_it(tmp_path):
    """Several row groups, more texts than a dictionary takes, other encodings, nested types."""
    texts = [str(n % 7) if n % 3 else TEXT[600 * n :][:3_000] for n in range(1_600)]
    table = pyarrow.table(
        {
            "text": texts,
            "choices": [[text, "b", None] for text in texts],
            "pairs": pyarrow.array([[(text, 1)] for text in texts], MAP),
            "tags": [{"one": text, "two": [{"three": text}]} for text in texts],
            "view": pyarrow.array(texts, pyarrow.string_view()),
        }
    )
    expected = [list(row.values()) for row in table.to_pylist()]
    for settings in (
        {},
        {"row_group_size": 600},
        {"data_page_version": "2.0", "compression": "zstd"},
        {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
    ):
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet", **settings)
        found = list(open_table(tmp_path / "a.parquet", wanted=[("text",)]).with_cells())
        assert [cells for _, cells in found] == expected, settings
        assert [row.line for row, _ in found] == list(range(1, 1_601))


def test_values_that_python_does_not_have(tmp_path):
    """They are told with their lines, and the others are read."""
    path = tmp_path / "a.parquet"
    table = {
        "text": ["a", "b", "c"],
        "am": pyarrow.array([0, 2**62, 1], pyarrow.timestamp("us")),  # the year 148,107
        "bis": pyarrow.array([0, 1, 2**31 - 1], pyarrow.date32()),
    }
    pyarrow.parquet.write_table(pyarrow.table(table), path)
    with pytest.raises(ValueError, match="line 2: 'am' holds no timestamp.* line 3: 'bis' holds n"):
        read_rows(path)


@pytest.mark.parametrize(
    "metadata",
    [
        "{",
        "[]",
        "[" * 100_000,
        '{"info": []}',
        '{"info": {"features": []}}',
        '{"info": {"features": {"label": {"_type": "ClassLabel"}}}}',
        '{"info": {"features": {"label": {"_type": "ClassLabel", "names": 2}}}}',
        '{"info": {"features": {"label": {"_type": "ClassLabel", "names": [null, ["a"]]}}}}',
    ],
)
def test_metadata_of_strangers(tmp_path, metadata):
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": ["a", "b"], "label": [0, 1]})
    pyarrow.parquet.write_table(table.replace_schema_metadata({"huggingface": metadata}), path)
    with pytest.raises(ValueError, match=r"a\.parquet is damaged"):
        read_rows(path)


@pytest.fixture
def saved(tmp_path):
    """A data set of Hugging Face's, and a folder where it is saved."""
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    data = datasets.Dataset.from_dict(
        {"text": [f"text {number}" for number in range(600)], "label": [0, 1, 1] * 200}, features
    )
    data.save_to_disk(tmp_path / "saved", num_shards=2)
    return data, tmp_path / "saved"


def test_a_data_set_of_hugging_face_s(saved):
    data, folder = saved
    rows = read_rows(folder)
    assert [row["text"] for row in rows] == list(data["text"])
    names = data.features["label"].names
    assert [row["label"] for row in rows] == [names[number] for number in data["label"]]
    assert rows[-1].line == 600
    chosen = data.filter(lambda row: row["label"] == 1).shuffle(seed=0)
    chosen.save_to_disk(folder.parent / "chosen")
    assert [row["text"] for row in read_rows(folder.parent / "chosen")] == list(chosen["text"])
    data.to_parquet(folder.parent / "a.parquet")
    assert read_rows(folder.parent / "a.parquet") == rows


def test_folders_that_are_refused(saved, tmp_path):
    data, folder = saved
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(tmp_path / "both")
    with pytest.raises(ValueError, match="splits. Name one of them: .*both/train, .*both/test"):
        read_rows(tmp_path / "both")
    [part, *_] = sorted(folder.glob("*.arrow"))
    part.write_bytes(part.read_bytes()[:-200])
    with pytest.raises(ValueError, match="is damaged"):
        read_rows(folder)
    part.unlink()
    with pytest.raises(FileNotFoundError):
        read_rows(folder)
    os.mkfifo(part)  # reading it would wait
    with pytest.raises(ValueError, match="is not a file"):
        read_rows(folder)
    (folder / "state.json").write_text('{"_data_files": 2}')
    with pytest.raises(ValueError, match="saved is damaged"):
        read_rows(folder)


def test_files_of_a_folder_with_other_columns(saved):
    """They would be read as each other's."""
    data, folder = saved
    _, part = sorted(folder.glob("*.arrow"))
    table = data.data.table.select(["label", "text"])
    with pyarrow.ipc.new_stream(part, table.schema) as file:
        file.write_table(table)
    with pytest.raises(ValueError, match=r"it has the columns \['label', 'text'\]"):
        read_rows(folder)
