"""A task as one .tflite file of built-in ops."""

import pathlib
import re
import tempfile

import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.python.convert import ConverterError

import gpt1_keras
from gpt1_keras.files import atomic_path
from gpt1_keras.tasks.base import RawTextTask
from gpt1_keras.tasks.label_heads import LabelHead
from serving.export.exporter import metadata_of
from serving.tflite.language_model_graph import NextTokenGraph
from serving.tflite.metadata import add_metadata
from serving.tflite.quantize import check_quantization, quantize
from serving.tflite.task_graphs import ChoiceGraph, ClassOrScoreGraph

MAX_BYTES = 512
SEQUENCE_LENGTH = 128


def convert(
    model,
    output,
    max_bytes=MAX_BYTES,
    sequence_length=SEQUENCE_LENGTH,
    num_choices=None,
    quantization="none",
):
    """Converts a model; see docs/on_device.md for the signatures of each task.

    Texts that the file does not call truncated get the ids that training and the server give
    them, and in float32 their scores, to 1e-4.

    Args:
        model: a task of `gpt1_keras` with a `GPT1Backbone` and a preprocessor.
        output: path of the file.
        max_bytes: int, the bytes of UTF-8 that a text's input has; or a list of int, for each of
            the task's fields.
        sequence_length: int, the most tokens of a framed text; at most the model's context.
        num_choices: int, the most choices of an example; of `GPT1MultipleChoice` alone.
        quantization: `"none"`, `"float16"`, `"int8"` or `"int4"`; see `quantize`.

    Returns:
        path of the file, str.

    Raises:
        ValueError: the model is of no such task, has another backbone, no preprocessor, a
            normalisation that cannot run on a device or weights that are quantized already, or
            needs an op that LiteRT has not (such as one of TensorFlow's, through Flex); or a
            length or a number of choices is out of range.
        ImportError: a quantization without LiteRT's quantizer.
    """
    check_quantization(quantization)
    _check(model, sequence_length)
    metadata = metadata_of(model)
    fields = metadata["fields"]
    sizes = [max_bytes] if isinstance(max_bytes, int) else list(max_bytes)
    if len(sizes) == 1:
        sizes *= len(fields)
    if len(sizes) != len(fields):
        raise ValueError(f"max_bytes must have one number for each of {fields}. Received: {sizes}.")
    graph = _graph_of(model, sizes, sequence_length, num_choices)
    metadata |= {
        "max_bytes": dict(zip(fields, sizes)),
        "sequence_length": sequence_length,
        "num_choices": num_choices,
        "dtype": "float32",
        "weights": quantization if quantization != "none" else "float32",
        "vocabulary": None,
    }
    if isinstance(model, gpt1_keras.GPT1CausalLM):
        metadata["vocabulary"] = model.preprocessor.tokenizer.get_vocabulary()
    content = add_metadata(quantize(_convert(graph), quantization), metadata)
    _check_ops(content)
    with atomic_path(output) as temporary:
        pathlib.Path(temporary).write_bytes(content)
    return str(output)


def _check(model, sequence_length):
    if not isinstance(model, RawTextTask):
        raise ValueError(f"Can convert a task of gpt1_keras. Received: {type(model).__name__}.")
    if model.preprocessor is None:
        raise ValueError("A model needs its preprocessor to be converted for raw text.")
    backbone = model.backbone
    if not isinstance(backbone, gpt1_keras.GPT1Backbone):
        raise ValueError(
            f"A model needs a GPT1Backbone to run on a device. Received: {type(backbone).__name__}."
        )
    if any("int" in weight.dtype for weight in model.weights):
        raise ValueError(
            "The model's weights are quantized already. Convert the model as it was before "
            "`quantize`, and quantize its file."
        )
    model.check_tokenizer()
    if not 1 <= sequence_length <= backbone.max_sequence_length:
        raise ValueError(
            f"sequence_length must be from 1 to {backbone.max_sequence_length}, the model's "
            f"context. Received: {sequence_length}."
        )


def _graph_of(model, sizes, sequence_length, num_choices):
    has_choices = isinstance(model, gpt1_keras.GPT1MultipleChoice)
    if has_choices != isinstance(num_choices, int) or (has_choices and num_choices < 1):
        raise ValueError(
            "A GPT1MultipleChoice needs num_choices, from 1 on, and no other task has choices. "
            f"Received: num_choices={num_choices} for a {type(model).__name__}."
        )
    if has_choices:
        return ChoiceGraph(model, sizes, sequence_length, num_choices)
    if isinstance(model.task_head, LabelHead):
        return ClassOrScoreGraph(model, sizes, sequence_length)
    return NextTokenGraph(model, sizes, sequence_length)


def _convert(graph):
    """The float32 file's content, bytes."""
    signatures = {
        name: tf.function(function, autograph=False).get_concrete_function(
            **{alias: tf.TensorSpec(spec.shape, spec.dtype, alias) for alias, spec in specs.items()}
        )
        for name, (function, specs) in graph.signatures().items()
    }
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(graph, folder, signatures=signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, list(signatures))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        try:
            return converter.convert()
        except ConverterError as error:
            # It lists what could run through Flex, and what could not even so.
            lists = re.findall(r"(?:Select|Custom) ops: (.*)", str(error))
            _refuse([op for names in lists for op in names.strip().split(", ")], error)


def _check_ops(content):
    """Raises ValueError if the file has ops that are not built in."""
    model = schema.Model.GetRootAsModel(content, 0)
    codes = [model.OperatorCodes(number) for number in range(model.OperatorCodesLength())]
    _refuse([code.CustomCode().decode() for code in codes if code.CustomCode()])


def _refuse(ops, error=None):
    if ops or error:
        names = ", ".join(sorted(set(ops))) or str(error)
        raise ValueError(
            f"The model cannot run on a device: LiteRT has no built-in op for {names}."
        ) from error
