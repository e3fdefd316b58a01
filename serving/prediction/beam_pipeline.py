"""Answers the rows of files in an Apache Beam pipeline, on one machine or many."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from gpt1_keras.beam import run_in_beam
from gpt1_keras.files import atomic_path
from serving.engines import open_engine
from serving.prediction.answers_file import Layout
from serving.prediction.input_files import InputFiles, Shard
from serving.prediction.predict_rows import Outcome, write_answers

_open_engine = functools.lru_cache(maxsize=1)(open_engine)  # once in each process


def predict_in_beam(
    model: str,
    explain: bool,
    files: InputFiles,
    layout: Layout,
    output: pathlib.Path,
    runner: str,
    flags: Sequence[str] = (),
) -> Outcome:
    """Answers the rows of files, and writes a folder of files, whole or not at all.

    Their names, sorted, give the order of the input.

    Args:
        output: the folder's path, whose suffix says the format of the files in it. All workers must
            reach it, the model and the input under the same paths.
        runner, flags: as in `run_in_beam`.

    Raises:
        OSError: the runner has left out rows.
        ValueError: no row has an answer.
    """
    with atomic_path(output) as temporary:
        os.mkdir(temporary)
        suffix = output.suffix.lower()
        write = functools.partial(_write, model, explain, files, layout, temporary, suffix)
        found = run_in_beam(write, files.shards(), temporary, runner, flags)
        outcome = Outcome.total(Outcome(**each) for each in found)
        outcome.check()
    return outcome


def _write(
    model: str,
    explain: bool,
    files: InputFiles,
    layout: Layout,
    folder: str,
    suffix: str,
    shard: Shard,
) -> dict[str, Any]:
    """Writes a shard's answers, and returns its outcome."""
    engine = _open_engine(model, explain)
    with atomic_path(pathlib.Path(folder, f"part-{shard.name}{suffix}")) as part:
        outcome = write_answers(engine, files, [shard], layout, pathlib.Path(part))
    return dataclasses.asdict(outcome)
