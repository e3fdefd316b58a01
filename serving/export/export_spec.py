"""What an export is made of, and its metadata."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import gpt1_keras
from gpt1_keras.tasks.task import Task
from serving.export.decoder.int8 import Int8Block
from serving.export.export_options import Batching, Embedding, Explanation


@dataclasses.dataclass(frozen=True)
class ExportSpec:
    """What an export is made of.

    Args:
        model: a task with a preprocessor.
        batching: how requests are merged; None to answer each request alone.
        int8: whether matrices are stored in 8 bits; the model's own matrices are rounded in place.
        blocks: 8-bit blocks that replace the backbone's own.
        embedding: what the signature `embed` returns; None for an export without it.
        explanation: how the signature `explain` finds the words' shares; None for an export
            without it.
    """

    model: Task
    batching: Batching | None = None
    int8: bool = False
    blocks: Sequence[Int8Block] | None = None
    embedding: Embedding | None = None
    explanation: Explanation | None = None


def fields_of(model: Task) -> list[str]:
    """Returns the names of the texts that a task with a preprocessor takes."""
    return list(getattr(model.preprocessor, "fields", ("text",)))


def metadata_of(model: Task) -> dict[str, Any]:
    """Describes a task with a preprocessor, by values that JSON can hold."""
    tokenizer = model.preprocessor.tokenizer
    calibration = getattr(model, "calibration", None)
    return {
        "task": type(model).__name__,
        "class_names": getattr(model, "class_names", None),
        "score_range": getattr(model, "score_range", None),
        "temperature": calibration and calibration.temperature,
        "sure_threshold": calibration and calibration.sure_threshold,
        "fields": fields_of(model),
        "tokenizer": type(tokenizer).__name__,
        "tokenizer_fingerprint": tokenizer.fingerprint,
        "normalization": tokenizer.normalization,
        "vocabulary_size": tokenizer.vocabulary_size(),
        "dtype": model.backbone.dtype_policy.compute_dtype,
        "gpt1_keras": gpt1_keras.__version__,
        "tensorflow": tf.__version__,
    }
