"""Files of labelled texts, made up and damaged: read as they are meant, or refused in words."""

import csv
import gzip
import io
import json
import tempfile
from pathlib import Path

import hypothesis
import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st

from gpt1_keras.labelled_files import (
    CHOICES,
    LABEL,
    as_label,
    is_blank,
    read_rows,
    with_labels,
    with_texts,
)
from gpt1_keras.tasks.batches import string_tensors
from tests.helpers.fuzzing import damaged, search
from training.datasets.labelled_examples import load_examples
from training.datasets.user_files import find_user_files


def _written(write):
    """What pandas writes of a small table."""
    file = io.BytesIO()
    write(pd.DataFrame({"text": ["schön", "öde"], "label": [1, 0]}), file, index=False)
    return file.getvalue()


# Every fault that was found in these files, and a good one of each kind.
SEEDS = [
    (".csv", b"text,label\na good film,yes\na bad film,no\n"),
    (".tsv", b'label\ttext1\ttext2\n0.5\t"a\tb\n3\tc\td\n'),
    (".csv", b"context,question,choice1,choice2,choice3,label\nc,q,x,y,,1\nd,r,u,v,w,2\n"),
    (".jsonl", b'{"context": "c", "choices": ["x", "y"], "label": 1}\n'),
    (".csv", b"context,choice1,choice2,choice3,label\nc,x,,z,1\n"),  # a choice left out
    (".csv", b"context,choice2,choice1,label\nc,x,y,0\n"),  # in another order
    (".csv", b"context,choice0,choice1,label\nc,x,y,0\n"),  # counted from 0
    (".csv", b"text,label,text\na,b,c\n"),
    (".csv", b"text,label\na,\nb,yes\n"),  # an empty label
    (".csv", b"context,choices,label\nabc,def,1\n"),  # choices that are one text
    (".jsonl", b'{"text": null, "label": "a"}\n'),
    (".jsonl", b'{"text": ["a", "b"], "label": "a"}\n'),
    (".jsonl", b'{"text": "a", "label": ["a"]}\n'),
    (".jsonl", b'{"text": "a", "label": {"a": 1}}\n'),
    (".jsonl", b'{"text": "\\ud83d", "label": "a"}\n'),
    (".jsonl", b'{"text": "a", "label": NaN}\n{"text": "b", "label": 1e999}\n'),
    (".jsonl", b'{"text": "a", "label": 0.5}\n{"text": "b", "label": 1e300}\n'),
    (".jsonl", b'{"text": "a", "text": "b", "label": 1}\n'),
    (".jsonl", b"[" * 5000),
    (".jsonl", b'{"text": "a", "label": ' + b"1" * 5000 + b"}"),
    (".csv", b"text,label\n\xff,1\n"),
    (".csv", b'text,label\n"a,1\n'),
    (".csv", b"\xef\xbb\xbftext,label\r\na,1\r\n"),
    (".csv", b"\n\ntext,label\na,1\n"),
    (".csv", b"\xef\xbb\xbftext;label\r\na;1\r\n"),  # of a spreadsheet
    (".csv", b"text,label\na, yes\nb,yes \n"),  # blanks around a label
    (".csv", b"text,label\na,0.5\nb,nan\n"),  # a score that is missing
    (".csv", b"sep=;\r\nReview;Rating;;\r\ngood;1;;\r\n;;;\r\nbad;0\r\n"),
    (".csv", "text|label\r\nschön|gut\r\nöde|schlecht\r\n".encode("cp1252")),
    (".tsv", 'text\tlabel\r\n"schön ""x"""\tgut\r\n'.encode("utf-16")),
    (".csv", b"text;label, or so\na;b, c\n"),  # two separators fit
    (".csv", b"text\na, b\nc\n"),
    (".xlsx", _written(pd.DataFrame.to_excel)),
    (".parquet", _written(pd.DataFrame.to_parquet)),
]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@pytest.fixture(scope="module")
def read():
    """Reads bytes as a file of a suffix, as far as the tensors that training takes."""
    with tempfile.TemporaryDirectory() as folder:

        def read(suffix, content, is_compressed=False):
            path = Path(folder, f"a{suffix}{'.gz' if is_compressed else ''}")
            path.write_bytes(gzip.compress(content, mtime=0) if is_compressed else content)
            dataset = find_user_files(path, path)
            rows = read_rows(path, wanted=[(*dataset.fields, LABEL)])
            rows = with_labels(with_texts(rows, dataset.fields, path), path)
            return rows, load_examples(dataset, "train")

        yield read


def assert_read_or_refused(read, suffix, content, is_compressed=False):
    try:
        rows, examples = read(suffix, content, is_compressed)
    except ValueError as error:
        message = str(error)
        assert len(message) < 4000 + 3 * len(content) and "a" + suffix in message
        return
    assert len(rows) == len(examples) == len(examples.labels)
    for field, texts in examples.texts.items():
        for row, value in zip(rows, texts, strict=True):
            expected = row[field]
            if field == CHOICES:
                assert [text.decode() for text in value] == expected and expected
            else:
                assert value.decode() == expected
    for row, label in zip(rows, examples.labels, strict=True):
        assert row[LABEL].strip() and np.isfinite(label)
        if examples.class_names is not None:
            assert examples.class_names[label].lower() == row[LABEL].lower()
        elif CHOICES in row:
            assert 0 <= label < len(row[CHOICES]) and float(row[LABEL]) == label
    assert {key for row in rows for key in row} == set(rows[0])
    string_tensors(examples.texts)


@pytest.mark.parametrize(("suffix", "content"), SEEDS)
def test_every_fault_that_was_found(read, suffix, content):
    assert_read_or_refused(read, suffix, content)
    assert_read_or_refused(read, suffix, content, is_compressed=True)


@pytest.mark.slow
@search(200)
@hypothesis.given(st.data())
def test_damaged_files(read, data):
    suffix, content = data.draw(st.sampled_from(SEEDS))
    content = data.draw(damaged(content))
    suffix = data.draw(
        st.sampled_from([suffix] * 3 + [".csv", ".tsv", ".jsonl", ".xlsx", ".parquet"])
    )
    assert_read_or_refused(read, suffix, content, data.draw(st.booleans()))


@search(50)
@hypothesis.given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5), st.booleans())
def test_what_csv_writes_is_read(read, rows, is_compressed):
    """Against Python's own writer, with every letter there is."""
    file = io.StringIO(newline="")
    csv.writer(file).writerows([("text", "label"), *rows])
    content = file.getvalue().encode()
    labels = [as_label(label) for _, label in rows]
    expected = [(text, label) for (text, _), label in zip(rows, labels) if not is_blank(text)]
    if all(labels) and expected:
        found, _ = read(".csv", content, is_compressed)
        assert [(row["text"], row[LABEL]) for row in found] == expected
    assert_read_or_refused(read, ".csv", content)


@search(50)
@hypothesis.given(
    st.lists(st.tuples(TEXTS, st.lists(TEXTS, min_size=1, max_size=4)), min_size=1, max_size=5)
)
def test_what_json_writes_is_read(read, rows):
    content = "".join(
        json.dumps({"context": context, CHOICES: choices, LABEL: len(choices) - 1}) + "\n"
        for context, choices in rows
    )
    expected = [row for row in rows if not any(map(is_blank, [row[0], *row[1]]))]
    if expected:
        found, examples = read(".jsonl", content.encode())
        assert [(row["context"], row[CHOICES]) for row in found] == expected
        assert examples.labels.tolist() == [len(choices) - 1 for _, choices in expected]
    assert_read_or_refused(read, ".jsonl", content.encode())
