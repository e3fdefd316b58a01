"""Calibrates a fine-tuned preset: writes the temperature, figures and a reliability diagram."""

import os
import pathlib
from typing import Any

import gpt1_keras
from gpt1_keras.files import check_writable, contents_of, read_json, write_json
from gpt1_keras.presets.card import update_card
from gpt1_keras.presets.pretrained import preset_in
from gpt1_keras.tasks.calibration import FRESH_ARGUMENTS, Calibration
from training.datasets.data_options import DEFAULT_DATA, DataOptions, ExampleOptions
from training.evaluation import temperature_scaling
from training.evaluation.fine_tuned_models import load_for_model, load_model
from training.evaluation.predictions import predict_outputs
from training.evaluation.reliability import plot_reliability

CALIBRATION, DIAGRAM = "calibration.json", "calibration.svg"  # in the folder of a run
_TASK = "task.json"


def calibrate_preset(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    asked: ExampleOptions,
    sure_precision: float | None = None,
    data: DataOptions = DEFAULT_DATA,
) -> dict[str, Any]:
    """Calibrates a preset on a split of a data set or on a file.

    Args:
        model: path of a run of `gpt1 finetune`, or of its preset. The preset's temperature and
            threshold are replaced last, after all other files but its card; its weights stay as
            they are.
        asked: which examples; those without a label are left out.
        sure_precision: above 0 and below 1, or None for no threshold.

    Returns:
        The content of calibration.json: `temperature`; `sure_threshold`, or None; `note`, why the
        temperature is 1, or None; and `before`, `after` and `sure`, as in
        `training.evaluation.temperature_scaling.Report`.

    Raises:
        ValueError: a model without classes or choices, or for another data set; no labels; or no
            threshold shows that precision.
        DivergedError: the model's outputs are not numbers.
    """
    preset = preset_in(pathlib.Path(model))
    if not (preset / _TASK).is_file():  # a name or handle: those files are not the user's
        raise ValueError(
            "Expected the folder of a fine-tuned model, such as RUN/best. Received: "
            f"{model}. {contents_of(model)}"
        )
    check_writable(output)
    fine_tuned, kind = load_model(model)
    if fine_tuned.calibration is None:
        raise ValueError(f"{model} predicts scores, which have no probabilities to calibrate.")
    described, _, examples = load_for_model(model, fine_tuned, kind, asked, data)
    examples = examples.labelled()
    if not len(examples):
        raise ValueError(f"{asked.file or asked.task} has no example with a label.")
    outputs = predict_outputs(fine_tuned, examples)
    report = temperature_scaling.calibrate(fine_tuned, outputs, examples.labels, sure_precision)
    content = {
        **described,
        "model": str(model),
        "examples": len(examples),
        **report.as_json(),
        "gpt1_keras": gpt1_keras.__version__,
    }
    plot_reliability(content, pathlib.Path(output, DIAGRAM))
    write_json(pathlib.Path(output, CALIBRATION), content)
    _store_calibration(preset, report.calibration)
    return content


def _store_calibration(preset: pathlib.Path, calibration: Calibration) -> None:
    """Writes a calibration into a preset's description, in place of the preset's own."""
    path = preset / _TASK
    task = read_json(path)
    kept = {name: value for name, value in task["config"].items() if name not in FRESH_ARGUMENTS}
    task["config"] = kept | calibration.get_config()
    write_json(path, task)
    update_card(preset)
