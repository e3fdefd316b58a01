"""The texts of a fine-tuned task's examples, and the model's inputs that they become."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from gpt1_keras.tasks.fields_preprocessor import FieldsPreprocessor
from gpt1_keras.tasks.task import Task
from gpt1_keras.tokenization.padding import bucket_lengths
from serving.export.batching import merged
from serving.export.export_options import Batching
from serving.export.signature import Tensors, full_stops, text_specs
from serving.export.token_offsets import framed_offsets, has_offsets, tokenize_each_with_offsets

# The condition, bool of any shape; a sentence that says what is expected; and what was received.
Condition: TypeAlias = tuple[tf.Tensor, str, tf.Tensor]


def asserted(tensors: Mapping[str, Any], *conditions: Condition) -> dict[str, Any]:
    """Returns the tensors; their graph fails unless all conditions hold."""
    assertions = [
        tf.debugging.Assert(tf.reduce_all(condition), [f"{expected} Received:", received])
        for condition, expected, received in conditions
    ]
    with tf.control_dependencies(assertions):
        return {name: tf.identity(tensor) for name, tensor in tensors.items()}


def in_range(name: str, numbers: tf.Tensor, size: int) -> Condition:
    """Returns the condition that numbers are indices of `size` elements.

    Without it, look-ups would count negative indices from the end, and on a GPU would take any
    index.
    """
    valid = (numbers >= 0) & (numbers < size)
    return valid, f"Expected {name} from 0 to {size - 1}.", tf.boolean_mask(numbers, ~valid)


def at_most(what: str, numbers: tf.Tensor, most: int) -> Condition:
    """Returns the condition that numbers are at most `most`."""
    return numbers <= most, f"Expected at most {most} {what}.", tf.reduce_max(numbers)


def attention_cost(tokens: tf.Tensor, sequence_length: int) -> tf.Tensor:
    """Returns what it costs to read examples, in tokens of ordinary sequences, int64.

    Attention's cost grows with the square of the length, so the tokens of an example that is
    longer than a sequence count more than once.

    Args:
        tokens: int32 or int64, each example's number of tokens.
        sequence_length: the most tokens of a sequence.
    """
    tokens = tf.cast(tokens, tf.int64)
    return tokens * tf.maximum(tokens, sequence_length) // sequence_length


def same_shapes(first: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    """Returns whether tensors of one rank have one shape, as a bool tensor."""
    return tf.reduce_all([tf.reduce_all(tf.shape(first) == tf.shape(each)) for each in others])


def as_tensors(
    examples: Sequence[Mapping[str, Any]], fields: Sequence[str]
) -> dict[str, tf.Tensor]:
    """Returns examples' texts as tensors of strings by field; empty strings pad short lists.

    Raises:
        ValueError: examples lack a field.
    """
    missing = [field for field in fields if any(field not in example for example in examples)]
    if missing:
        raise ValueError(f"Expected examples of {fields}. Some have no {missing}.")
    columns = {field: [example[field] for example in examples] for field in fields}
    return {
        field: tf.ragged.constant(column, tf.string).to_tensor("")
        if isinstance(column[0], list)
        else tf.constant(column, tf.string)
        for field, column in columns.items()
    }


class TextInputs:
    """The inputs of a task that reads one string for each field, such as a classifier.

    Args:
        model: a task whose preprocessor has `fields`, `as_tensors`, `transform`, `pad` and
            `count_tokens`, like `GPT1TextClassifierPreprocessor`. The model's inputs are int32.
    """

    def __init__(self, model: Task) -> None:
        self._preprocessor = model.preprocessor
        self._vocabulary_size = model.backbone.vocabulary_size
        self.sequence_length: int = model.preprocessor.sequence_length

    def specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the specs of the texts by field."""
        return text_specs(*self._preprocessor.fields)

    def bucket_lengths(self) -> list[int]:
        """Returns the lengths that the model's inputs are padded to."""
        return bucket_lengths(self.sequence_length)

    def example(self, length: int) -> Tensors:
        """Returns the texts of one example of about `length` tokens, by field."""
        fields = self._preprocessor.fields
        text = full_stops((length - len(fields) - 1) // len(fields))
        return dict.fromkeys(fields, tf.constant([text]))

    def parse(self, examples: tf.Tensor) -> Tensors:
        """Returns the texts of serialized tf.Examples, string `[batch]`, by field."""
        features = {
            field: tf.io.FixedLenFeature([], tf.string)
            if spec.shape.rank == 1
            else tf.io.RaggedFeature(tf.string, row_splits_dtype=tf.int64)
            for field, spec in self.specs().items()
        }
        return tf.io.parse_example(examples, features)

    def prepare(self, texts: Tensors) -> Tensors:
        """Returns the texts as `tokenize` takes them, checked."""
        return texts

    def finish(self, texts: Tensors, outputs: Tensors) -> Tensors:
        """Returns the outputs, with further ones that are made from the prepared texts."""
        return outputs

    def tokenize(self, **texts: Any) -> Tensors:
        """Returns the model's inputs; and `truncated` and `blank`, bool `[batch]`.

        A preprocessor with a `transform` of its own does not say what is `blank`.
        """
        columns = list(self._preprocessor.as_tensors(texts).values())
        if getattr(type(self._preprocessor), "transform", None) is not FieldsPreprocessor.transform:
            framed, truncated = self._preprocessor.transform(columns)
            return {**self.pad(framed), "truncated": truncated}
        segments = self._preprocessor.tokenizer.tokenize_each(columns)
        framed, truncated = self._preprocessor.frame(segments)
        return {**self.pad(framed), "truncated": truncated, "blank": self.blank(segments)}

    def tokenize_with_offsets(self, **texts: Any) -> Tensors:
        """Like `tokenize`, with each token's range of bytes, if the preprocessor has `frame`.

        The ranges are `starts` and `ends`, int32 of the shape of `token_ids`; -1 for special tokens
        and padding.
        """
        if not has_offsets(self._preprocessor):
            return self.tokenize(**texts)
        tensors = self._preprocessor.as_tensors(texts)
        segments, *offsets = tokenize_each_with_offsets(
            self._preprocessor.tokenizer, list(tensors.values())
        )
        framed, truncated = self._preprocessor.frame(segments)
        inputs = self.pad(framed)
        ranges = framed_offsets(self._preprocessor, inputs, segments, *offsets)
        return {**inputs, **ranges, "truncated": truncated}

    def blank(self, segments: list[Any]) -> tf.Tensor:
        """Returns whether a text of an example has no token, bool `[batch]`.

        Args:
            segments: the token ids of each field, before they are framed.
        """
        return tf.reduce_any(tf.stack([ids.row_lengths() == 0 for ids in segments]), axis=0)

    def pad(self, framed: Any) -> Tensors:
        """Returns the model's inputs from what the preprocessor framed."""
        return self._preprocessor.pad(framed)

    def conditions(self, inputs: Tensors) -> list[Condition]:
        """Returns the conditions that inputs from `tokenize` fulfil.

        Without them, wrong inputs would get answers: a look-up takes negative ids, and a wrong mask
            moves the extract token.
        """
        ids, mask = inputs["token_ids"], inputs["padding_mask"]
        length, num_tokens = tf.shape(mask)[-1], tf.reduce_sum(mask, axis=-1)
        is_padded = tf.sequence_mask(num_tokens, length, tf.int32) == mask
        return [
            in_range("token_ids", ids, self._vocabulary_size),
            at_most("columns of token_ids", length, self.sequence_length),
            (same_shapes(ids, mask), "Expected the shape of token_ids.", tf.shape(mask)),
            (
                tf.reduce_all(is_padded) & tf.reduce_all(num_tokens > 0),
                "Expected padding_mask to be 1 for each token, at least one, and then 0.",
                mask,
            ),
        ]

    def merged(self, answer: Callable[..., Tensors], batching: Batching) -> Callable[..., Tensors]:
        """Makes a function of prepared texts that answers those of many calls at once."""
        return merged(answer, self._preprocessor.fields, batching)
