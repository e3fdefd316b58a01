"""Exports a fine-tuned model as a versioned SavedModel that takes raw text.

    python -m serving.export --model DIR --output DIR

writes DIR/1/, DIR/2/, ... for TF Serving: core TensorFlow ops only, no XLA, warm-up requests.
"""

import dataclasses
import json
import pathlib

import tensorflow as tf

import gpt1_keras
from gpt1_keras.files import atomic_path
from gpt1_keras.tasks.base import RawTextTask
from gpt1_keras.tasks.label_heads import LabelHead
from serving.export.language_model_signatures import LanguageModelSignatures
from serving.export.readme import readme
from serving.export.task_signatures import ChoiceSignatures, ClassSignatures, ScoreSignatures
from serving.export.validation import Validation
from serving.export.warmup import warmup_requests

METADATA_FILE = "gpt1_keras.json"
_WARMUP_FILE = "tf_serving_warmup_requests"


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
        batching: optional `serving.export.batching.Batching`, to answer many requests together; of tasks
            that are fine-tuned.
        dtype: str, such as `"bfloat16"`, to compute and to store weights in; the model's own by
            default.
        int8: bool, to store matrices in 8 bits. They are computed with in `dtype`.
        validation: optional list of labelled examples, as `serving.export.validation.read_examples` gives
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
    if isinstance(model.task_head, LabelHead):
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
