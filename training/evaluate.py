"""Evaluates a fine-tuned model on a split of a data set, or on your own file.

    python -m training.evaluate --task sst2 --model runs/sst2/best --data-dir DIR --output DIR
    python -m training.evaluate --file FILE --model runs/mine/best --output DIR

DIR/result.json has the metrics over the whole split, and DIR/predictions.jsonl a line for each
example. For GLUE's tasks DIR has the file, such as SST-2.tsv, that its server takes; `--split test`
gives what to send there, as those labels are not public.
"""

import argparse
import json
import pathlib
import sys

import numpy as np

import gpt1_keras
from gpt1_keras.files import atomic_path
from training.datasets.labelled_examples import load_examples
from training.datasets.task_models import load_model
from training.datasets.tasks import TASKS, find_task
from training.datasets.user_files import user_file_task_of
from training.evaluation.scoring import predict, score

_SPLITS = ("train", "validation", "test")
# Of these GLUE wants the names of the classes, of the others their numbers.
_NAMED = ("MNLI-m.tsv", "MNLI-mm.tsv", "QNLI.tsv", "RTE.tsv")


def evaluate(
    model, output, task=None, file=None, split="validation", data_dir=None, download=False
):
    """Evaluates a model.

    Args:
        model: path of the preset that `training.finetune` wrote.
        output: path of the folder for what comes out.
        task: str, a key of `training.datasets.tasks.TASKS`; or
        file: path of a table, as in `training.datasets.user_files`.
        split: of the task: `"train"`, `"validation"` or `"test"`.
        data_dir, download: as in `training.datasets.labelled_examples.load_examples`.

    Returns:
        The result, a dict, as in `result.json`; without metrics where there are no labels.

    Raises:
        FileNotFoundError: the model or the data set is not there.
        ValueError: not one of `task` and `file`, an unknown task, or a model of another kind or
            with other classes.
    """
    if (task is None) == (file is None):
        raise ValueError("Give either --task or --file.")
    what = {"task": task, "split": split} if file is None else {"file": str(file)}
    fine_tuned, kind = load_model(model)
    if file is None:
        task = find_task(task)
    else:
        task, split = user_file_task_of(fine_tuned, kind, file), "test"
    examples = load_examples(task, split, data_dir, download)
    _check_fits(model, fine_tuned, kind, task, examples)
    answers = predict(fine_tuned, examples)
    known = np.flatnonzero(examples.is_labelled)
    result = {
        **what,
        "model": str(model),
        "examples": len(examples),
        "labelled": len(known),
        "gpt1_keras": gpt1_keras.__version__,
    }
    if len(known):
        result["metrics"] = score(examples.take(known), answers[known], task.metrics)
    output = pathlib.Path(output)
    if task.glue_file:
        _write(output / task.glue_file, _glue_lines(task, examples, answers))
    _write(output / "predictions.jsonl", _prediction_lines(examples, answers))
    _write(output / "result.json", [json.dumps(result, indent=2)])
    return result


def _check_fits(path, model, kind, task, examples):
    """Raises ValueError unless the model's answers are those of the task."""
    for what, found, expected in (
        ("is for", kind, task.kind),
        ("has the classes", getattr(model, "class_names", None), examples.class_names),
        ("takes", model.preprocessor.fields, tuple(task.fields)),
    ):
        if found != expected:
            raise ValueError(f"{path} {what} {found}; the task has {expected}.")


def _glue_lines(task, examples, answers):
    yield "index\tprediction"
    for number, answer in sorted(zip(examples.numbers.tolist(), answers.tolist())):
        if task.score_range is not None:
            answer = f"{answer:.3f}"
        elif task.glue_file in _NAMED:
            answer = examples.class_names[answer]
        yield f"{number}\t{answer}"


def _prediction_lines(examples, answers):
    labels = np.where(examples.is_labelled, examples.labels.astype(object), None)
    columns = (examples.numbers.tolist(), labels.tolist(), answers.tolist())
    for number, label, answer in zip(*columns):
        yield json.dumps({"number": number, "label": label, "answer": answer})


def _write(path, lines):
    with atomic_path(path) as temporary:
        pathlib.Path(temporary).write_text("".join(f"{line}\n" for line in lines))


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m training.evaluate",
        description="Evaluate a fine-tuned model on a split of a data set, or on your own file.",
    )
    add = parser.add_argument
    add("--task", help=f"one of {', '.join(sorted(TASKS))}; or else")
    add("--file", help="your own .csv, .tsv or .jsonl, with the columns of the training's")
    add("--model", required=True, help="preset that training.finetune wrote, such as RUN/best")
    add("--output", required=True, help="folder for result.json and the predictions")
    add("--split", choices=_SPLITS, default="validation", help="default: %(default)s")
    add("--data-dir", help="folder of prepared TensorFlow Datasets (default: TFDS's own)")
    add("--download", action="store_true", help="fetch and prepare the data set if it is missing")
    options = parser.parse_args(arguments)
    try:
        result = evaluate(**vars(options))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for name, value in result.get("metrics", {}).items():
        print(f"{name}: {value:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
