"""Calibrates the blocks of an 8-bit export on texts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from gpt1_keras.models.gpt1_backbone import check_no_variant
from gpt1_keras.tasks.task import Task
from serving.export.decoder.int8 import Int8Block, RangeRecorder, check_this_machine
from serving.export.decoder.packed_decoder import is_packable
from serving.export.export_metadata import fields_of
from serving.export.exported_tasks import signatures_of
from serving.export.signature import ExportSpec, Signature
from serving.export.text_inputs import as_tensors
from serving.export_names import DEFAULT_SIGNATURE

_MOST_EXAMPLES = 512  # more change the ranges little
_BATCH_SIZE = 8
_MADE_UP = 8  # texts for each bucket


def check_int8(model: Task) -> None:
    """Raises ValueError if this model or this machine cannot multiply in 8 bits."""
    if not is_packable(model.backbone):
        raise ValueError(
            "Only a GPT1Backbone whose layers are of one float dtype can be computed in 8 bits. "
            f"Received: a {type(model.backbone).__name__}. To store its matrices so, use "
            "`int8_storage`."
        )
    check_no_variant(model.backbone, "An 8-bit export")
    check_this_machine()


def calibrated_blocks(
    model: Task, examples: Sequence[Mapping[str, Any]] | None, source: str
) -> tuple[list[Int8Block], dict[str, Any]]:
    """Returns a task's blocks that multiply 8-bit numbers.

    Args:
        model: a registered task that `check_int8` accepts.
        examples: the model's inputs by name, on which the ranges of activations are measured. Of
            many examples, at most 512 at equal distances are read. By default, texts of random
            words.
        source: what the examples are, for the metadata.

    Returns:
        The blocks; and `source`, the number of `examples` and of their `tokens`.

    Raises:
        ValueError: the examples do not fit the task, or give no ranges.
    """
    default = signatures_of(ExportSpec(model)).by_name[DEFAULT_SIGNATURE]
    recorder = RangeRecorder(model.backbone.blocks)
    with recorder.recording():
        answer = default.compiled
    if examples is None:
        source = "made-up texts"
        requests = list(_made_up_requests(model, default))
    else:
        chosen = examples[:: -(-len(examples) // _MOST_EXAMPLES) or 1]
        requests = [
            as_tensors(chosen[start : start + _BATCH_SIZE], fields_of(model))
            for start in range(0, len(chosen), _BATCH_SIZE)
        ]
    counts = np.concatenate([answer(**texts)["num_tokens"] for texts in requests] or [[]])
    try:
        ranges = recorder.ranges()
    except ValueError as error:
        raise ValueError(f"Cannot calibrate on {source}: {error}") from error
    blocks = [Int8Block(*each) for each in zip(model.backbone.blocks, ranges)]
    return blocks, {"source": source, "examples": len(counts), "tokens": int(counts.sum())}


def _made_up_requests(model: Task, default: Signature) -> Iterator[dict[str, tf.Tensor]]:
    tokenizer = model.preprocessor.tokenizer
    special = set(tokenizer.special_token_ids)
    ids = np.array([id for id in range(tokenizer.vocabulary_size()) if id not in special])
    random = np.random.default_rng(0)

    def random_words(text: bytes) -> str:
        return tokenizer.detokenize(random.choice(ids, len(text.split())).tolist())

    for length in default.lengths:
        for _ in range(_MADE_UP):
            request = default.inputs_of_example(length)
            for name, tensor in request.items():
                made_up = [random_words(text) for text in tensor.numpy().ravel()]
                request[name] = tf.reshape(tf.constant(made_up), tensor.shape)
            yield request
