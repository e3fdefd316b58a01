"""Answers every row of a table: its columns, and the label, its score and those of all classes.

    gpt1 predict --model exports/sst2 --input new.csv --output answers.csv
    gpt1 predict --model runs/sst2/best --input new.jsonl --output answers.parquet
    gpt1 predict --model runs/sst2/best --input new.xlsx --output why.html --explain
    gpt1 predict --model exports/sst2 --input "new-*.csv" --output answers.csv \\
        --runner FlinkRunner

An export runs in TensorFlow's C++ runtime, as in production; a preset runs the graph that it would
be exported with. The file is read and written in bounded memory, and written whole or not at all.
With --runner, options of Apache Beam go to it; those that a runner's job server alone knows come
after `--`. Its workers must reach the model, the input and the output's folder under the same paths
as this machine.
"""

import dataclasses
import pathlib
import sys
import time

from gpt1_keras.cli import option, program, warn
from gpt1_keras.labelled_files import (
    columns_option,
    header_row_option,
    open_table,
    sheet_option,
    table_options,
)
from gpt1_keras.presets import PRESET_HELP, PRESET_NAMES


@dataclasses.dataclass(frozen=True)
class _PredictOptions:
    model: str = option(
        "folder of an export, for its newest version, or of one version; a .tflite file; or "
        f"{PRESET_HELP}",
        name=PRESET_NAMES,
    )
    input: str = option(
        "table of texts: .csv, .tsv, .jsonl, .parquet or .xlsx, with the columns that the model "
        "reads; several of the same columns as a pattern, such as 'new-*.csv'",
        metavar="FILE",
    )
    output: str = option(
        "what to write: .csv, .tsv, .jsonl, .parquet or .xlsx; or .html, a page for people, whose "
        "words --explain colours; with --runner, a folder of tables, whose names give the order",
        metavar="FILE",
    )
    columns: str | None = columns_option()
    sheet: str | None = sheet_option()
    header_row: int | None = header_row_option()
    explain: bool = option(
        "add the words that led to each answer, and their shares in it (an export needs the "
        "signature explain)",
        False,
    )
    runner: str | None = option(
        "the Apache Beam runner that does the work: FnApiRunner (this machine), FlinkRunner, "
        "SparkRunner, ...; it takes Beam's own options, and all after -- (default: without Beam)",
        None,
    )


def _check(options: _PredictOptions) -> None:
    """Opens the input, so that one that cannot be read is refused at once."""
    from serving.prediction.answers_file import check_output
    from serving.prediction.input_files import find_files

    check_output(pathlib.Path(options.output), is_folder=options.runner is not None)
    for path in find_files(options.input):
        open_table(path, **table_options(options))


@program(
    "serving.predict",
    interrupted="Interrupted; nothing was written.",
    check=_check,
    takes_more=True,
)
def main(options: _PredictOptions, more: list[str]) -> None:
    """Answer every row of a table by an export or a preset: its columns, and the label, its score
    and those of all classes.
    """
    beam_flags = main.beam_arguments(more, options.runner)
    from serving.prediction.answers_file import (
        Layout,
        check_fits,
        is_page,
        prefix_for,
    )
    from serving.prediction.answers_page import check_rows
    from serving.prediction.input_files import InputFiles, find_files

    output = pathlib.Path(options.output)
    paths = find_files(options.input)
    if any(path.exists() and output.exists() and path.samefile(output) for path in paths):
        raise ValueError(f"The output must be another file than the input. Received: {output}.")
    from serving.engines import open_engine  # which imports TensorFlow

    engine = open_engine(options.model, options.explain)
    survey = InputFiles(paths, table_options(options, options.model), engine.fields).survey()
    for notice in survey.notices:
        print(notice)
    prefix = ""
    if is_page(output):  # which has no columns
        check_rows(output, survey.rows)
    elif prefix := prefix_for(survey.columns, engine.columns):
        print(f"The answers' columns begin with {prefix}, as the input has some of their names.")
    layout = Layout(survey.columns, survey.kinds, engine.columns, prefix)
    rows_of_file = survey.rows if options.runner is None else 0  # shards are shorter
    check_fits(output, layout, rows_of_file, survey.longest, survey.longest_at)
    started = time.monotonic()
    if options.runner is None:
        from serving.prediction.predict_rows import predict

        outcome = predict(engine, survey.files, layout, output, survey.rows)
    else:
        from serving.prediction.beam_pipeline import predict_in_beam

        outcome = predict_in_beam(
            *(options.model, options.explain, survey.files, layout, output),
            *(options.runner, beam_flags),
        )
    seconds = time.monotonic() - started
    for warning in outcome.warnings():
        warn(warning)
    print(
        f"{output}: {outcome.rows - outcome.unanswered:,} answers in {seconds:.1f} s "
        f"({outcome.rows / seconds:,.0f} rows/s)"
    )


if __name__ == "__main__":
    sys.exit(main())
