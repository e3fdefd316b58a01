"""Options of programs that read labelled data: where it is, and which of it to read."""

import dataclasses

from gpt1_keras.cli import option
from gpt1_keras.labelled_files import (
    LABEL,
    columns_option,
    fields_of_run,
    header_row_option,
    open_table,
    parse_columns,
    sheet_option,
    table_options,
)
from training.datasets.paper_datasets import DATASETS


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """Where a program finds its data sets."""

    data_dir: str | None = option(
        "folder of prepared TensorFlow Datasets (default: TFDS's own)", None
    )
    download: bool = option("download and prepare data sets that are missing", False)


DEFAULT_DATA = DataOptions()  # data sets in the default folder of TensorFlow Datasets


@dataclasses.dataclass(frozen=True)
class ExampleOptions:
    """Which examples a program reads: a split of a data set, or a user's file."""

    task: str | None = option(f"one of {', '.join(sorted(DATASETS))}; or give --file", None)
    file: str | None = option(
        "your own file, such as one that gpt1 finetune takes or RUN/validation.jsonl", None
    )
    columns: str | None = columns_option()
    sheet: str | None = sheet_option()
    header_row: int | None = header_row_option()
    split: str = option("split of --task", "validation", choices=("train", "validation", "test"))

    def __post_init__(self) -> None:
        if (self.task is None) == (self.file is None):
            raise ValueError("Give either --task or --file.")
        if self.file is None and (parse_columns(self.columns) or self.sheet or self.header_row):
            raise ValueError("columns, sheet and header_row are for --file.")

    def check_file(self, model: str) -> None:
        """Opens the file, so that one without a model's texts or labels is refused at once.

        Args:
            model: a run of `gpt1 finetune`, or its preset. Of others, the columns are not known.
        """
        if self.file is not None:
            fields = fields_of_run(model)
            wanted = [(*fields, LABEL)] if fields else []
            open_table(self.file, wanted=wanted, **table_options(self, model))
