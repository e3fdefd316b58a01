"""Evaluates a fine-tuned model on a split of a data set, or on your own file.

    python -m training.evaluate --task sst2 --model runs/sst2/best --data-dir DIR --output DIR
    python -m training.evaluate --file FILE --model runs/mine/best --output DIR

DIR/result.json has the metrics over the whole split, and DIR/predictions.jsonl a line for each
example. For GLUE's tasks DIR also has the file, such as SST-2.tsv, that its server takes; send it
that of `--split test`, whose labels are not public.
"""

import dataclasses
import json
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

import gpt1_keras
from gpt1_keras.cli import option, program
from gpt1_keras.files import atomic_path, check_writable
from training.datasets.labelled_examples import LabelledExamples
from training.datasets.task_models import load_model
from training.datasets.tasks import Task
from training.datasets.tfds_builders import DataOptions
from training.datasets.user_files import UserFileTask
from training.evaluation.model_examples import ExampleOptions, check_one_source, load_for_model
from training.evaluation.predictions import write_predictions
from training.evaluation.scoring import check_scorable, predict, score

# In these GLUE wants the names of the classes, in the others their indices.
_NAMED = ("MNLI-m.tsv", "MNLI-mm.tsv", "QNLI.tsv", "RTE.tsv")


@dataclasses.dataclass(frozen=True)
class _Options:
    model: str = option("preset that training.finetune wrote, such as RUN/best")
    output: str = option("folder for result.json and the predictions")


def evaluate(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    task: str | None = None,
    file: str | os.PathLike[str] | None = None,
    split: str = "validation",
    data_dir: str | None = None,
    download: bool = False,
) -> dict[str, Any]:
    """Evaluates a model on a task or on a file.

    Args:
        model: path of the preset that `training.finetune` wrote.
        output: path of the folder to write to.
        task: a key of `training.datasets.tasks.TASKS`.
        file: path of a file as in `training.datasets.user_files`.
        split: of the task: `"train"`, `"validation"` or `"test"`.
        data_dir: folder of the prepared data sets; TensorFlow Datasets' own by default.
        download: whether to download and prepare a missing data set.

    Returns:
        The content of `result.json`; without metrics where there are no labels.

    Raises:
        FileNotFoundError: the model, the data set or the file does not exist.
        ValueError: not exactly one of `task` and `file`, an unknown task, a model for another kind
            of task or other classes, or labels of which a metric is undefined.
        OSError: nothing can be written to `output`.
    """
    check_one_source(task, file)
    folder = pathlib.Path(output)
    check_writable(folder)
    fine_tuned, kind = load_model(model)
    what, data, examples = load_for_model(
        *(model, fine_tuned, kind, task, file, split, data_dir, download)
    )
    labelled = np.flatnonzero(examples.is_labelled)
    if len(labelled):
        check_scorable(examples.take(labelled), data.metrics, str(file or task))
    predictions = predict(fine_tuned, examples)
    result = {
        **what,
        "model": str(model),
        "examples": len(examples),
        "labelled": len(labelled),
        "gpt1_keras": gpt1_keras.__version__,
    }
    if len(labelled):
        result["metrics"] = score(examples.take(labelled), predictions[labelled], data.metrics)
    if data.glue_file:
        _write(folder / data.glue_file, _glue_lines(data, examples, predictions))
    write_predictions(folder, examples, predictions)
    _write(folder / "result.json", [json.dumps(result, indent=2)])
    return result


def _glue_lines(
    task: Task | UserFileTask, examples: LabelledExamples, predictions: np.ndarray
) -> Iterator[str]:
    yield "index\tprediction"
    for index, prediction in sorted(zip(examples.indices.tolist(), predictions.tolist())):
        if task.score_range is not None:
            prediction = f"{prediction:.3f}"
        elif task.glue_file in _NAMED and examples.class_names is not None:
            prediction = examples.class_names[prediction]
        yield f"{index}\t{prediction}"


def _write(path: pathlib.Path, lines: Iterable[str]) -> None:
    with atomic_path(path) as temporary:
        pathlib.Path(temporary).write_text("".join(f"{line}\n" for line in lines))


@program("training.evaluate")
def main(options: _Options, examples: ExampleOptions, data: DataOptions) -> None:
    """Evaluate a fine-tuned model on a split of a data set, or on your own file."""
    result = evaluate(**vars(options), **vars(examples), **vars(data))
    for name, value in result.get("metrics", {}).items():
        print(f"{name}: {value:.4f}")


if __name__ == "__main__":
    sys.exit(main())
