"""Converts a task into one .tflite file of built-in ops."""

import contextlib
import io
import logging
import os
import pathlib
import re
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.python.convert import ConverterError

import gpt1_keras
from gpt1_keras.files import atomic_path
from gpt1_keras.tasks.task import Task
from serving.export.export_metadata import fields_of, metadata_of
from serving.export.signature import ConcreteFunction
from serving.export_names import TEXT
from serving.registry import find_part
from serving.tflite import MAX_BYTES, QUANTIZATIONS, SEQUENCE_LENGTH
from serving.tflite.device_backbone import LOGITS
from serving.tflite.task_graphs import DEVICE_TASKS, DeviceGraph, DeviceSpec
from serving.tflite_metadata import add_metadata


def check_quantization(name: str) -> None:
    """Raises ValueError for an unknown name, ImportError where the quantizer is missing."""
    if name not in QUANTIZATIONS:
        raise ValueError(f"Unknown quantization {name!r}; expected one of {list(QUANTIZATIONS)}.")
    if name != "none":
        _import_quantizer()


def quantize_weights(content: bytes, name: str) -> bytes:
    """Quantizes a model.

    Args:
        content: the content of a .tflite file in float32.
        name: one of `QUANTIZATIONS`. With `float16`, weights have half the size, and computations
            are in float32. With `int8` and `int4`, a matrix has one scale for each row, and LiteRT
            quantizes its input to int8 at run time. `int4` keeps the token embeddings in int8.

    Returns:
        The content of the quantized file.
    """
    if name == "none":
        return content
    quantizer = _import_quantizer()
    from litert_quantizer import qtyping, recipe_manager
    from litert_quantizer.algorithm_manager import AlgorithmName

    products = qtyping.TFLOperationName.FULLY_CONNECTED
    embeddings = qtyping.TFLOperationName.EMBEDDING_LOOKUP
    recipe = recipe_manager.RecipeManager()
    if name == "float16":
        for operation in (products, embeddings):
            recipe.add_weight_only_config(
                ".*", operation, num_bits=16, algorithm_key=AlgorithmName.FLOAT_CASTING
            )
    else:
        if name == "int4":
            # Clips each row where the mean squared error is least: OCTAV (Sakr et al., 2022).
            recipe.add_dynamic_config(".*", products, num_bits=4, algorithm_key=AlgorithmName.OCTAV)
        else:
            recipe.add_dynamic_config(".*", products, num_bits=8)
        recipe.add_dynamic_config(f".*{LOGITS}.*", products, num_bits=8)
        recipe.add_dynamic_config(".*", embeddings, num_bits=8)
    engine = quantizer.Quantizer(content, recipe.get_quantization_recipe())
    # The quantizer warns of each weight that several signatures share, and shows progress bars even
    # if it is told not to.
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            result = engine.quantize(enable_progress_bar=False, enable_progress_report=False)
    finally:
        logging.disable(logging.NOTSET)
    return bytes(result.quantized_model)


def _import_quantizer() -> Any:
    try:
        from litert_quantizer import quantizer
    except ImportError as error:
        raise ImportError(
            "Quantization needs LiteRT's quantizer: pip install 'gpt1-keras[device]'."
        ) from error
    return quantizer


def convert(
    model: Task,
    output: str | os.PathLike[str],
    max_bytes: int | Sequence[int] = MAX_BYTES,
    sequence_length: int | None = None,
    num_choices: int | None = None,
    quantize: str = "none",
) -> str:
    """Converts a model; see docs/on_device.md for the signatures of each task.

    Texts that the file does not report as truncated get the same ids as in training and on the
    server, and in float32 the same scores, within 1e-4.

    Args:
        model: a task with a `GPT1Backbone` and a preprocessor, of `gpt1_keras` or registered by
            `serving.registry.register_task`.
        output: path of the file.
        max_bytes: the most bytes of UTF-8 in a text; or such a number for each of the task's
            fields.
        sequence_length: the most tokens of a framed text; at most the model's context. By default
            128, or the context if that is shorter; with windows, that of the preprocessor, and no
            other, as windows of another length would get other answers.
        num_choices: the most choices of an example; only for `GPT1MultipleChoice`.
        quantize: the weights, `"none"` (float32), `"float16"`, `"int8"` or `"int4"`; see
            `quantize_weights`.

    Returns:
        The path of the file.

    Raises:
        ValueError: the model is not such a task; it has another backbone, no preprocessor, a
            normalisation or a framing that cannot run on a device, or weights that are already
            quantized; it needs an op that is not built into LiteRT; or a length or a number of
            choices is out of range.
        ImportError: the quantization needs LiteRT's quantizer, which is not installed.
    """
    check_quantization(quantize)
    make_graph = find_part(model, DEVICE_TASKS, "device_graph", "run on a device")
    _check(model, sequence_length)
    if model.windows > 1:
        sequence_length = model.preprocessor.sequence_length
    if sequence_length is None:
        sequence_length = min(SEQUENCE_LENGTH, model.backbone.max_sequence_length)
    fields = fields_of(model)
    lengths = [max_bytes] if isinstance(max_bytes, int) else list(max_bytes)
    if len(lengths) == 1:
        lengths *= len(fields)
    if len(lengths) != len(fields):
        raise ValueError(
            f"max_bytes must have one number for each of {fields}. Received: {lengths}."
        )
    sizes = dict(zip(fields, lengths))
    graph = make_graph(DeviceSpec(model, sizes, sequence_length, num_choices))
    functions = _trace(graph)
    metadata = {
        **metadata_of(model),
        "outputs": sorted(functions[TEXT].structured_outputs),
        "max_bytes": sizes,
        "sequence_length": sequence_length,
        "num_choices": num_choices,
        "dtype": "float32",
        "weights": quantize if quantize != "none" else "float32",
        "vocabulary": graph.vocabulary,
    }
    content = add_metadata(quantize_weights(_convert(graph, functions), quantize), metadata)
    _check_ops(content)
    with atomic_path(output) as temporary:
        pathlib.Path(temporary).write_bytes(content)
    return str(output)


def _check(model: Task, sequence_length: int | None) -> None:
    backbone = model.backbone
    if not isinstance(backbone, gpt1_keras.GPT1Backbone):
        raise ValueError(
            f"A model needs a GPT1Backbone to run on a device. Received: {type(backbone).__name__}."
        )
    framed_by, expected = type(model.preprocessor), type(model).preprocessor_cls
    if any(
        getattr(framed_by, name, None) is not getattr(expected, name, None)
        for name in ("transform", "frame")
    ):
        raise ValueError(
            f"A device frames texts as a {expected.__name__} does. Received: a "
            f"{framed_by.__name__}, which frames them in its own way."
        )
    if any("int" in weight.dtype for weight in model.weights):
        raise ValueError(
            "The model's weights are quantized already. Convert the model as it was before "
            "`quantize`, and quantize its file."
        )
    model.check_tokenizer()
    own = getattr(model.preprocessor, "sequence_length", None)
    if model.windows > 1 and sequence_length not in (None, own):
        raise ValueError(
            f"With windows, sequence_length is the preprocessor's, {own}. Received: "
            f"{sequence_length}."
        )
    if sequence_length is not None and not 1 <= sequence_length <= backbone.max_sequence_length:
        raise ValueError(
            f"sequence_length must be from 1 to {backbone.max_sequence_length}, the model's "
            f"context. Received: {sequence_length}."
        )


def _trace(graph: DeviceGraph) -> dict[str, ConcreteFunction]:
    """Returns the signatures' functions by name."""
    return {
        name: tf.function(function, autograph=False).get_concrete_function(
            **{alias: tf.TensorSpec(spec.shape, spec.dtype, alias) for alias, spec in specs.items()}
        )
        for name, (function, specs) in graph.signatures.items()
    }


def _convert(graph: DeviceGraph, signatures: dict[str, ConcreteFunction]) -> bytes:
    """Returns the float32 file's content."""
    with tempfile.TemporaryDirectory() as folder:
        root = tf.Module()
        root.weights = list(graph.modules)  # tracked, or the signatures' variables are unknown
        tf.saved_model.save(root, folder, signatures=signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, list(signatures))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        try:
            return converter.convert()
        except ConverterError as error:
            # It lists the ops that could run through Flex, and those that could not.
            lists = re.findall(r"(?:Select|Custom) ops: (.*)", str(error))
            ops = [op for names in lists for op in names.strip().split(", ")]
            raise _no_built_in_op(ops or [str(error)]) from error


def _check_ops(content: bytes) -> None:
    """Raises ValueError if the file has ops that are not built in."""
    model = schema.Model.GetRootAsModel(content, 0)
    codes = [model.OperatorCodes(index) for index in range(model.OperatorCodesLength())]
    if ops := [code.CustomCode().decode() for code in codes if code.CustomCode()]:
        raise _no_built_in_op(ops)


def _no_built_in_op(ops: Iterable[str]) -> ValueError:
    names = ", ".join(sorted(set(ops)))
    return ValueError(f"The model cannot run on a device: LiteRT has no built-in op for {names}.")
