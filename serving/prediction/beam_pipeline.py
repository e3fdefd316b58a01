"""Answers the rows of files in an Apache Beam pipeline, on one machine or many."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gpt1_keras.answers import Answer, Engine
from gpt1_keras.files import atomic_path, read_json, write_json
from serving.engines import open_engine
from serving.prediction.answering import Outcome, Window, answered, windows
from serving.prediction.answers_file import Layout, answers_file
from serving.prediction.input_files import InputFiles

try:
    import apache_beam as beam
    from apache_beam.ml.inference.base import KeyedModelHandler, ModelHandler, RunInference
    from apache_beam.options.pipeline_options import PipelineOptions
except ImportError:
    raise ImportError('A runner needs Apache Beam: pip install "gpt1-keras[beam]".') from None

_WINDOWS_OF_SHARD = 32  # 65,536 short rows, which one worker holds in memory to write them
_OUTCOME = "outcome.json"

# Of a shard: its windows by their numbers.
_Asked = tuple[int, Window]
_Answered = tuple[int, Window, Sequence[Answer]]


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
        runner: name of Beam's runner. `FnApiRunner` runs on this machine.

    Raises:
        ValueError: no row has an answer.
    """
    with atomic_path(output) as temporary:
        os.mkdir(temporary)
        work = _Work(files, layout, pathlib.Path(temporary))
        with beam.Pipeline(options=PipelineOptions([f"--runner={runner}", *flags])) as pipeline:
            _ = (
                pipeline
                | beam.Create(range(len(files.paths)))
                | "Share files" >> beam.Reshuffle()
                | "Read" >> beam.FlatMap(work.read)
                | "Share windows" >> beam.Reshuffle()
                | RunInference(KeyedModelHandler(_Handler(model, explain)))
                | beam.GroupByKey()
                | "Write" >> beam.Map(work.write)
                | beam.combiners.ToList()
                | "Write outcome" >> beam.Map(work.finish)
            )
        found = work.folder / _OUTCOME
        outcome = Outcome(**read_json(found))
        found.unlink()
        outcome.check()
    return outcome


class _Handler(ModelHandler[_Asked, _Answered, Engine]):
    """Answers windows of rows in a worker."""

    def __init__(self, model: str, explain: bool) -> None:
        super().__init__(max_batch_size=1)  # windows are split into batches as it is
        self._model, self._explain = model, explain

    def load_model(self) -> Engine:
        return open_engine(self._model, self._explain)

    def run_inference(
        self, batch: Sequence[_Asked], model: Engine, inference_args: Any = None
    ) -> Iterable[_Answered]:
        for number, window in batch:
            for _, answers in answered(model, [window]):
                yield number, window, answers


@dataclasses.dataclass(frozen=True)
class _Work:
    """What workers do before and after inference."""

    files: InputFiles
    layout: Layout
    folder: pathlib.Path

    def read(self, index: int) -> Iterator[tuple[str, Any]]:
        """Yields the windows of a file, each with its shard's name and its number."""
        path = self.files.paths[index]
        found = windows(self.files.rows(path), self.files.fields, str(path))
        for number, window in enumerate(found):
            shard = f"{index:05}-{number // _WINDOWS_OF_SHARD:05}"
            yield shard, (number, window)

    def write(self, shard_and_windows: tuple[str, Iterable[_Answered]]) -> dict[str, Any]:
        """Writes a shard, and returns its outcome as a dict."""
        shard, found = shard_and_windows
        outcome = Outcome()
        with atomic_path(self.folder / f"part-{shard}{self.folder.suffix.lower()}") as temporary:
            with answers_file(pathlib.Path(temporary), self.layout) as write:
                for _, window, answers in sorted(found, key=lambda each: each[0]):
                    outcome.count(window.examples, answers)
                    write(self.layout.rows(window.cells, answers))
        return dataclasses.asdict(outcome)

    def finish(self, outcomes: Iterable[dict[str, Any]]) -> None:
        """Writes the outcome of all shards."""
        total = Outcome.total(Outcome(**each) for each in outcomes)
        write_json(self.folder / _OUTCOME, dataclasses.asdict(total))
