"""Parquet files, and data sets that Hugging Face's `datasets` saved as Arrow files."""

import contextlib
import json
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gpt1_keras.files import read_json
from gpt1_keras.labelled_files.rows import BadRow, shortened, shown_names
from gpt1_keras.labelled_files.text_files import most_bytes, too_large

if TYPE_CHECKING:
    import pyarrow

_ROWS_OF_PIECE, _BYTES_OF_PIECE = 256, 2**24  # in memory at once
_MOST_ROWS = 2**16  # of a batch, from which pieces are taken
_STATE, _SPLITS = "state.json", "dataset_dict.json"
_OTHER_ENCODINGS = ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY")  # have no dictionaries
# What pyarrow raises for a value, such as a date after the year 9999 or in an unknown time zone.
_UNREADABLE = (ValueError, OverflowError, LookupError, RecursionError)


class ParquetRecords:
    """The rows of a .parquet file; see `Records`. Raises ValueError if it is damaged."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self.notices: list[str] = []
        with _errors_in_words(path):
            from pyarrow.parquet import read_schema

            schema = read_schema(path)
            self.columns, self._class_names = schema.names, _class_names(schema)

    def __iter__(self) -> Iterator[tuple[int, list[Any] | BadRow]]:
        return _rows(self._path, self._batches(), self._class_names, 0)

    def _batches(self) -> "Iterator[pyarrow.RecordBatch]":
        from pyarrow.parquet import ParquetFile, read_metadata

        metadata = read_metadata(self._path)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        size = sum(group.total_byte_size for group in groups)
        if size > most_bytes(self._path):
            raise too_large(self._path)
        # A text that many rows share stays one until its rows are counted. It is in every batch.
        shared, rows = [], max(_ROWS_OF_PIECE, _BYTES_OF_PIECE * metadata.num_rows // max(1, size))
        for number in range(len(metadata.schema)):
            column = metadata.schema.column(number)
            chunks = [group.column(number) for group in groups]
            encodings = {each for chunk in chunks for each in chunk.encodings}
            longest = column.length  # of an array of bytes; 0 for other types
            if column.physical_type == "BYTE_ARRAY":
                if encodings.isdisjoint(_OTHER_ENCODINGS):
                    shared.append(column.path)
                else:
                    longest = max(chunk.total_uncompressed_size for chunk in chunks)
            rows = min(rows, max(1, _BYTES_OF_PIECE // max(1, longest)))
        with ParquetFile(self._path, read_dictionary=shared) as file:
            for number in range(len(groups)):  # each has its own dictionaries
                yield from file.iter_batches(min(rows, _MOST_ROWS), row_groups=[number])


class DatasetRecords:
    """The rows of a folder that `datasets.Dataset.save_to_disk` wrote; see `Records`.

    Raises:
        FileNotFoundError: it is another folder.
        ValueError: it holds several splits, or is damaged.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        if (folder / _SPLITS).is_file():
            with _errors_in_words(folder):
                names = read_json(folder / _SPLITS).get("splits", [])
                splits = [str(folder / name) for name in names]
            raise ValueError(
                f"{folder} holds a data set's splits. Name one of them: {', '.join(splits)}."
            )
        if not (folder / _STATE).is_file():
            raise FileNotFoundError(
                f"{folder} is not a file, nor a folder that Hugging Face's Dataset.save_to_disk "
                "wrote."
            )
        self.notices: list[str] = []
        with _errors_in_words(folder):
            files = [each["filename"] for each in read_json(folder / _STATE)["_data_files"]]
            self._paths = [folder / pathlib.Path(name).name for name in files]
            with _stream(self._paths[0]) as reader:
                self.columns = reader.schema.names
                self._class_names = _class_names(reader.schema)

    def __iter__(self) -> Iterator[tuple[int, list[Any] | BadRow]]:
        last = 0
        for path in self._paths:
            for line, cells in _rows(path, self._batches(path), self._class_names, last):
                yield line, cells
                last = line

    def _batches(self, path: pathlib.Path) -> "Iterator[pyarrow.RecordBatch]":
        with _stream(path) as reader:
            if reader.schema.names != self.columns:
                raise TypeError(
                    f"it has the columns {shown_names(reader.schema.names)}, and "
                    f"{self._paths[0].name} has {shown_names(self.columns)}"
                )
            yield from reader


@contextlib.contextmanager
def _stream(path: pathlib.Path) -> "Iterator[pyarrow.RecordBatchStreamReader]":
    import pyarrow

    if path.exists() and not path.is_file():  # a named pipe would wait
        raise TypeError(f"{path.name} is not a file")
    with pyarrow.memory_map(str(path)) as file, pyarrow.ipc.open_stream(file) as reader:
        yield reader


def _rows(
    path: pathlib.Path,
    batches: "Iterator[pyarrow.RecordBatch]",
    class_names: dict[str, list[str]],
    line: int,
) -> Iterator[tuple[int, list[Any] | BadRow]]:
    """Yields the rows of a file, whose first comes after a line."""
    most, total = most_bytes(path), 0
    with _errors_in_words(path):
        for batch in batches:
            batch.validate(full=True)  # offsets of a damaged file may lead anywhere
            for piece in _pieces(batch):
                total += sum(map(_size, piece.columns))
                if total > most:
                    raise too_large(path)
                yield from _rows_of_piece(piece, line, class_names)
                line += piece.num_rows


def _pieces(batch: "pyarrow.RecordBatch") -> "Iterator[pyarrow.RecordBatch]":
    """Yields a batch in pieces, of which each is small or a single row."""
    if batch.num_rows <= _ROWS_OF_PIECE:
        if batch.num_rows <= 1 or sum(map(_size, batch.columns)) <= _BYTES_OF_PIECE:
            yield batch
            return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


def _size(array: "pyarrow.Array") -> int:
    """Returns about how many bytes the values of an array will take, before they are made.

    Raises TypeError for rare types in which a few bytes may stand for many values.
    """
    import pyarrow
    from pyarrow import types

    kind = array.type
    if isinstance(array, pyarrow.ExtensionArray):
        return _size(array.storage)
    if types.is_struct(kind):
        return sum(map(_size, array.flatten()))
    if types.is_map(kind):
        start, stop = array.offsets[0].as_py(), array.offsets[-1].as_py()
        parts = [each.slice(start, stop - start) for each in (array.keys, array.items)]
        return 4 * len(array) + sum(map(_size, parts))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return 4 * len(array) + _size(array.flatten())
    values = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_null(values):
        return len(array)
    if types.is_primitive(values) or types.is_decimal(values):
        return len(array) * max(1, values.bit_width // 8)
    return 4 * len(array) + _text_size(array)


def _text_size(array: "pyarrow.Array") -> int:
    """Returns how many bytes texts or bytes have together, as often as they occur."""
    import numpy as np
    from pyarrow import compute, types

    kind = array.type
    if types.is_string_view(kind) or types.is_binary_view(kind):
        views = np.frombuffer(array.buffers()[1], np.int32)  # four numbers each, first the length
        return int(views[4 * array.offset :: 4][: len(array)].sum(dtype=np.int64))
    values = kind.value_type if types.is_dictionary(kind) else kind
    known = (types.is_unicode, types.is_large_unicode, types.is_binary, types.is_large_binary)
    if not any(is_kind(values) for is_kind in (*known, types.is_fixed_size_binary)):
        raise TypeError(f"the type {kind} is not read")
    if types.is_dictionary(kind):
        lengths = compute.binary_length(array.dictionary).take(array.indices)
    else:
        lengths = compute.binary_length(array)
    return compute.sum(lengths).as_py() or 0


def _rows_of_piece(
    batch: "pyarrow.RecordBatch", line: int, class_names: dict[str, list[str]]
) -> Iterator[tuple[int, list[Any] | BadRow]]:
    from pyarrow import types

    columns = []
    bad: dict[int, BadRow] = {}
    for name, column in zip(batch.schema.names, batch.columns):
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()  # which is faster than value by value
        try:
            values = column.to_pylist()
        except _UNREADABLE:
            values = [None] * len(column)
            for number, scalar in enumerate(column):
                try:
                    values[number] = scalar.as_py()
                except _UNREADABLE as error:
                    bad[number] = BadRow(f"{name!r} holds no {column.type} of Python: {error}")
        names = class_names.get(name)
        if names is not None:
            values = [_class_name(names, value) for value in values]
        columns.append(values)
    for number, cells in enumerate(zip(*columns)):
        is_blank = all(cell is None for cell in cells)
        row = [""] * len(cells) if is_blank else list(cells)
        yield line + number + 1, bad.get(number, row)


def _class_names(schema: "pyarrow.Schema") -> dict[str, list[str]]:
    """Returns the names of classes that `datasets` keeps beside the columns of their indices.

    Raises TypeError if they are not as it writes them.
    """
    from pyarrow import types

    stored = (schema.metadata or {}).get(b"huggingface", b"{}")
    found = {}
    try:
        for name, feature in json.loads(stored).get("info", {}).get("features", {}).items():
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
                names = feature["names"]
                if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
                    raise TypeError
                if name in schema.names and types.is_integer(schema.field(name).type):
                    found[name] = names
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise TypeError(
            "its metadata differs from that of Hugging Face's datasets. Received: "
            f"{shortened(stored.decode(errors='replace'))}"
        ) from None
    return found


def _class_name(names: list[str], index: int | None) -> str | None:
    return None if index is None or not 0 <= index < len(names) else names[index]


@contextlib.contextmanager
def _errors_in_words(path: pathlib.Path) -> Iterator[None]:
    """Turns errors of a damaged file into ValueErrors that name it."""
    import pyarrow

    try:
        yield
    except (
        *(OSError, pyarrow.ArrowException, UnicodeError),
        *(LookupError, TypeError, AttributeError, RecursionError),
    ) as error:
        if getattr(error, "errno", None) is not None:  # of the system, not of pyarrow
            raise
        first = str(error).partition("\n")[0].rstrip(".")
        raise ValueError(f"{path} is damaged: {first or type(error).__name__}.") from None
