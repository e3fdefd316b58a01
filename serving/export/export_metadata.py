"""The metadata of exports, SavedModels and .tflite files alike."""

from typing import Any

import tensorflow as tf

import gpt1_keras
from gpt1_keras.tasks.task import Task


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
