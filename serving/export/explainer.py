"""The signature `explain`: the answer, the words of the texts, and their shares in the answer."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN
from serving.export.explanation_methods import IntegratedGradients, explained_without_each
from serving.export.export_options import INTEGRATED_GRADIENTS, LEAVE_ONE_OUT
from serving.export.signature import ExportSpec, Tensors
from serving.export.task_answers import Answers
from serving.export.text_inputs import (
    TextInputs,
    asserted,
    at_most,
    attention_cost,
    has_offsets,
    tokenize_each_with_offsets,
)

# An example that gradients explain has at most the tokens of this number of sequences: attention's
# memory grows with the square of its length, and gradients keep that of all blocks. Windows, which
# are sequences by themselves, are all explained.
_MAX_SEQUENCES = 2
# A request takes at most the work of this number of full examples: as long as a sequence and, where
# words are left out, with the most words. One example of two sequences is as much as four. One of
# more windows than this is explained alone.
_MAX_FULL_EXAMPLES = 4


@dataclasses.dataclass(frozen=True)
class Words:
    """All words of all texts, field after field. They are numbered from 1.

    Attributes:
        numbers: a ragged tensor for each field, int32 of the shape of its segment: the number of
            each token's word.
        examples: int32 `[words]`, the index of each word's example.
        fields: int32 `[words]`, the index of each word's field.
        choices: int32 `[words]`, the index of each word's choice; -1 in other fields.
        texts: string `[words]`, as they stand in the original text.
        starts, ends: int32 `[words]`, their byte offsets there.
    """

    numbers: list[tf.RaggedTensor]
    examples: tf.Tensor
    fields: tf.Tensor
    choices: tf.Tensor
    texts: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor

    @property
    def count(self) -> tf.Tensor:
        """The number of words, int32 scalar."""
        return tf.size(self.examples)


class WordFinder:
    """Finds the words of tokenized texts: a word ends with a token that has the end-of-word mark.

    `<unk>` has no such mark: a word ends after it if the next token's bytes do not follow directly.
    So several words that are each one unknown character, such as Chinese ones, may be found as one.
    """

    def __init__(self, tokenizer: GPT1Tokenizer) -> None:
        tokens = tokenizer.get_vocabulary()
        self._is_final = tf.constant([token.endswith(END_OF_WORD) for token in tokens])
        self._unknown = tokenizer.token_to_id(UNKNOWN)

    def find(
        self,
        texts: Sequence[Any],
        segments: Sequence[tf.RaggedTensor],
        starts: Sequence[tf.RaggedTensor],
        ends: Sequence[tf.RaggedTensor],
    ) -> Words:
        """Finds the words of a batch.

        Args:
            texts: a tensor for each field, string `[batch]`; for choices ragged, `[batch, None]`.
            segments: their tokens' ids, int32 `[batch, None]`, or `[batch, None, None]`.
            starts, ends: the tokens' byte offsets in their texts, of the shapes of `segments`.
        """
        found, numbers, count = [], [], tf.constant(0)
        for field, each in enumerate(zip(texts, segments, starts, ends)):
            columns, of_tokens = self._of_field(*each)
            columns["fields"] = tf.fill(tf.shape(columns["examples"]), field)
            numbers.append(each[1].with_flat_values(count + of_tokens))
            count += tf.size(columns["examples"])
            found.append(columns)
        joined = {name: tf.concat([each[name] for each in found], axis=0) for name in found[0]}
        return Words(numbers, **joined)

    def _of_field(
        self, texts: Any, segment: tf.RaggedTensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Returns a field's words, as `Words` has them, and each token's word, counted from 1."""
        if isinstance(texts, tf.RaggedTensor):
            example = tf.cast(texts.value_rowids(), tf.int32)
            choice = tf.range(tf.size(texts.values)) - tf.cast(
                tf.gather(texts.row_starts(), example), tf.int32
            )
            texts, segment = texts.values, segment.values
        else:
            example = tf.range(tf.size(texts))
            choice = tf.fill(tf.shape(example), -1)
        row = tf.cast(segment.value_rowids(), tf.int32)
        start, end = starts.flat_values, ends.flat_values
        # Whether the second of two neighbouring tokens begins a word.
        is_new = row[1:] != row[:-1]
        is_new |= tf.gather(self._is_final, segment.values[:-1])
        is_new |= (segment.values[:-1] == self._unknown) & (start[1:] > end[:-1])
        is_first = tf.concat([[True], is_new], axis=0)[: tf.size(row)]
        number = tf.cumsum(tf.cast(is_first, tf.int32))
        first = tf.where(is_first)[:, 0]
        row, start = tf.gather(row, first), tf.gather(start, first)
        end = tf.math.unsorted_segment_max(end, number - 1, tf.size(row))
        columns: Mapping[str, tf.Tensor] = {
            "examples": tf.gather(example, row),
            "choices": tf.gather(choice, row),
            "texts": tf.strings.substr(tf.gather(texts, row), start, end - start),
            "starts": start,
            "ends": end,
        }
        return dict(columns), number


class _Answered(NamedTuple):
    """A batch of examples with their answers.

    Attributes:
        inputs: the model's inputs.
        segments: each field's token ids.
        words: all words of the texts.
        numbers: int32 of the shape of the model's ids: the number of each token's word, from 1; 0
            for tokens of no word.
        read: int32 `[n]`, the indices of the words that the model reads, example by example.
        num_words: int32 `[batch]`, the number of these words in each example.
        lengths: int32 `[batch]`, the number of tokens of all sequences of each example.
        costs: int64 `[batch]`, what it costs to read each example, in tokens.
        answer: int32 `[batch]`, the index of each example's answer.
        value: float32 `[batch]`, the number that is explained.
    """

    inputs: Tensors
    segments: Sequence[tf.RaggedTensor]
    words: Words
    numbers: tf.Tensor
    read: tf.Tensor
    num_words: tf.Tensor
    lengths: tf.Tensor
    costs: tf.Tensor
    answer: tf.Tensor
    value: tf.Tensor


class Explainer:
    """Answers examples, and computes the words' shares in the answers.

    Args:
        predict_outputs: from the model's inputs to its outputs, float `[batch, n]`.
        has_gradients: whether `predict_outputs` may take `states_at`, with float blocks.

    Raises:
        ValueError: the model's answers cannot be explained, or not by this method.
    """

    def __init__(
        self,
        spec: ExportSpec,
        inputs: TextInputs,
        answers: Answers,
        predict_outputs: Callable[[Tensors], tf.Tensor],
        has_gradients: bool,
    ) -> None:
        model, explanation, preprocessor = spec.model, spec.explanation, spec.model.preprocessor
        assert explanation is not None
        if explanation.method == INTEGRATED_GRADIENTS and not has_gradients:
            raise ValueError(
                f"A {type(model).__name__} with a {type(model.backbone).__name__} "
                f"{'in 8 bits ' if spec.blocks else ''}has no gradients in an export: expected a "
                "GPT1Backbone computed in one float dtype, and a task whose `predict_outputs` "
                f"takes `states_at`. To explain its answers, use {LEAVE_ONE_OUT!r}."
            )
        if not has_offsets(preprocessor):
            raise ValueError(
                f"{type(preprocessor).__name__} has a `transform` of its own, which does not "
                "say where its tokens stand in the texts: expected `frame` in its place."
            )
        if answers.explained is None:
            raise ValueError(
                f"The export of a {type(model).__name__} does not say which part of its answers is "
                "`explained`."
            )
        self._explanation, self._preprocessor = explanation, preprocessor
        self._windows = model.windows
        self._max_sequences = max(_MAX_SEQUENCES, self._windows)
        self._max_full_examples = max(_MAX_FULL_EXAMPLES, self._windows)
        self._pad, self._blank, self._predict_outputs = inputs.pad, inputs.blank, predict_outputs
        self._outputs, self._explained = answers.outputs, answers.explained
        self._finder = WordFinder(preprocessor.tokenizer)
        self._field_names = tf.constant(preprocessor.fields)
        self._gradients = IntegratedGradients(model, answers.explained, explanation.steps)

    @property
    def description(self) -> str:
        """How the shares are computed: a sentence for the export's README."""
        if self._explanation.method == INTEGRATED_GRADIENTS:
            how = f"integrated gradients, {self._explanation.steps} steps from embeddings of zeros"
        else:
            how = f"leaving one word out at a time, of at most {self._explanation.max_words}"
        return f"Answers can be explained: by {how}."

    def explain(self, **texts: Any) -> Tensors:
        """Returns the outputs of `explain` for texts by field, as `serving_default` takes them."""
        columns = list(self._preprocessor.as_tensors(texts).values())
        segments, starts, ends = tokenize_each_with_offsets(self._preprocessor.tokenizer, columns)
        framed, truncated = self._preprocessor.frame(segments)
        inputs = self._pad(framed)
        words = self._finder.find(columns, segments, starts, ends)
        numbers = self._numbers(words, segments, inputs["token_ids"])

        answers = self._predict_outputs(inputs)
        answer = tf.argmax(answers, axis=-1, output_type=tf.int32)
        value = self._explained(answers, answer)

        read = _words_read(words, numbers)
        rows = tf.gather(words.examples, read)
        num_words = tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, tf.size(answer))
        num_tokens = self._preprocessor.count_tokens(inputs)
        lengths, costs = self._lengths_and_costs(num_tokens, inputs["token_ids"])
        batch = _Answered(
            inputs,
            segments,
            words,
            numbers,
            read,
            num_words,
            lengths,
            costs,
            answer,
            value,
        )
        if self._explanation.method == INTEGRATED_GRADIENTS:
            shares, further = self._by_gradients(batch)
        else:
            shares, further = self._by_leaving_out(batch), {}

        def dense(values: tf.Tensor) -> tf.Tensor:
            return tf.RaggedTensor.from_row_lengths(values, num_words, validate=False).to_tensor()

        outputs = {
            **self._outputs(answers),
            "num_tokens": num_tokens,
            "truncated": truncated,
            "blank": self._blank(segments),
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

    def _lengths_and_costs(
        self, num_tokens: tf.Tensor, token_ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns examples' lengths and costs, as `_Answered` has them."""
        if self._windows > 1:  # of which `num_tokens` counts all
            return num_tokens, tf.cast(num_tokens, tf.int64)
        # An example may be several sequences, such as a pair in both orders.
        orders = tf.reduce_prod(tf.shape(token_ids)[1:-1])
        costs = attention_cost(num_tokens, self._preprocessor.sequence_length)
        return num_tokens * orders, costs * tf.cast(orders, tf.int64)

    def _by_gradients(self, batch: _Answered) -> tuple[tf.Tensor, Tensors]:
        """Returns the shares of the words read, and further outputs."""
        sequence_length = self._preprocessor.sequence_length
        conditions = [
            at_most(
                "tokens of an example that is explained by gradients",
                batch.lengths,
                self._max_sequences * sequence_length,
            ),
            at_most(
                "tokens of all examples of a request that is explained by gradients",
                tf.reduce_sum(batch.costs),
                self._max_full_examples * sequence_length,
            ),
        ]
        shares, at_baseline = self._gradients.shares(
            asserted(batch.inputs, *conditions),
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
        """Returns the shares of the words read."""
        max_words = self._explanation.max_words
        conditions = [
            at_most(
                "words of an example, to leave them out one at a time", batch.num_words, max_words
            ),
            at_most(
                "as the sum, over the examples of a request, of tokens times words",
                tf.reduce_sum(batch.costs * tf.cast(batch.num_words, tf.int64)),
                self._max_full_examples * max_words * self._preprocessor.sequence_length,
            ),
        ]
        read = asserted({"read": batch.read}, *conditions)["read"]
        without = explained_without_each(
            lambda segments: self._pad(self._preprocessor.frame(segments)[0]),
            lambda framed, answer: self._explained(self._predict_outputs(dict(framed)), answer),
            batch.segments,
            batch.words.numbers,
            batch.words.examples,
            read,
            batch.lengths,
            batch.answer,
        )
        return tf.gather(batch.value, tf.gather(batch.words.examples, read)) - without

    def _numbers(self, words: Words, segments: list[Any], token_ids: tf.Tensor) -> tf.Tensor:
        """Returns the number of each token's word, in the shape of the model's ids; 0 for no word.

        The numbers are framed like ids. They are negative while they are framed, so that they
        differ from special tokens and padding.
        """
        negative = [each.with_flat_values(-each.flat_values) for each in words.numbers]
        framed = self._preprocessor.frame_values(segments, negative)
        length = tf.shape(token_ids)[-1]
        return tf.maximum(-self._pad(framed)["token_ids"][..., :length], 0)


def _words_read(words: Words, numbers: tf.Tensor) -> tf.Tensor:
    """Returns the indices of words with a token that the model reads, example by example."""
    counts = tf.math.unsorted_segment_sum(tf.ones_like(numbers), numbers, words.count + 1)
    read = tf.where(counts[1:] > 0)[:, 0]
    order = tf.argsort(tf.gather(words.examples, read), stable=True)
    return tf.cast(tf.gather(read, order), tf.int32)
