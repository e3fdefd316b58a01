"""The reader of users' own tables of texts: CSV, TSV, JSON Lines, Parquet, Arrow and Excel."""

from gpt1_keras.labelled_files.columns import (
    USUAL_COLUMNS,
    TableOptions,
    columns_of_run,
    columns_option,
    fields_of_run,
    header_row_option,
    parse_columns,
    sheet_option,
    table_options,
)
from gpt1_keras.labelled_files.labels import (
    as_number,
    numbers_of_labels,
    tell_of_numbers_as_classes,
    use_decimal_points,
    use_one_spelling,
    with_labels,
)
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
from gpt1_keras.labelled_files.summary import summary
from gpt1_keras.labelled_files.table import Table, is_table, open_table, read_rows

__all__ = [
    "CHOICES",
    "LABEL",
    "USUAL_COLUMNS",
    "BadRows",
    "Row",
    "Table",
    "TableOptions",
    "as_label",
    "as_number",
    "columns_of_run",
    "columns_option",
    "fields_of_run",
    "header_row_option",
    "is_blank",
    "is_table",
    "numbers_of_labels",
    "open_table",
    "parse_columns",
    "read_rows",
    "sheet_option",
    "shortened",
    "shown_names",
    "summary",
    "table_options",
    "tell_of_numbers_as_classes",
    "use_decimal_points",
    "use_one_spelling",
    "with_labels",
    "with_texts",
]
