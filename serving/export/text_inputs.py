"""The texts of a fine-tuned task's examples, and the model's inputs that they become."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from gpt1_keras.tasks.batches import string_tensors
from gpt1_keras.tasks.fields_preprocessor import FieldsPreprocessor
from gpt1_keras.tasks.task import Task
from gpt1_keras.tokenization.input_transformations import second_limit
from gpt1_keras.tokenization.padding import bucket_lengths
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from serving.export.batching import merged
from serving.export.export_options import Batching
from serving.export.signature import Tensors, full_stops, text_specs

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
    return padded_tensors({field: [each[field] for each in examples] for field in fields})


def padded_tensors(texts: dict[str, Any]) -> dict[str, tf.Tensor]:
    """Returns columns of texts as signatures take them; empty strings pad the choices."""
    return {
        field: tensor.to_tensor("") if isinstance(tensor, tf.RaggedTensor) else tensor
        for field, tensor in string_tensors(texts).items()
    }


# All windows or choices of a request may cost as much as the tokens of this number of sequences:
# the most rows that the server accepts.
_MAX_REQUEST_SEQUENCES = 256
_TOKEN_BYTES = 4  # about, in English


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
        self._windows = model.windows

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
        if self._windows == 1:
            return texts
        [text] = self._preprocessor.as_tensors(texts).values()
        # Before requests are merged, only the bytes are known, of which a token has about four.
        windows = tf.strings.length(text) // (_TOKEN_BYTES * self.sequence_length) + 1
        total = tf.reduce_sum(tf.minimum(windows, self._windows))
        what = f"windows in a request, of {self.sequence_length} tokens of {_TOKEN_BYTES} bytes"
        return asserted(texts, at_most(what, total, _MAX_REQUEST_SEQUENCES))

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
        of_windows = []
        if self._windows > 1:
            of_windows = [at_most("windows", tf.shape(mask)[1], self._windows)]
            num_tokens = num_tokens[:, 0]  # the only one that is always there
        return [
            *of_windows,
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


STARTS, ENDS = "starts", "ends"  # the names of outputs


def has_offsets(preprocessor: Any) -> bool:
    """Returns whether a preprocessor has `frame`; a user's may only have `transform`."""
    classes = type(preprocessor).__mro__
    transform, frame = (
        next((index for index, cls in enumerate(classes) if name in vars(cls)), len(classes))
        for name in ("transform", "frame")
    )
    return isinstance(preprocessor, FieldsPreprocessor) and frame <= transform


def tokenize_each_with_offsets(
    tokenizer: GPT1Tokenizer, batches: Sequence[Any]
) -> tuple[list[Any], list[Any], list[Any]]:
    """Tokenizes several batches of strings in one call, and finds each token's range of bytes.

    Args:
        batches: string `[batch]` each, or ragged `[batch, None]`.

    Returns:
        `(ids, starts, ends)`, each a list of int32 tensors with one more, ragged dimension.
    """
    flat = [each.values if isinstance(each, tf.RaggedTensor) else each for each in batches]
    ids, *offsets = tokenizer.tokenize_with_offsets(tf.concat(flat, axis=0))
    ragged = [ids, *(tf.cast(each, tf.int32) for each in offsets)]
    split: list[list[Any]] = [[], [], []]
    row = tf.zeros((), tf.int32)
    for batch, texts in zip(batches, flat):
        end = row + tf.size(texts)
        for rows, each in zip(split, ragged):
            part = each[row:end]
            rows.append(batch.with_values(part) if isinstance(batch, tf.RaggedTensor) else part)
        row = end
    return split[0], split[1], split[2]


def framed_offsets(
    preprocessor: FieldsPreprocessor,
    inputs: dict[str, tf.Tensor],
    segments: list[Any],
    starts: list[Any],
    ends: list[Any],
) -> dict[str, tf.Tensor]:
    """Returns the ranges of bytes of the tokens in the model's inputs.

    Args:
        inputs: the model's inputs, with `token_ids`, int32 `[batch, ..., length]`.
        segments, starts, ends: as `tokenize_each_with_offsets` returns them.

    Returns:
        `starts` and `ends`, int32 of the shape of `token_ids`; -1 for special tokens and padding.
    """
    ids = inputs["token_ids"]
    if ids.shape.rank == 3:  # both orders of a pair, or windows
        is_token = inputs["padding_mask"] > 0
    else:
        is_token = tf.sequence_mask(preprocessor.count_tokens(inputs), tf.shape(ids)[-1])
    for special in preprocessor.tokenizer.special_token_ids:
        is_token &= ids != special
    framed = {
        name: preprocessor.pad(preprocessor.frame_values(segments, values))["token_ids"]
        for name, values in ((STARTS, starts), (ENDS, ends))
    }
    return {name: tf.where(is_token, values, -1) for name, values in framed.items()}


# An example with all its choices may have as many tokens as this number of sequences: attention's
# memory grows with the square of its length.
_MAX_SEQUENCES = 8
_LENGTHS = "lengths"  # the name of the joined choices' lengths


class ChoiceInputs(TextInputs):
    """The inputs of multiple choice: like `TextInputs`, but the last field is `[batch, choices]`.

    In a dense tensor, empty strings after an example's last choice are no choices.
    """

    def __init__(self, model: Task) -> None:
        super().__init__(model)
        self._field = model.preprocessor.fields[-1]

    def specs(self) -> dict[str, tf.TensorSpec]:
        choices = tf.TensorSpec([None, None], tf.string, self._field)
        return {**super().specs(), self._field: choices}

    def bucket_lengths(self) -> list[int]:
        lengths = super().bucket_lengths()
        # A long context with several choices often has more tokens than one sequence.
        return [*lengths, 2 * lengths[-1]]

    def example(self, length: int) -> Tensors:
        *others, choices = self._preprocessor.fields
        choice = max(1, length // 8 - 2)
        context = length - 4 * (choice + 2) - len(others)
        texts = dict.fromkeys(others, tf.constant([full_stops(1)]))
        texts[others[0]] = tf.constant([full_stops(context)])
        return {**texts, choices: tf.constant([[full_stops(choice)] * 4])}

    def prepare(self, texts: Tensors) -> Tensors:
        """Returns the texts, with choices as a ragged tensor, at least one for each example."""
        texts = self._preprocessor.as_tensors(texts)
        choices = texts[self._field]
        count = choices.row_lengths()
        # Before requests are merged, only the bytes are known. A text rarely has more tokens than
        # bytes.
        limit = second_limit(0, self.sequence_length, self._preprocessor.truncate)
        tokens = 2 + tf.minimum(tf.strings.length(choices.values), limit)
        total = tf.math.unsorted_segment_sum(tokens, choices.value_rowids(), choices.nrows())
        values = asserted(
            {self._field: choices.values},
            (count > 0, "Every example needs a choice.", count),
            at_most("tokens of all choices", total, (_MAX_SEQUENCES - 1) * self.sequence_length),
            self._affordable(total),
        )
        return {**texts, self._field: choices.with_values(values[self._field])}

    def _affordable(self, tokens: tf.Tensor) -> Condition:
        """Returns the condition that a request can be read, from its examples' choices' tokens."""
        return at_most(
            "tokens of the choices of a request, where those of an example that are longer than a "
            f"sequence, n > {self.sequence_length}, count as n * n / {self.sequence_length}",
            tf.reduce_sum(attention_cost(tokens, self.sequence_length)),
            _MAX_REQUEST_SEQUENCES * self.sequence_length,
        )

    def finish(self, texts: Tensors, outputs: Tensors) -> Tensors:
        """Returns the outputs with `label`, the best choice's text."""
        choices = texts[self._field].to_tensor("")
        label = tf.gather(choices, outputs["choice"], batch_dims=1)
        # If the request was merged with others of more choices, scores have columns for these.
        scores = outputs["scores"][:, : tf.shape(choices)[1]]
        return {**outputs, "scores": scores, "label": label}

    def blank(self, segments: list[Any]) -> tf.Tensor:
        """Returns whether an example's choice, or what comes before all of them, has no token."""
        *prefix, choices = segments
        # The context and the question are one text, of which either may be missing.
        has_prefix = tf.add_n([ids.row_lengths() for ids in prefix]) > 0
        is_blank = tf.cast(choices.values.row_lengths() == 0, tf.int32)
        count = tf.math.unsorted_segment_sum(is_blank, choices.value_rowids(), choices.nrows())
        return ~has_prefix | (count > 0)

    def pad(self, framed: Any) -> Tensors:
        inputs = super().pad(framed)
        indices = inputs["extract_indices"]
        # The model needs at least one column, and a batch without examples has none.
        missing = tf.maximum(1 - tf.shape(indices)[1], 0)
        padded = tf.pad(indices, [[0, 0], [0, missing]], constant_values=-1)
        return {**inputs, "extract_indices": padded}

    def conditions(self, inputs: Tensors) -> list[Condition]:
        ids, positions, branches, extract_indices = (
            inputs[name] for name in ("token_ids", "positions", "branches", "extract_indices")
        )
        rows, length = tf.unstack(tf.shape(ids))
        has_shape = same_shapes(ids, positions, branches) & (tf.shape(extract_indices)[0] == rows)
        are_indices = tf.reduce_all((extract_indices >= -1) & (extract_indices < length))
        # At most the choices' tokens, as the shared prefix is not longer than a sequence.
        beyond = tf.reduce_max(extract_indices, axis=-1) + 1 - self.sequence_length
        return [
            in_range("token_ids", ids, self._vocabulary_size),
            in_range("positions", positions, self.sequence_length),
            at_most("columns of token_ids", length, _MAX_SEQUENCES * self.sequence_length),
            self._affordable(tf.maximum(beyond, 0)),
            (has_shape, "Expected inputs of the shape of token_ids.", tf.shape(ids)),
            (branches >= -1, "Expected branches from -1.", tf.reduce_min(branches)),
            (
                are_indices & tf.reduce_all(tf.reduce_any(extract_indices >= 0, axis=1)),
                "Expected extract_indices to be columns of token_ids, at least one, or -1.",
                extract_indices,
            ),
        ]

    def merged(self, answer: Callable[..., Tensors], batching: Batching) -> Callable[..., Tensors]:
        """Like `TextInputs.merged`, but choices and scores pass through the queue as strings.

        Tensors of merged requests may differ only in their batch, but requests differ in their
        number of choices. And if a request is split, its parts' scores have different numbers of
        columns.
        """

        def answer_joined(**joined: tf.Tensor) -> Tensors:
            outputs = answer(**self._split(**joined))
            # Nine digits tell any two float32 numbers apart.
            digits = tf.strings.as_string(outputs["scores"], precision=8, scientific=True)
            return {**outputs, "scores": tf.strings.reduce_join(digits, axis=1, separator=" ")}

        call = merged(answer_joined, (*self._preprocessor.fields, _LENGTHS), batching)

        def answer_merged(**texts: Any) -> Tensors:
            outputs = call(**self._join(texts))
            scores = tf.strings.to_number(tf.strings.split(outputs["scores"])).to_tensor()
            return {**outputs, "scores": scores}

        return answer_merged

    def _join(self, texts: Tensors) -> Tensors:
        """Returns the texts, each example's choices joined to one string, and their lengths."""
        choices = texts[self._field]
        lengths = choices.with_values(tf.strings.as_string(tf.strings.length(choices.values)))
        return {
            **texts,
            self._field: tf.strings.reduce_join(choices, axis=-1),
            _LENGTHS: tf.strings.reduce_join(lengths, axis=-1, separator=" "),
        }

    def _split(self, **joined: tf.Tensor) -> Tensors:
        """Returns the texts that `_join` joined."""
        lengths = tf.strings.split(joined.pop(_LENGTHS))
        lengths = lengths.with_values(tf.strings.to_number(lengths.values, tf.int32))
        of_example = tf.gather(joined[self._field], lengths.value_rowids())
        starts = tf.cumsum(lengths.values, exclusive=True)
        starts -= tf.gather(starts, tf.gather(lengths.row_splits, lengths.value_rowids()))
        choices = tf.strings.substr(of_example, starts, lengths.values)
        return {**joined, self._field: lengths.with_values(choices)}
