"""Answers the rows of files in an Apache Beam pipeline, on one machine or many."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Sequence

from gpt1_keras.files import atomic_path, read_json, remove_leftovers, write_json
from serving.engines import open_engine
from serving.prediction.answers_file import Layout
from serving.prediction.input_files import InputFiles, Shard
from serving.prediction.predict_rows import Outcome, write_answers

try:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
except ImportError:
    raise ImportError('A runner needs Apache Beam: pip install "gpt1-keras[beam]".') from None

_OUTCOME = ".outcome"  # what the name of a shard's outcome ends with

_open_engine = functools.lru_cache(maxsize=1)(open_engine)  # once in each process


def predict_in_beam(
    model: str,
    explain: bool,
    files: InputFiles,
    layout: Layout,
    output: pathlib.Path,
    total: int,
    runner: str,
    flags: Sequence[str] = (),
) -> Outcome:
    """Answers the rows of files, and writes a folder of files, whole or not at all.

    Their names, sorted, give the order of the input. A runner may answer a shard more than once, as
    after a worker's death: what is written depends on the shard alone.

    Args:
        output: the folder's path, whose suffix says the format of the files in it. All workers must
            reach it, the model and the input under the same paths.
        total: how many rows there are.
        runner: name of Beam's runner. `FnApiRunner` runs on this machine.

    Raises:
        OSError: the runner has left out rows.
        ValueError: no row has an answer.
    """
    with atomic_path(output) as temporary:
        os.mkdir(temporary)
        work = _Work(model, explain, files, layout, pathlib.Path(temporary))
        with beam.Pipeline(options=PipelineOptions([f"--runner={runner}", *flags])) as pipeline:
            _ = pipeline | beam.Create(files.shards()) | beam.Reshuffle() | beam.Map(work.write)
        outcome = work.outcome()
        if outcome.rows != total:
            raise OSError(f"{runner} has answered {outcome.rows:,} of {total:,} rows.")
        outcome.check()
    return outcome


@dataclasses.dataclass(frozen=True)
class _Work:
    """What workers do, and what they leave."""

    model: str
    explain: bool
    files: InputFiles
    layout: Layout
    folder: pathlib.Path

    def write(self, shard: Shard) -> None:
        engine = _open_engine(self.model, self.explain)
        path = self.folder / f"part-{shard.name}{self.folder.suffix.lower()}"
        with atomic_path(path) as temporary:
            part = pathlib.Path(temporary)
            outcome = write_answers(engine, self.files, [shard], self.layout, part)
        write_json(f"{path}{_OUTCOME}", dataclasses.asdict(outcome))

    def outcome(self) -> Outcome:
        """Returns the outcome of all shards, and leaves nothing but these in the folder."""
        remove_leftovers(self.folder)  # of workers that were killed
        found = sorted(self.folder.glob(f"*{_OUTCOME}"))
        total = Outcome.total(Outcome(**read_json(path)) for path in found)
        for path in found:
            path.unlink()
        return total
