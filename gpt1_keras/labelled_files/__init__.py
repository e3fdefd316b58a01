"""The reader of users' own tables of texts: CSV, TSV, JSON Lines, Parquet, Arrow and Excel."""

from gpt1_keras.labelled_files.columns import columns_option, parse_columns
from gpt1_keras.labelled_files.numbers import tell_of_numbers_as_classes, use_decimal_points
from gpt1_keras.labelled_files.rows import (
    CHOICES,
    LABEL,
    BadRows,
    Row,
    as_label,
    is_blank,
    shortened,
    shown_names,
    with_texts,
)
from gpt1_keras.labelled_files.table import Table, open_table, read_rows

__all__ = [
    "CHOICES",
    "LABEL",
    "BadRows",
    "Row",
    "Table",
    "as_label",
    "columns_option",
    "is_blank",
    "open_table",
    "parse_columns",
    "read_rows",
    "shortened",
    "shown_names",
    "with_texts",
    "tell_of_numbers_as_classes",
    "use_decimal_points",
]
