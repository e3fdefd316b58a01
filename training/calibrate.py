"""Calibrates a fine-tuned model: its probabilities become those of being right.

    python -m training.calibrate --task sst2 --model RUN/best --data-dir DIR --output RUN
    python -m training.calibrate --file FILE --model RUN/best --output RUN

`training.finetune` does it on the validation data at its end. This does it again, on data that you
choose, which the model must not have learned from: it finds the temperature, writes it into the
preset, from where it gets into exports, and leaves figures, calibration.json, and a reliability
diagram, calibration.svg, in the output. Labels never change.

With `--sure-precision 0.95`, the preset also gets a threshold, and exports say of each answer
whether it `is_sure`: of such answers, 95 % are right, as far as the examples show.
"""

import dataclasses
import os
import sys
from typing import Any

import gpt1_keras
from gpt1_keras.cli import option, program
from gpt1_keras.files import check_writable
from training.datasets.task_models import load_model
from training.datasets.tfds_builders import DataOptions
from training.evaluation import calibration
from training.evaluation.model_examples import ExampleOptions, check_one_source, load_for_model
from training.evaluation.scoring import predict_outputs
from training.runs.calibration_files import check_is_folder, store_calibration, write_calibration


@dataclasses.dataclass(frozen=True)
class _Options:
    model: str = option("preset that training.finetune wrote, such as RUN/best; it is changed")
    output: str = option("folder for calibration.json and calibration.svg")
    sure_precision: float | None = option(
        "share of right answers among those that an export calls sure, such as 0.95 (default: "
        "it calls none so)",
        None,
        metavar="SHARE",
    )

    def __post_init__(self) -> None:
        _check_precision(self.sure_precision)


def calibrate(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    task: str | None = None,
    file: str | os.PathLike[str] | None = None,
    split: str = "validation",
    sure_precision: float | None = None,
    data_dir: str | None = None,
    download: bool = False,
) -> dict[str, Any]:
    """Calibrates a model on a task or on a file.

    Args:
        model: path of the preset that `training.finetune` wrote. Its temperature and its threshold
            are replaced once all else is written; its weights stay as they are.
        output: path of the folder to write to.
        task, file, split, data_dir, download: as in `training.evaluate.evaluate`; what is not
            labelled is left out.
        sure_precision: above 0 and below 1, or None for no threshold.

    Returns:
        The content of calibration.json: `temperature`; `sure_threshold`, or None; `note`, why the
        temperature is 1, or None; and `before`, `after` and `sure`, as in
        `training.evaluation.calibration.Report`.

    Raises:
        FileNotFoundError: the model, the data set or the file does not exist.
        ValueError: not exactly one of `task` and `file`; a model without classes or choices, or for
            another task; no labels; or no threshold shows that precision.
        DivergedError: the model's outputs are not numbers.
        OSError: nothing can be written to `output`.
    """
    check_one_source(task, file)
    _check_precision(sure_precision)
    check_is_folder(model)
    check_writable(output)
    fine_tuned, kind = load_model(model)
    if fine_tuned.calibration is None:
        raise ValueError(f"{model} predicts scores, which have no probabilities to calibrate.")
    described, _, examples = load_for_model(
        *(model, fine_tuned, kind, task, file, split, data_dir, download)
    )
    examples = examples.labelled()
    if not len(examples):
        raise ValueError(f"{file or task} has no example with a label.")
    outputs = predict_outputs(fine_tuned, examples)
    report = calibration.calibrate(fine_tuned, outputs, examples.labels, sure_precision)
    content = {
        **described,
        "model": str(model),
        "examples": len(examples),
        **report.as_json(),
        "gpt1_keras": gpt1_keras.__version__,
    }
    write_calibration(output, content)
    store_calibration(model, report.calibration)
    return content


def _check_precision(precision: float | None) -> None:
    if precision is not None and not 0.0 < precision < 1.0:
        raise ValueError(f"sure_precision must be above 0 and below 1. Received: {precision}.")


@program("training.calibrate")
def main(options: _Options, examples: ExampleOptions, data: DataOptions) -> None:
    """Calibrate a fine-tuned model's probabilities, on a split of a data set or your own file."""
    content = calibrate(**vars(options), **vars(examples), **vars(data))
    print(calibration.describe(content))


if __name__ == "__main__":
    sys.exit(main())
