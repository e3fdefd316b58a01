"""What an export is made of."""

import dataclasses
from collections.abc import Sequence

from gpt1_keras.tasks.task import Task
from serving.export.decoder.int8_block import Int8Block
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
