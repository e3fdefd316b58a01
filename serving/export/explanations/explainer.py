"""What the signature `explain` returns: the answer, the words, and their shares in it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import tensorflow as tf

from gpt1_keras.tasks.base import RawTextTask
from serving.export.explanations.explained_words import WordFinder, Words
from serving.export.explanations.integrated_gradients import IntegratedGradients
from serving.export.explanations.leave_one_out import LeaveOneOut
from serving.export.explanations.options import INTEGRATED_GRADIENTS, Explanation
from serving.export.signatures import at_most, checked
from serving.export.token_offsets import tokenize_each_with_offsets

Tensors: TypeAlias = dict[str, Any]

# Of gradients, an example may be as long as so many sequences: attention's memory grows with the
# square of it, and of all blocks it is kept.
_MAX_SEQUENCES = 2


class Explainable(Protocol):
    """What the explainer asks of a task's signatures; see `TaskSignatures`."""

    sequence_length: int

    def predict_outputs(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor: ...

    def outputs(self, answers: tf.Tensor) -> Tensors: ...

    def explained(self, answers: tf.Tensor, answer: tf.Tensor) -> tf.Tensor: ...

    def pad(self, framed: Any) -> Tensors: ...


class _Answered(NamedTuple):
    """A batch of examples with their answers.

    Attributes:
        inputs: the model's.
        segments: each field's token ids.
        words: all words of the texts.
        numbers: int32, as the model's ids: the number of each token's word, from 1, or 0.
        read: int32 `[n]`, the indices of the words that the model reads, example by example.
        num_words: int32 `[batch]`, how many those are of each example.
        lengths: int32 `[batch]`, tokens of all sequences of each example.
        answer: int32 `[batch]`, the index of each one's answer.
        value: float32 `[batch]`, what is explained.
    """

    inputs: Tensors
    segments: Sequence[tf.RaggedTensor]
    words: Words
    numbers: tf.Tensor
    read: tf.Tensor
    num_words: tf.Tensor
    lengths: tf.Tensor
    answer: tf.Tensor
    value: tf.Tensor


class Explainer:
    """Answers examples, and finds the words' shares in the answers.

    Args:
        signatures: of the model's export.
        model: a task with a preprocessor.
        explanation: how the shares are found.
    """

    def __init__(
        self, signatures: Explainable, model: RawTextTask, explanation: Explanation
    ) -> None:
        self._signatures, self._explanation = signatures, explanation
        self._preprocessor = model.preprocessor
        self._finder = WordFinder(model.preprocessor.tokenizer)
        self._field_names = tf.constant(model.preprocessor.fields)
        self._gradients = IntegratedGradients(model, signatures.explained, explanation.steps)
        self._leave_one_out = LeaveOneOut(
            lambda segments: signatures.pad(self._preprocessor.frame(segments)[0]),
            lambda inputs, answer: signatures.explained(signatures.predict_outputs(inputs), answer),
        )

    def explain(self, **texts: Any) -> Tensors:
        """Returns the outputs of `explain`, from texts by field as `serving_default` takes them."""
        columns = list(self._preprocessor.as_tensors(texts).values())
        segments, starts, ends = tokenize_each_with_offsets(self._preprocessor.tokenizer, columns)
        framed, truncated = self._preprocessor.frame(segments)
        inputs = self._signatures.pad(framed)
        words = self._finder.find(columns, segments, starts, ends)
        numbers = self._numbers(words, segments, inputs["token_ids"])

        answers = self._signatures.predict_outputs(inputs)
        answer = tf.argmax(answers, axis=-1, output_type=tf.int32)
        value = self._signatures.explained(answers, answer)

        read = _words_read(words, numbers)
        rows = tf.gather(words.examples, read)
        num_words = tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, tf.size(answer))
        num_tokens = self._preprocessor.count_tokens(inputs)
        # Of all sequences of an example, as of a pair in both orders.
        lengths = num_tokens * tf.reduce_prod(tf.shape(inputs["token_ids"])[1:-1])
        batch = _Answered(inputs, segments, words, numbers, read, num_words, lengths, answer, value)
        if self._explanation.method == INTEGRATED_GRADIENTS:
            shares, further = self._by_gradients(batch)
        else:
            shares, further = self._by_leaving_out(batch), {}

        def dense(values: tf.Tensor) -> tf.Tensor:
            return tf.RaggedTensor.from_row_lengths(values, num_words, validate=False).to_tensor()

        outputs = {
            **self._signatures.outputs(answers),
            "num_tokens": num_tokens,
            "truncated": truncated,
            "words": dense(tf.gather(words.texts, read)),
            "word_fields": dense(tf.gather(self._field_names, tf.gather(words.fields, read))),
            "word_starts": dense(tf.gather(words.starts, read)),
            "word_ends": dense(tf.gather(words.ends, read)),
            "word_shares": dense(shares),
            "num_words": num_words,
            **further,
        }
        if any(isinstance(column, tf.RaggedTensor) for column in columns):
            outputs["word_choices"] = dense(tf.gather(words.choices, read))
        return outputs

    def _by_gradients(self, batch: _Answered) -> tuple[tf.Tensor, Tensors]:
        """The shares of the words read, and further outputs."""
        condition = at_most(
            "tokens of an example that is explained by gradients",
            batch.lengths,
            _MAX_SEQUENCES * self._signatures.sequence_length,
        )
        shares, at_baseline = self._gradients.shares(
            checked(batch.inputs, condition),
            batch.numbers,
            batch.words.count,
            batch.lengths,
            batch.answer,
        )
        shares = tf.gather(shares, batch.read)
        rows = tf.gather(batch.words.examples, batch.read)
        total = tf.math.unsorted_segment_sum(shares, rows, tf.size(batch.answer))
        return shares, {"completeness_error": total - (batch.value - at_baseline)}

    def _by_leaving_out(self, batch: _Answered) -> tf.Tensor:
        """The shares of the words read."""
        condition = at_most(
            "words of an example, to leave them out one at a time",
            batch.num_words,
            self._explanation.max_words,
        )
        read = checked({"read": batch.read}, condition)["read"]
        without = self._leave_one_out.without_each(
            batch.segments, batch.words, read, batch.lengths, batch.answer
        )
        return tf.gather(batch.value, tf.gather(batch.words.examples, read)) - without

    def _numbers(self, words: Words, segments: list[Any], token_ids: tf.Tensor) -> tf.Tensor:
        """The number of each token's word, of the shape of the model's ids; 0 where there is none.

        The numbers are framed as ids are. They are negative meanwhile, and so neither like special
        tokens nor like padding.
        """
        negative = [each.with_flat_values(-each.flat_values) for each in words.numbers]
        framed = self._preprocessor.frame_values(segments, negative)
        length = tf.shape(token_ids)[-1]
        return tf.maximum(-self._signatures.pad(framed)["token_ids"][..., :length], 0)


def _words_read(words: Words, numbers: tf.Tensor) -> tf.Tensor:
    """The indices of the words that the model reads any token of, example by example."""
    counts = tf.math.unsorted_segment_sum(tf.ones_like(numbers), numbers, words.count + 1)
    read = tf.where(counts[1:] > 0)[:, 0]
    order = tf.argsort(tf.gather(words.examples, read), stable=True)
    return tf.cast(tf.gather(read, order), tf.int32)
