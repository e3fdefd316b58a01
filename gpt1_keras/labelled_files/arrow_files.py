"""Parquet files, and data sets that Hugging Face's `datasets` saved as Arrow files."""

import contextlib
import json
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gpt1_keras.files import read_json
from gpt1_keras.labelled_files.rows import BadRow
from gpt1_keras.labelled_files.text_files import most_bytes, too_large

if TYPE_CHECKING:
    import pyarrow

_BATCH_SIZE = 256  # rows in memory at once
_STATE, _SPLITS = "state.json", "dataset_dict.json"


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
        from pyarrow.parquet import ParquetFile

        with _errors_in_words(self._path), ParquetFile(self._path) as file:
            groups = [file.metadata.row_group(n) for n in range(file.metadata.num_row_groups)]
            most, total = most_bytes(self._path), 0
            if sum(group.total_byte_size for group in groups) > most:
                raise too_large(self._path)
            line = 0
            for batch in file.iter_batches(_BATCH_SIZE):
                total += batch.nbytes
                if total > most:
                    raise too_large(self._path)
                yield from _rows(batch, line, self._class_names)
                line += batch.num_rows


class DatasetRecords:
    """The rows of a folder that `datasets.Dataset.save_to_disk` wrote; see `Records`.

    Raises:
        FileNotFoundError: it is another folder.
        ValueError: it holds several splits, or is damaged.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        if (folder / _SPLITS).is_file():
            splits = [str(folder / name) for name in read_json(folder / _SPLITS).get("splits", [])]
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
        line = 0
        for path in self._paths:
            with _errors_in_words(path), _stream(path) as reader:
                for large in reader:
                    large.validate(full=True)  # offsets of a damaged file may lead anywhere
                    for start in range(0, large.num_rows, _BATCH_SIZE):
                        batch = large.slice(start, _BATCH_SIZE)
                        yield from _rows(batch, line, self._class_names)
                        line += batch.num_rows


@contextlib.contextmanager
def _stream(path: pathlib.Path) -> "Iterator[pyarrow.RecordBatchStreamReader]":
    import pyarrow

    with pyarrow.memory_map(str(path)) as file, pyarrow.ipc.open_stream(file) as reader:
        yield reader


def _rows(
    batch: "pyarrow.RecordBatch", line: int, class_names: dict[str, list[str]]
) -> Iterator[tuple[int, list[Any] | BadRow]]:
    columns = []
    for name, column in zip(batch.schema.names, batch.columns):
        values = column.to_pylist()
        if name in class_names:
            values = [_class_name(class_names[name], value) for value in values]
        columns.append(values)
    for number, cells in enumerate(zip(*columns), line + 1):
        is_blank = all(cell is None for cell in cells)
        yield number, [""] * len(cells) if is_blank else list(cells)


def _class_names(schema: "pyarrow.Schema") -> dict[str, list[str]]:
    """Returns the names of classes that `datasets` keeps beside the columns of their indices."""
    stored = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features = stored.get("info", {}).get("features", {})
    return {
        name: feature["names"]
        for name, feature in features.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
    }


def _class_name(names: list[str], index: int | None) -> str | None:
    return None if index is None or not 0 <= index < len(names) else names[index]


@contextlib.contextmanager
def _errors_in_words(path: pathlib.Path) -> Iterator[None]:
    """Turns errors of a damaged file into ValueErrors that name it."""
    import pyarrow

    try:
        yield
    except (OSError, pyarrow.ArrowException, LookupError, TypeError, AttributeError) as error:
        if getattr(error, "errno", None) is not None:  # of the system, not of pyarrow
            raise
        first = str(error).partition("\n")[0]
        raise ValueError(f"{path} is damaged: {first or type(error).__name__}.") from None
