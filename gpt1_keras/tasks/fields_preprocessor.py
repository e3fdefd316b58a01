"""FieldsPreprocessor: the base of fine-tuned tasks' preprocessors, with texts by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import keras

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.preset_files import FromHandle
from gpt1_keras.tokenization.backend import batch_of_one, is_single, text_backend
from gpt1_keras.tokenization.input_transformations import HALVES, ROUND_ROBIN, TRUNCATIONS
from gpt1_keras.tokenization.padding import PadTo
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from gpt1_keras.upstream import take_tuples_for_texts, to_backend_tensors

# Type checkers see what this is mixed into. As a real base, it would come before KerasHub's
# preprocessors of tasks.
if TYPE_CHECKING:
    from keras_hub.models import Preprocessor
else:
    Preprocessor = object


class FieldsPreprocessor(FromHandle, Preprocessor):
    """Turns an example's texts, one per field, into a model's inputs.

    A preprocessor inherits from it and from one of KerasHub's, in this order. It has a `tokenizer`
    and a `sequence_length`, the most tokens of a sequence, special tokens included. Its arguments
    are those of `GPT1TextClassifierPreprocessor`.

    It runs in eager mode, in `tf.data` and in a SavedModel, and in lists where TensorFlow is not
    installed. Exports name their inputs by `fields`, and call `as_tensors`, `transform`, `pad` and
    `count_tokens`, in this order.

    Raises:
        ValueError: the task does not take this number of fields, or two have the same name; an
            unknown `truncate`; or a `tail` that is no share.
    """

    backbone_cls: type[GPT1Backbone] | None = GPT1Backbone
    tokenizer_cls = GPT1Tokenizer
    sequence_length: int

    # The possible numbers of fields, and their purpose.
    field_counts: ClassVar[tuple[int, ...]]
    field_purpose: ClassVar[str]

    def __init__(
        self, fields: Sequence[str], truncate: str = ROUND_ROBIN, tail: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        is_valid = len(fields) in self.field_counts and len(set(fields)) == len(fields)
        if not is_valid or isinstance(fields, str):
            raise ValueError(f"Expected fields for {self.field_purpose}. Received: {fields}.")
        if truncate not in TRUNCATIONS:
            raise ValueError(f"truncate must be one of {TRUNCATIONS}. Received: {truncate!r}.")
        if not isinstance(tail, (int, float)) or not 0 <= tail < 1:
            raise ValueError(f"tail must be a share from 0 to less than 1. Received: {tail!r}.")
        self.fields = tuple(fields)
        self.truncate = truncate
        self.tail = float(tail)
        self.built = True
        if len(fields) > 1:
            take_tuples_for_texts(self)

    def transform(self, texts: list[Any]) -> tuple[Any, Any]:
        """Tokenizes and frames texts, one tensor per field, as `as_tensors` returns them.

        Returns `(framed, truncated)`: ragged tensors for `pad`; and bool `[batch]`, whether a text
        was truncated.
        """
        return self.frame(self.tokenizer.tokenize_each(texts))

    def frame(self, segments: list[Any]) -> tuple[Any, Any]:
        """Frames token ids, a ragged tensor for each text; returns the same as `transform`.

        By default as one or two texts of section 3.3: int32 `[batch, None]`.
        """
        return text_backend().frame(
            segments, self.tokenizer, self.sequence_length, self.truncate, self.tail
        )

    def frame_values(self, segments: list[Any], values: list[Any]) -> Any:
        """Frames other values of the tokens the way `frame` frames ids: int32, ragged as the ids.

        The values at special tokens are undefined.
        """
        framed, _ = self.frame(values)  # `frame` only selects values
        return framed

    def pad(self, framed: Any, pad_to: PadTo = "bucket") -> dict[str, Any]:
        """Pads what `transform` returns to the model's inputs.

        `"longest"` is the length of the batch's longest sequence. By default, the inputs are
        `token_ids` and `padding_mask`, int32 `[batch, length]`.
        """
        return text_backend().pad(framed, self.tokenizer, self.sequence_length, pad_to)

    def count_tokens(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns each example's number of tokens, int32 `[batch]`, from the model's inputs."""
        return tf.reduce_sum(inputs["padding_mask"], axis=-1)

    def trim(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Removes from the model's inputs the padding that all sequences of a batch share."""
        longest = tf.reduce_max(tf.concat([[1], self.count_tokens(inputs)], axis=0))
        # An axis of choices stays whole, as there are fewer choices than tokens.
        return {name: tensor[..., :longest] for name, tensor in inputs.items()}

    def read(self, x: Any) -> tuple[dict[str, Any], bool]:
        """Checks a user's texts, once.

        Args:
            x: one example, or a batch: a text for each field as a tuple, a dict, or columns of a
                pandas DataFrame, which may have others; or a text of the only field.

        Returns:
            `(texts, is_one)`: a batch of string tensors by field; and whether it was one example,
            without a batch dimension.

        Raises:
            ValueError: the number of texts, their names or their shapes are wrong.
        """
        texts = self._by_field(x)
        is_one = is_single(texts[self.fields[0]])
        if is_one:
            texts = {field: batch_of_one(text) for field, text in texts.items()}
        return self.as_tensors(texts), is_one

    def as_tensors(self, texts: dict[str, Any]) -> dict[str, Any]:
        """Returns a batch of texts by field as string tensors.

        Raises ValueError if their shapes are wrong.
        """
        backend = text_backend()
        tensors = {field: backend.as_texts(texts[field]) for field in self.fields}
        ranks = {field: backend.rank(tensor) for field, tensor in tensors.items()}
        if set(ranks.values()) != {1}:
            raise ValueError(
                "Expected strings of shape [batch], or one string for each field. Received ranks: "
                f"{ranks}."
            )
        return tensors

    def call(
        self, x: Any, y: Any = None, sample_weight: Any = None, pad_to: PadTo = "sequence_length"
    ) -> Any:
        texts, is_one = self.read(x)
        self.check_labels(texts, y)
        inputs = self.inputs_of(texts, pad_to)
        if is_one:
            inputs = {name: batch[0] for name, batch in inputs.items()}
        return keras.utils.pack_x_y_sample_weight(to_backend_tensors(inputs), y, sample_weight)

    def inputs_of(self, texts: dict[str, Any], pad_to: PadTo) -> dict[str, Any]:
        """Returns the model's inputs of a batch that `read` returned."""
        framed, _ = self.transform(list(texts.values()))
        return self.pad(framed, pad_to)

    def check_labels(self, texts: dict[str, Any], y: Any) -> None:
        """Raises an error if labels do not fit a batch that `read` returned."""
        return  # without a statement, AutoGraph would warn that it cannot transform this

    def _by_field(self, x: Any) -> dict[str, Any]:
        """Returns texts by field: names those of a tuple, and checks those of a dict or table."""
        if hasattr(x, "columns"):
            columns = list(x.columns)
            if any(columns.count(field) != 1 for field in self.fields):
                raise ValueError(
                    f"Expected a table with the columns {self.fields}. Received: {columns}."
                )
            return {field: x[field].tolist() for field in self.fields}
        if isinstance(x, dict):
            if set(x) != set(self.fields):
                raise ValueError(f"Expected the fields {self.fields}. Received: {sorted(x)}.")
            return x
        texts = x if isinstance(x, tuple) else (x,)
        if len(texts) != len(self.fields):
            raise ValueError(
                f"Expected {len(self.fields)} texts, for {self.fields}. Received: {len(texts)}. A "
                "tuple has a text for each field; a batch of texts is a list."
            )
        return dict(zip(self.fields, texts))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "sequence_length": self.sequence_length,
            "fields": self.fields,
            "truncate": self.truncate,
            "tail": self.tail,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> FieldsPreprocessor:
        # Presets of earlier versions, which knew only halves, do not name it.
        return super().from_config({"truncate": HALVES, **config})
