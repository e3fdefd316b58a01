"""Evaluates a fine-tuned preset on a split of a data set, or on a user's file."""

import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gpt1_keras
from gpt1_keras.cli import warn
from gpt1_keras.examples import Examples
from gpt1_keras.files import check_writable, write_json, write_text
from training.datasets.data_options import DEFAULT_DATA, DataOptions, ExampleOptions
from training.datasets.user_files import Dataset
from training.evaluation.answer_report import plot_report, write_report
from training.evaluation.baselines import score_baselines
from training.evaluation.comparison import compare
from training.evaluation.fine_tuned_models import load_for_model, load_model
from training.evaluation.metrics import check_scorable, score
from training.evaluation.predictions import predict_outputs, predictions_of, write_predictions

# GLUE expects the classes' names in these files, and their indices in the others.
_NAMED = ("MNLI-m.tsv", "MNLI-mm.tsv", "QNLI.tsv", "RTE.tsv")


def evaluate(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    asked: ExampleOptions,
    data: DataOptions = DEFAULT_DATA,
    find_train: Callable[[], Examples | None] = lambda: None,
    beside: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Evaluates a model on a split of a data set or on a file.

    Args:
        model: path of the preset that `gpt1 finetune` wrote.
        find_train: returns what the model has learned from, for the baselines; None leaves them
            out. It is called once the model has answered.
        beside: path of another preset, to compare with; see `training.evaluation.comparison`.

    Returns:
        The content of `result.json`; without metrics where there are no labels.
    """
    folder = pathlib.Path(output)
    check_writable(folder)
    fine_tuned, kind = load_model(model)
    described, dataset, examples = load_for_model(model, fine_tuned, kind, asked, data)
    labelled = np.flatnonzero(examples.is_labelled)
    if len(labelled):
        check_scorable(examples.take(labelled), dataset.metrics, str(asked.file or asked.task))
    outputs = predict_outputs(fine_tuned, examples)
    predictions = predictions_of(outputs)
    result = {
        **described,
        "model": str(model),
        "examples": len(examples),
        "labelled": len(labelled),
        "gpt1_keras": gpt1_keras.__version__,
    }
    if len(labelled):
        scored = examples.take(labelled)
        result["metrics"] = score(scored, predictions[labelled], dataset.metrics)
        train = find_train()
        if train is not None and _fits(train, scored):
            result["baselines"] = score_baselines(dataset, train, scored)
        write_report(folder, fine_tuned, scored, outputs[labelled])
        if beside is not None:
            result["compared"] = compare(
                *(fine_tuned, predictions[labelled], scored, beside, folder)
            )
    if dataset.glue_file:
        lines = _glue_lines(dataset, examples, predictions)
        write_text(folder / dataset.glue_file, "".join(f"{line}\n" for line in lines))
    write_predictions(folder, examples, predictions)
    if len(labelled):
        plot_report(folder, examples.class_names)
    write_json(folder / "result.json", result)
    return result


def _fits(train: Examples, scored: Examples) -> bool:
    """Returns whether baselines can learn from some examples to predict others; warns if not."""
    if (train.class_names, train.texts.keys()) == (scored.class_names, scored.texts.keys()):
        return True
    warn("No baselines: the run beside the model learned from data of other columns or classes.")
    return False


def _glue_lines(dataset: Dataset, examples: Examples, predictions: np.ndarray) -> Iterator[str]:
    yield "index\tprediction"
    for index, prediction in sorted(zip(examples.indices.tolist(), predictions.tolist())):
        if dataset.score_range is not None:
            prediction = f"{prediction:.3f}"
        elif dataset.glue_file in _NAMED and examples.class_names is not None:
            prediction = examples.class_names[prediction]
        yield f"{index}\t{prediction}"
