"""Exports a fine-tuned model as a versioned SavedModel that takes raw text.

    python -m serving.export --model DIR --output DIR

writes DIR/1/, DIR/2/, ... for TF Serving: core TensorFlow ops only, no XLA, warm-up requests.
"""

import argparse
import json
import os
import pathlib
import sys

import tensorflow as tf

import gpt1_keras
from gpt1_keras.files import atomic_path
from serving.signatures import ClassifierSignatures
from serving.warmup import warmup_requests

METADATA_FILE = "gpt1_keras.json"
_WARMUP_FILE = "tf_serving_warmup_requests"


def export(model, output, model_name=None):
    """Writes the next version of a model.

    Args:
        model: `GPT1TextClassifier` of classes, with a preprocessor. Exports carry its class names
            and the name of its normalization.
        output: path of the model's base directory, which holds its versions.
        model_name: str, the name that warm-up requests call it by; the base directory's by
            default. TF Serving does not compare it with its own.

    Returns:
        path of the version's directory.

    Raises:
        ValueError: the model has no preprocessor, or is no task that can be exported.
    """
    if not isinstance(model, gpt1_keras.GPT1TextClassifier) or model.class_names is None:
        raise ValueError(
            "Can export a GPT1TextClassifier with classes. Received: "
            f"{type(model).__name__}, class_names={getattr(model, 'class_names', None)}."
        )
    if model.preprocessor is None:
        raise ValueError("A model needs its preprocessor to be exported for raw text.")
    output = pathlib.Path(output).absolute()
    version = 1 + max(_versions(output), default=0)
    signatures = ClassifierSignatures(model)
    with atomic_path(output / str(version)) as temporary:
        tf.saved_model.save(signatures, temporary, signatures=signatures.functions())
        extra = pathlib.Path(temporary) / "assets.extra"
        extra.mkdir()
        (extra / METADATA_FILE).write_text(json.dumps(_metadata(model), indent=2) + "\n")
        with tf.io.TFRecordWriter(str(extra / _WARMUP_FILE)) as writer:
            for request in warmup_requests(model, model_name or output.name):
                writer.write(request.SerializeToString())
    return str(output / str(version))


def _versions(output):
    if not output.is_dir():
        return []
    names = [child.name for child in output.iterdir()]
    return [int(name) for name in names if name.isascii() and name.isdecimal()]


def _metadata(model):
    preprocessor = model.preprocessor
    return {
        "task": type(model).__name__,
        "class_names": model.class_names,
        "fields": list(preprocessor.fields),
        "normalization": preprocessor.tokenizer.normalization,
        "vocabulary_size": preprocessor.tokenizer.vocabulary_size(),
        "sequence_length": preprocessor.sequence_length,
        "gpt1_keras": gpt1_keras.__version__,
        "tensorflow": tf.__version__,
    }


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m serving.export",
        description="Export a fine-tuned model as the next version of a SavedModel for TF Serving.",
    )
    parser.add_argument("--model", required=True, help="the model's preset directory")
    parser.add_argument("--output", required=True, help="base directory; versions go inside")
    options = parser.parse_args(arguments)
    if not os.path.isfile(os.path.join(options.model, "task.json")):
        print(f"{options.model} is no fine-tuned model: it has no task.json.", file=sys.stderr)
        return 1
    try:
        print(export(gpt1_keras.GPT1TextClassifier.from_preset(options.model), options.output))
    except (OSError, ValueError) as error:
        print(f"Cannot export {options.model}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
