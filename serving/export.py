"""Exports a fine-tuned model as a versioned SavedModel that takes raw text.

    python -m serving.export --model DIR --output DIR

writes DIR/1/, DIR/2/, ... for TF Serving: core TensorFlow ops only, no XLA, warm-up requests.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import sys

import tensorflow as tf

import gpt1_keras
from gpt1_keras.files import atomic_path
from gpt1_keras.presets import PRETRAINED, find_preset
from gpt1_keras.tasks.finetuned_task import AnsweringTask
from gpt1_keras.tasks.raw_text_task import RawTextTask
from serving.batching import Batching
from serving.lm_signatures import LanguageModelSignatures
from serving.readme import readme
from serving.signatures import ChoiceSignatures, ClassSignatures, ScoreSignatures
from serving.validation import Validation, read_examples
from serving.warmup import warmup_requests

METADATA_FILE = "gpt1_keras.json"
_WARMUP_FILE = "tf_serving_warmup_requests"
_BATCHING_FLAGS = {
    "max_batch_size": ("max-batch-size", "examples to answer at once"),
    "timeout_ms": ("batch-timeout-ms", "milliseconds that one waits for others"),
    "max_queue": ("max-queue", "batches that may wait; what comes then is UNAVAILABLE"),
}


def export(
    model, output, model_name=None, *, batching=None, dtype=None, int8=False, validation=None
):
    """Writes the next version of a model.

    Beside the SavedModel, in assets.extra, are a README, metadata and warm-up requests.

    Args:
        model: a task of `gpt1_keras` with a preprocessor. Exports carry its class names and the
            name of its normalization.
        output: path of the model's base directory, which holds its versions.
        model_name: str, the name that warm-up requests call it by; the base directory's by
            default. TF Serving does not compare it with its own.
        batching: optional `serving.batching.Batching`, to answer many requests together; of tasks
            that are fine-tuned.
        dtype: str, such as `"bfloat16"`, to compute and to store weights in; the model's own by
            default.
        int8: bool, to store matrices in 8 bits. They are computed with in `dtype`.
        validation: optional list of labelled examples, as `serving.validation.read_examples` gives
            them. The model and the export answer them, and the metadata says how well.

    Returns:
        path of the version's directory.

    Raises:
        ValueError: the model has no preprocessor, or is no task that can be exported so; or
            examples do not fit it.
    """
    size = {"batch_size": batching.max_batch_size} if batching else {}
    before = signatures_of(model, batching)  # what cannot be exported is refused here
    comparison = Validation(model, validation, **size) if validation else None
    changed = _copy(model, dtype) if dtype or int8 else model
    signatures = signatures_of(changed, batching, int8)
    output = pathlib.Path(output).absolute()
    name = model_name or output.name
    version = 1 + max(_versions(output), default=0)
    with atomic_path(output / str(version)) as temporary:
        functions = signatures.functions()
        tf.saved_model.save(signatures, temporary, signatures=functions)
        metadata = {
            **metadata_of(changed),
            "sequence_length": signatures.sequence_length,
            "weights": "int8" if int8 else changed.backbone.dtype_policy.variable_dtype,
            "batching": dataclasses.asdict(batching) if batching else None,
            "validation": None,
        }
        if comparison:
            answer = before.functions()["serving_default"]
            metadata["validation"] = comparison.compare(answer, temporary)
        extra = pathlib.Path(temporary) / "assets.extra"
        extra.mkdir()
        (extra / METADATA_FILE).write_text(json.dumps(metadata, indent=2) + "\n")
        (extra / "README.md").write_text(readme(name, metadata, functions), encoding="utf-8")
        with tf.io.TFRecordWriter(str(extra / _WARMUP_FILE)) as writer:
            for request in warmup_requests(signatures, functions, name):
                writer.write(request.SerializeToString())
    return str(output / str(version))


def signatures_of(model, batching=None, int8=False):
    """The signatures that a task is exported with; arguments are as those of `export`, but that
    `int8` rounds this model's weights.

    Raises:
        ValueError: the model has no preprocessor, or is no task that can be exported.
    """
    if not isinstance(model, RawTextTask):
        raise ValueError(f"Can export a task of gpt1_keras. Received: {type(model).__name__}.")
    if model.preprocessor is None:
        raise ValueError("A model needs its preprocessor to be exported for raw text.")
    if isinstance(model, gpt1_keras.GPT1MultipleChoice):
        return ChoiceSignatures(model, batching, int8)
    if isinstance(model, AnsweringTask):
        signatures = ClassSignatures if model.score_range is None else ScoreSignatures
        return signatures(model, batching, int8)
    if not isinstance(model.backbone, gpt1_keras.GPT1Backbone):
        raise ValueError(
            "A language model needs a GPT1Backbone to be exported. Received: "
            f"{type(model.backbone).__name__}."
        )
    if batching:
        raise ValueError(
            "A language model's requests cannot be merged: export it without batching."
        )
    return LanguageModelSignatures(model, int8)


def _copy(model, dtype):
    """The task with the same weights in another dtype."""
    backbone = model.backbone
    dtype = dtype or backbone.dtype_policy
    config = model.get_config() | {
        "backbone": type(backbone).from_config({**backbone.get_config(), "dtype": dtype}),
        "preprocessor": model.preprocessor,
    }
    copy = type(model)(**config)
    copy.set_weights(model.get_weights())
    return copy


def _versions(output):
    if not output.is_dir():
        return []
    names = [child.name for child in output.iterdir()]
    return [int(name) for name in names if name.isascii() and name.isdecimal()]


def metadata_of(model):
    """What a task's export says about it, a dict."""
    preprocessor = model.preprocessor
    return {
        "task": type(model).__name__,
        "class_names": getattr(model, "class_names", None),
        "score_range": getattr(model, "score_range", None),
        "fields": list(getattr(preprocessor, "fields", ("text",))),
        "tokenizer": type(preprocessor.tokenizer).__name__,
        "tokenizer_fingerprint": preprocessor.tokenizer.fingerprint,
        "normalization": preprocessor.tokenizer.normalization,
        "vocabulary_size": preprocessor.tokenizer.vocabulary_size(),
        "dtype": model.backbone.dtype_policy.compute_dtype,
        "gpt1_keras": gpt1_keras.__version__,
        "tensorflow": tf.__version__,
    }


def load_task(preset):
    """The task that a preset holds, whichever it is.

    Raises:
        FileNotFoundError: there is no preset of a task.
        ValueError: it is no task of `gpt1_keras`, or damaged.
    """
    path = find_preset(preset) / "task.json"
    if not path.is_file():
        raise FileNotFoundError(f"{preset} is no task: it has no task.json.")
    name = json.loads(path.read_text(encoding="utf-8"))["class_name"]
    task_cls = getattr(gpt1_keras, name, None)
    if not (isinstance(task_cls, type) and issubclass(task_cls, RawTextTask)):
        raise ValueError(f"{preset} is a {name}, no task of gpt1_keras.")
    return task_cls.from_preset(os.fspath(path.parent))


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m serving.export",
        description="Export a model as the next version of a SavedModel for TF Serving.",
    )
    parser.add_argument(
        "--model", required=True, help=f"{', '.join(PRETRAINED)}, or a model's preset folder"
    )
    parser.add_argument("--output", required=True, help="base directory; versions go inside")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], help="to compute in")
    parser.add_argument(
        "--int8", action="store_true", help="store matrices in 8 bits: a quarter of the size"
    )
    parser.add_argument(
        "--validation",
        metavar="FILE",
        help="labelled examples (.jsonl, .csv or .tsv) to measure on what the options cost",
    )
    group = parser.add_argument_group("batching inside the graph")
    group.add_argument(
        "--batching", action="store_true", help="answer texts of several requests together"
    )
    for field in dataclasses.fields(Batching):
        group.add_argument(
            f"--{_BATCHING_FLAGS[field.name][0]}",
            dest=field.name,
            type=field.type,
            default=field.default,
            help=f"{_BATCHING_FLAGS[field.name][1]} (default: {field.default:g})",
        )
    options = parser.parse_args(arguments)
    try:
        sizes = {field.name: getattr(options, field.name) for field in dataclasses.fields(Batching)}
        path = export(
            load_task(options.model),
            options.output,
            batching=Batching(**sizes) if options.batching else None,
            dtype=options.dtype,
            int8=options.int8,
            validation=read_examples(options.validation) if options.validation else None,
        )
    except (OSError, ValueError) as error:
        print(f"Cannot export {options.model}: {error}", file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
