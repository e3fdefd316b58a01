"""Engines of answers: an export in the C++ runtime, a preset, or a .tflite file."""

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf
from grpc import StatusCode

from gpt1_keras.answers import NAMES, Engine, Outputs
from gpt1_keras.examples import Examples
from gpt1_keras.files import read_json
from gpt1_keras.labelled_files import shortened, shown_names
from gpt1_keras.tasks.batches import errors_in_words
from serving.export.text_inputs import padded_tensors
from serving.export_names import DEFAULT_SIGNATURE, EXPLAIN, METADATA_FILE, find_export
from serving.plain_values import plain
from serving.server.errors import ServingError
from serving.server.models.servable import Servable

# An export that merges requests refuses one while its queue is full.
_MOST_TRIES, _SECONDS_BETWEEN_TRIES = 6000, 0.01


def open_engine(path: str, explain: bool = False) -> Engine:
    """Opens a model that answers examples; see `gpt1_keras.answers.answer`.

    Args:
        path: of an export or its base folder, whose newest version TensorFlow's C++ runtime runs;
            a .tflite file, which LiteRT runs, one example after the other; or a preset, as
            `gpt1_keras.presets.find_preset` takes it, which runs the graph that it would be
            exported with.
        explain: whether answers have the words that led to them.

    Raises:
        ValueError: it is not of `gpt1 export` or `gpt1 tflite`, does not answer with classes,
            choices or scores, or cannot explain its answers.
        FileNotFoundError, OSError, ImportError: see `find_preset`.
    """
    if path.endswith(".tflite"):
        from serving.tflite.text_model import TextModel  # as others do not need it

        if explain:
            raise ValueError(f"{path} does not explain its answers. Give an export or a preset.")
        return TextModel(path).engine
    try:
        folder = find_export(path)
    except FileNotFoundError:
        return _open_preset(path, explain)
    return _open_export(folder, explain)


def _open_export(folder: Path, explain: bool) -> Engine:
    if not (folder / METADATA_FILE).is_file():
        raise ValueError(
            f"gpt1 export did not write {folder}: it has no {METADATA_FILE}, which names its texts "
            "and classes."
        )
    fields, class_names = _names_in(folder)
    try:
        servable = Servable("export", 1, folder)
    except ServingError as error:
        raise ValueError(f"Cannot load {folder}: {error.message}") from error
    name = EXPLAIN if explain else DEFAULT_SIGNATURE
    if name not in servable.signature_defs:
        raise ValueError(
            f"{folder} does not explain its answers. Export its model with gpt1 export "
            "--explain, or give the preset as --model."
        )

    def run(examples: Examples) -> Outputs:
        texts = padded_tensors({field: examples.texts[field] for field in fields})
        protos = {field: tf.make_tensor_proto(tensor) for field, tensor in texts.items()}
        with errors_in_words():
            for _ in range(_MOST_TRIES):
                try:
                    return _plain(servable.predict(name, protos))
                except ServingError as error:
                    if error.code is StatusCode.INVALID_ARGUMENT:
                        raise ValueError(error.message) from error
                    if error.code is not StatusCode.UNAVAILABLE:
                        raise OSError(f"{folder} has failed: {error.message}") from error
                    time.sleep(_SECONDS_BETWEEN_TRIES)
        raise OSError(f"{folder} has answered no request for a minute: its queue is full.")

    signature = servable.signature_defs[name]
    if missing := sorted(set(fields) - signature.inputs.keys()):
        raise ValueError(
            f"{folder} takes {shown_names(list(signature.inputs))}, and its {METADATA_FILE} names "
            f"the texts {shown_names(missing)}."
        )
    scores = signature.outputs.get("scores")
    shape = tf.TensorShape(scores.tensor_shape if scores else [])
    if class_names is not None and not shape.is_compatible_with([None, len(class_names)]):
        raise ValueError(
            f"{folder} returns scores of shape {shape}, and its {METADATA_FILE} names "
            f"{len(class_names)} classes: {shown_names(class_names)}."
        )
    return Engine(fields, class_names, signature.outputs, run)


def _names_in(folder: Path) -> tuple[list[str], list[str] | None]:
    metadata = read_json(folder / METADATA_FILE)
    for key in ("fields", "class_names"):
        names = metadata.get(key)
        is_list = isinstance(names, list) and all(isinstance(each, str) for each in names)
        if names is None and key == "class_names":
            continue
        if not is_list or not names or len(set(names)) < len(names):
            raise ValueError(
                f"{folder / METADATA_FILE} must hold a list of different names as {key}. Received: "
                f"{shortened(repr(names))}."
            )
    return metadata["fields"], metadata.get("class_names")


def _open_preset(path: str, explain: bool) -> Engine:
    # Imported here, as an export does not need them.
    from gpt1_keras.presets import load_task
    from gpt1_keras.tasks.task import Task
    from serving.export.export_metadata import metadata_of
    from serving.export.export_options import Explanation
    from serving.export.exported_tasks import signatures_of
    from serving.export.signature import ExportSpec

    model: Task = load_task(path)
    spec = ExportSpec(model, explanation=Explanation() if explain else None)
    signature = signatures_of(spec).by_name[EXPLAIN if explain else DEFAULT_SIGNATURE].compiled

    metadata = metadata_of(model)
    fields, class_names = metadata["fields"], metadata["class_names"]

    def run(examples: Examples) -> Outputs:
        with errors_in_words():
            texts = padded_tensors({field: examples.texts[field] for field in fields})
            outputs = signature(**texts)
            return _plain({name: tensor.numpy() for name, tensor in outputs.items()})

    return Engine(fields, class_names, signature.structured_outputs, run)


def _plain(outputs: Mapping[str, np.ndarray]) -> Outputs:
    return {name: plain(outputs[name]) for name in NAMES if name in outputs}
