"""Writes versions of a SavedModel that takes raw text."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from gpt1_keras.cli import note
from gpt1_keras.files import move_to_next_number, temporary_path, write_json
from gpt1_keras.labelled_files import (
    LABEL,
    read_rows,
    use_decimal_points,
    use_one_spelling,
    with_labels,
    with_texts,
)
from gpt1_keras.tasks.task import Task
from serving.export.decoder.int8 import REQUIREMENT
from serving.export.export_metadata import fields_of, metadata_of, readme
from serving.export.export_options import Batching, Embedding, Explanation
from serving.export.exported_tasks import metric_of, signatures_of
from serving.export.int8_calibration import calibrated_blocks, check_int8
from serving.export.signature import ExportSpec, Signatures
from serving.export.stored_weights import StoredWeights
from serving.export.validation import Validation
from serving.export.warmup import write_warmup
from serving.export_names import (
    DEFAULT_SIGNATURE,
    EXTRA_FOLDER,
    METADATA_FILE,
    README_FILE,
    WARMUP_FILE,
)

# Dicts of a task's fields and labels, or the path of a file of them.
Examples: TypeAlias = Sequence[Mapping[str, Any]] | str | os.PathLike[str]


def export(
    model: Task,
    output: str | os.PathLike[str],
    model_name: str | None = None,
    *,
    batching: Batching | bool = False,
    explain: Explanation | str | None = None,
    dtype: str | None = None,
    int8: bool = False,
    int8_storage: bool = False,
    calibration: Examples | None = None,
    validation: Examples | None = None,
    columns: Mapping[str, str] | None = None,
    embed: Embedding | str | None = None,
) -> str:
    """Writes the next version of a model, a SavedModel that takes texts; see docs/exports.md.

    The arguments have the names of the options of `gpt1 export`. The folder assets.extra holds a
    README, metadata and warm-up requests.

    Args:
        model: a task with a preprocessor, of `gpt1_keras` or registered by
            `serving.registry.register_task`. The export's metadata has its class names and the name
            of its normalization.
        output: the model's base directory, which holds its versions.
        model_name: the model's name in warm-up requests; by default, the name of the base
            directory. TF Serving does not compare it with its own.
        batching: how to merge requests, or True to merge them as `Batching()` says; by default
            each is answered alone.
        explain: how the signature `explain` finds the words' shares in an answer: an `Explanation`,
            or its method, `"integrated-gradients"` or `"leave-one-out"`; None for an export without
            it. Only fine-tuned tasks can have it.
        dtype: the dtype of computations and stored weights, such as `"bfloat16"`; by default the
            model's own.
        int8: whether the backbone's matrices are multiplied in 8 bits; embeddings are stored in 8
            bits too. The rest is computed in `dtype`. Such an export needs the runtime and the
            processor that its metadata names; it cannot be loaded elsewhere.
        int8_storage: whether matrices are only stored in 8 bits; computations are in `dtype`.
        calibration: for `int8`, examples like those of `validation`, without labels, on which the
            ranges of activations are measured. By default, the examples of `validation`, or
            texts of random words if there are none.
        validation: labelled examples: dicts of a task's fields and `label`, or the path of a file
            of them (docs/data_files.md). The model and the export answer them, and the metadata has
            both results.
        columns: dict from names to the columns of these files, such as `{"text": "Comment"}`.
        embed: what the signature `embed` returns: an `Embedding`, or its pooling, `"mean"`,
            `"last"` or `"tokens"`; None for an export without it.

    Returns:
        The path of the version's directory.

    Raises:
        ValueError: the model has no preprocessor, or is not a task that can be exported with these
            options; its answers are NaN or infinite; examples do not fit it; or this machine cannot
            multiply in 8 bits.
    """
    batches = batching if isinstance(batching, Batching) else Batching() if batching else None
    explanation = Explanation(explain) if isinstance(explain, str) else explain
    embedding = Embedding(embed) if isinstance(embed, str) else embed
    if calibration is not None and not int8:
        raise ValueError("`calibration` needs `int8=True`. Received: int8=False.")
    if int8 and int8_storage:
        raise ValueError(
            "Expected `int8`, which also stores in 8 bits, or `int8_storage`. Received both."
        )
    if int8:
        check_int8(model)
    size = {"batch_size": batches.max_batch_size} if batches else {}
    # This refuses what cannot be exported or explained.
    before = signatures_of(ExportSpec(model, explanation=explanation))
    fields = fields_of(model)
    labelled = [*fields, LABEL] if hasattr(model.preprocessor, "fields") else fields
    names = getattr(model, "class_names", None)
    calibration = _rows(calibration, columns, fields, fields)
    # A language model's have no label.
    validation = _rows(validation, columns, labelled, fields, names)
    comparison = Validation(model, metric_of(model), validation, **size) if validation else None
    changed = _copy(model, dtype) if dtype or int8 or int8_storage else model
    blocks, calibrated = None, None
    if int8 and calibration is not None:
        blocks, calibrated = calibrated_blocks(changed, calibration, "the calibration's examples")
    elif int8:
        blocks, calibrated = calibrated_blocks(changed, validation, "the validation's examples")
    spec = ExportSpec(changed, batches, int8 or int8_storage, blocks, embedding, explanation)
    weights = StoredWeights(spec)
    output = pathlib.Path(output).absolute()
    name = model_name or output.name
    with temporary_path(output, "version") as temporary:
        with weights.vectors:
            signatures = signatures_of(spec)
            functions = {key: each.saved for key, each in signatures.by_name.items()}
            _check_finite(signatures)
            tf.saved_model.save(weights, temporary, signatures=functions)
        metadata = {
            **metadata_of(changed),
            "sequence_length": signatures.sequence_length,
            "weights": "int8" if spec.int8 else changed.backbone.dtype_policy.variable_dtype,
            "products": "int8" if int8 else None,
            "requires": REQUIREMENT if int8 else None,
            "calibration": calibrated,
            "batching": dataclasses.asdict(batches) if batches else None,
            "embedding": dataclasses.asdict(embedding) if embedding else None,
            "explanation": dataclasses.asdict(explanation) if explanation else None,
            "validation": None,
        }
        if comparison:
            answer = before.by_name[DEFAULT_SIGNATURE].compiled
            metadata["validation"] = comparison.compare(answer, temporary)
        folder = pathlib.Path(temporary)
        (folder / EXTRA_FOLDER).mkdir()
        write_json(folder / METADATA_FILE, metadata)
        (folder / README_FILE).write_text(readme(name, metadata, signatures), encoding="utf-8")
        write_warmup(folder / WARMUP_FILE, signatures, name)
        return move_to_next_number(temporary, output)


def _rows(
    examples: Examples | None,
    columns: Mapping[str, str] | None,
    wanted: Sequence[str],
    fields: Sequence[str],
    class_names: Sequence[str] | None = None,
) -> Sequence[Mapping[str, Any]] | None:
    if isinstance(examples, (str, os.PathLike)):
        rows = with_texts(read_rows(examples, columns, [wanted], note), fields, examples, note)
        if LABEL in wanted:
            rows = with_labels(rows, examples, note)
            use_decimal_points(rows, examples, class_names, note)
            use_one_spelling(rows, examples, class_names, note)
        return rows
    return examples


def _check_finite(signatures: Signatures) -> None:
    signature = signatures.by_name[DEFAULT_SIGNATURE]
    outputs = signature.compiled(**signature.inputs_of_example(min(signature.lengths)))
    for name, tensor in outputs.items():
        if tensor.dtype.is_floating and not np.isfinite(tensor.numpy()).all():
            raise ValueError(
                f"The model has diverged, or its weights are damaged: its answer {name!r} to the "
                f"first request for warm-up is NaN or infinite. Received: {tensor.numpy()}."
            )


def _copy(model: Task, dtype: str | None) -> Task:
    backbone = model.backbone
    config = model.get_config() | {
        "backbone": type(backbone).from_config(
            {**backbone.get_config(), "dtype": dtype or backbone.dtype_policy}
        ),
        "preprocessor": model.preprocessor,
    }
    copy = type(model)(**config)
    copy.set_weights(model.get_weights())
    return copy
