"""The graphs of .tflite files: what all tasks share, and the graph of each task."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import tensorflow as tf

from gpt1_keras import GPT1CausalLM, GPT1MultipleChoice, GPT1TextClassifier, GPT1TextSimilarity
from gpt1_keras.tasks.task import Task
from serving.export.task_answers import confidence_of
from serving.export_names import TEXT, TOKENIZE, TOKENS
from serving.registry import TaskEntry
from serving.tflite.byte_tokenizer import ByteTokenizer
from serving.tflite.device_backbone import Cache, Dense, DeviceBackbone
from serving.tflite.device_framing import Framer

_HIDDEN = 1e9  # subtracted from the logit of an absent choice

INT = tf.int32  # and float32: the types that LiteRT's Kotlin and JavaScript have in common

Tensors: TypeAlias = dict[str, tf.Tensor]
Specs: TypeAlias = Mapping[str, tf.TensorSpec]
# The model's inputs by name; and, as scalars, `num_tokens`, `truncated` and `blank`.
Framed: TypeAlias = tuple[Tensors, tf.Tensor, tf.Tensor, tf.Tensor]
# Functions of named tensors of fixed shapes, and their inputs' specs, by the signature's name.
Signatures: TypeAlias = Mapping[str, tuple[Callable[..., Tensors], Specs]]


@dataclasses.dataclass(frozen=True)
class DeviceSpec:
    """The parts of a .tflite file.

    Args:
        model: a task with a preprocessor.
        max_bytes: the most bytes of the text in each field.
        sequence_length: the most tokens of a framed text.
        num_choices: the most choices of an example, if the task has choices.
    """

    model: Task
    max_bytes: Mapping[str, int]
    sequence_length: int
    num_choices: int | None = None


@dataclasses.dataclass(frozen=True)
class DeviceGraph:
    """The signatures of a .tflite file.

    Args:
        signatures: its functions.
        modules: the modules with the weights that the functions read.
        vocabulary: the tokens in the order of their ids, for the file's metadata, or None.
    """

    signatures: Signatures
    modules: Sequence[tf.Module]
    vocabulary: Sequence[str] | None = None


def task_graph(
    text_specs: Specs,
    token_specs: Specs,
    frame: Callable[[Tensors], Framed],
    answer: Callable[..., Tensors],
    modules: Sequence[tf.Module],
) -> DeviceGraph:
    """Returns the graph of a fine-tuned task.

    Its signatures:

    - `text`: maps each field, int32 `[max_bytes]`, to the task's answers, `num_tokens`, int32
      `[1]`; `truncated`, int32 `[1]`: 1 if a text was cut, or fills its input and so may have
      been longer; and `blank`, int32 `[1]`: 1 if a text has no token.
    - `tokenize`: maps the same texts to the model's inputs, `num_tokens`, `truncated` and `blank`.
    - `tokens`: maps the model's inputs to the answers.

    Args:
        text_specs: the specs of the texts by field.
        token_specs: the specs of the model's inputs by name.
        frame: from the texts by field to what the model reads.
        answer: from the model's inputs to the named answers.
        modules: the modules with the weights that `answer` reads.
    """

    def tokenize(**texts: tf.Tensor) -> Tensors:
        inputs, num_tokens, truncated, is_blank = frame(texts)
        told = {"truncated": flag(truncated), "blank": flag(is_blank)}
        return {**inputs, "num_tokens": num_tokens[tf.newaxis], **told}

    def answer_texts(**texts: tf.Tensor) -> Tensors:
        outputs = tokenize(**texts)
        answers = answer(**{name: outputs[name] for name in token_specs})
        return answers | {name: outputs[name] for name in ("num_tokens", "truncated", "blank")}

    signatures = {
        TEXT: (answer_texts, text_specs),
        TOKENIZE: (tokenize, text_specs),
        TOKENS: (answer, token_specs),
    }
    return DeviceGraph(signatures, modules)


def refuse_choices(spec: DeviceSpec) -> None:
    """Raises ValueError if a number of choices is given for a task without choices."""
    if spec.num_choices is not None:
        raise ValueError(
            f"A {type(spec.model).__name__} has no choices. Received: "
            f"num_choices={spec.num_choices}."
        )


def confidence_of_one(model: Task, answers: tf.Tensor) -> Tensors:
    """Like `confidence_of`, for one example: bool is int32 `[1]`."""
    found = confidence_of(model, answers)
    outputs = {"scores": found["scores"][0]}
    return outputs | {name: flag(found[name][0]) for name in found.keys() - outputs.keys()}


def fills(texts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns whether a text, int32 `[max_bytes]` each, fills its input: bool scalar.

    Such a text has no zero after it, and may have been longer.
    """
    return tf.reduce_any(tf.stack([text[-1] for text in texts]) != 0)


def flag(condition: tf.Tensor) -> tf.Tensor:
    """Returns a bool scalar as int32 `[1]`."""
    return tf.cast(condition, INT)[tf.newaxis]


def _framer(spec: DeviceSpec) -> Framer:
    preprocessor = spec.model.preprocessor
    return Framer(
        *(preprocessor.tokenizer, spec.sequence_length, preprocessor.truncate, preprocessor.tail)
    )


def class_or_score_graph(spec: DeviceSpec, reads_both_orders: bool = False) -> DeviceGraph:
    """Returns the graph of a task that answers with a class or a number.

    Answers are `scores`, float `[classes]`, and, if the model has a threshold, `is_sure`, int32
    `[1]`; or, if the task answers with a number, `score`, float `[1]`. The model reads `token_ids`,
    int32 `[orders, sequence_length]`, and `num_tokens`, int32 `[1]`, the length of each order.
    There are one or two orders of the texts.

    Raises:
        ValueError: a number of choices is given.
    """
    refuse_choices(spec)
    model, preprocessor = spec.model, spec.model.preprocessor
    byte_tokenizer = ByteTokenizer(preprocessor.tokenizer, list(spec.max_bytes.values()))
    framer = _framer(spec)
    backbone = DeviceBackbone(model.backbone, spec.sequence_length)
    head = Dense.of(model.head)
    order = tuple(range(len(spec.max_bytes)))
    orders = [order, order[::-1]] if reads_both_orders else [order]

    def frame(texts: Tensors) -> Framed:
        columns = [texts[field] for field in spec.max_bytes]
        tokens = byte_tokenizer(columns)
        framed = [framer.frame(tokens, each) for each in orders]
        _, num_tokens, truncated = framed[0]
        ids = tf.stack([each for each, *_ in framed])
        *_, lengths = tokens
        is_blank = tf.reduce_any(lengths == 0)
        return {"token_ids": ids}, num_tokens, truncated | fills(columns), is_blank

    def answer(token_ids: tf.Tensor, num_tokens: tf.Tensor) -> Tensors:
        last = tf.tile(num_tokens[tf.newaxis] - 1, [len(orders), 1])
        states = backbone.states_at(token_ids, last)
        answers = model.activate(head(tf.reduce_sum(states, axis=0)))
        if model.class_names is None:
            return {"score": model.score_of(answers)}
        return confidence_of_one(model, answers)

    text_specs = {field: tf.TensorSpec([size], INT) for field, size in spec.max_bytes.items()}
    token_specs = {
        "token_ids": tf.TensorSpec([len(orders), spec.sequence_length], INT),
        "num_tokens": tf.TensorSpec([1], INT),
    }
    return task_graph(text_specs, token_specs, frame, answer, [backbone, head])


def classifier_graph(spec: DeviceSpec) -> DeviceGraph:
    """Returns the graph of a classifier: `class_or_score_graph`, or with windows its own.

    With windows, the model reads `token_ids`, int32 `[windows, sequence_length]`, and
    `window_tokens`, int32 `[windows]`, the length of each window, 0 for an absent one. It has as
    many windows as the most tokens of a text fill, one for each byte.

    Raises:
        ValueError: a number of choices is given.
    """
    model = spec.model
    if model.windows == 1:
        return class_or_score_graph(spec)
    refuse_choices(spec)
    [(field, size)] = spec.max_bytes.items()
    windows = min(model.windows, -(-size // max(spec.sequence_length - 2, 1)))
    byte_tokenizer = ByteTokenizer(model.preprocessor.tokenizer, [size])
    framer = _framer(spec)
    backbone = DeviceBackbone(model.backbone, spec.sequence_length)
    head, is_linear = Dense.of(model.head), model.task_head.is_linear

    def frame(texts: Tensors) -> Framed:
        tokens = byte_tokenizer([texts[field]])
        ids, window_tokens, truncated = framer.frame_windows(tokens, windows)
        inputs = {"token_ids": ids, "window_tokens": window_tokens}
        *_, lengths = tokens
        num_tokens = tf.reduce_sum(window_tokens)
        return inputs, num_tokens, truncated | fills([texts[field]]), lengths[0] == 0

    def answer(token_ids: tf.Tensor, window_tokens: tf.Tensor) -> Tensors:
        count = tf.reduce_sum(tf.cast(window_tokens > 0, INT))

        def read(number: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            last = tf.gather(window_tokens, [[number]]) - 1
            states = backbone.states_at(tf.gather(token_ids, [number]), last)[0]
            outputs = head(states)
            outputs = tf.nn.softmax(outputs) if is_linear else model.activate(outputs)
            return number + 1, total + outputs

        # One at a time, so that a short text costs one window.
        zeros = tf.zeros([1, model.task_head.linear.units])
        _, total = tf.while_loop(lambda number, _: number < count, read, (0, zeros))
        mean = total / tf.cast(count, tf.float32)
        answers = tf.math.log(mean) if is_linear else mean
        if model.class_names is None:
            return {"score": model.score_of(answers)}
        return confidence_of_one(model, answers)

    token_specs = {
        "token_ids": tf.TensorSpec([windows, spec.sequence_length], INT),
        "window_tokens": tf.TensorSpec([windows], INT),
    }
    text_specs = {field: tf.TensorSpec([size], INT)}
    return task_graph(text_specs, token_specs, frame, answer, [backbone, head])


def similarity_graph(spec: DeviceSpec) -> DeviceGraph:
    """Returns the graph of similarity: `class_or_score_graph` with both orders of the texts."""
    return class_or_score_graph(spec, reads_both_orders=True)


def choice_graph(spec: DeviceSpec) -> DeviceGraph:
    """Returns the graph of multiple choice, with a fixed number of choices.

    The last field is int32 `[choices, max_bytes]`; after the last choice with a byte, choices are
    absent. Answers are `scores`, float `[choices]`, probabilities, 0 for absent choices; and, if
    the model has a threshold, `is_sure`, int32 `[1]`. The model's inputs are as
    `gpt1_keras.tokenization.padding.pad_choices` returns them, int32 `[1, length]` and `[1,
    choices]`.

    Raises:
        ValueError: the number of choices is missing, or below 1.
    """
    model, count = spec.model, spec.num_choices
    if count is None or count < 1:
        raise ValueError(
            f"A {type(model).__name__} needs num_choices, at least 1. Received: "
            f"num_choices={count}."
        )
    preprocessor = model.preprocessor
    *others, (field, size) = spec.max_bytes.items()
    lengths = [length for _, length in others] + [size] * count
    byte_tokenizer = ByteTokenizer(preprocessor.tokenizer, lengths)
    framer = _framer(spec)
    backbone = DeviceBackbone(model.backbone, spec.sequence_length)
    head = Dense.of(model.head)

    def frame(texts: Tensors) -> Framed:
        columns = [*(texts[name] for name, _ in others), *tf.unstack(texts[field])]
        has_bytes = tf.reduce_any(tf.stack(columns[-count:]) != 0, axis=1)
        is_present = tf.cumsum(tf.cast(has_bytes, INT), reverse=True) > 0
        tokens = byte_tokenizer(columns)
        inputs, num_tokens, truncated = framer.frame_choices(tokens, is_present)
        inputs = {name: tensor[tf.newaxis] for name, tensor in inputs.items()}
        *_, lengths = tokens
        # The context and the question are one text, of which either may be missing.
        is_blank = tf.reduce_any(is_present & (lengths[-count:] == 0))
        is_blank |= tf.reduce_sum(lengths[:-count]) == 0
        return inputs, num_tokens, truncated | fills(columns), is_blank

    def answer(
        token_ids: tf.Tensor,
        positions: tf.Tensor,
        branches: tf.Tensor,
        extract_indices: tf.Tensor,
    ) -> Tensors:
        states = backbone.states_at(token_ids, extract_indices, positions, branches)[0]
        is_present = tf.cast(extract_indices >= 0, tf.float32)
        logits = head(states)[tf.newaxis, :, 0] + (is_present - 1.0) * _HIDDEN
        answers = confidence_of_one(model, logits)
        return {**answers, "scores": answers["scores"] * is_present[0]}

    text_specs = {name: tf.TensorSpec([length], INT) for name, length in others}
    text_specs[field] = tf.TensorSpec([count, size], INT)
    of_tokens = tf.TensorSpec([1, framer.length_with_branches(count)], INT)
    token_specs = dict.fromkeys(("token_ids", "positions", "branches"), of_tokens)
    token_specs["extract_indices"] = tf.TensorSpec([1, count], INT)
    return task_graph(text_specs, token_specs, frame, answer, [backbone, head])


def next_token_graph(spec: DeviceSpec) -> DeviceGraph:
    """Returns the graph of `GPT1CausalLM`: the next token's logits, and a cache to continue from.

    - `text`: maps `text`, int32 `[max_bytes]`, to `logits`, float `[vocabulary_size]`; `cache`,
      float, the keys and values; and `num_tokens` and `truncated`, int32 `[1]`.
    - `tokenize`: maps the same text to `token_ids`, int32 `[sequence_length]`, `num_tokens` and
      `truncated`.
    - `tokens`: maps `token_ids`, int32 `[1]`, the next token; `num_tokens`, int32 `[1]`, the number
      of tokens read before; and `cache`, to `logits` and `cache`.

    Raises:
        ValueError: a number of choices is given.
    """
    refuse_choices(spec)
    length, tokenizer = spec.sequence_length, spec.model.preprocessor.tokenizer
    [max_bytes] = spec.max_bytes.values()
    byte_tokenizer = ByteTokenizer(tokenizer, [max_bytes])
    backbone = DeviceBackbone(spec.model.backbone, length)

    def tokenize(text: tf.Tensor) -> Tensors:
        ids, _, lengths = byte_tokenizer([text])
        return {
            "token_ids": tf.pad(ids, [[0, max(0, length - ids.shape[0])]])[:length],
            "num_tokens": tf.minimum(lengths, length),
            "truncated": flag((lengths[0] > length) | fills([text])),
        }

    def read(text: tf.Tensor) -> Tensors:
        inputs = tokenize(text)
        token_ids = inputs.pop("token_ids")[tf.newaxis]
        state, cache = backbone.last_state_and_cache(token_ids, inputs["num_tokens"])
        return {**outputs(state, cache), **inputs}

    def read_next(token_ids: tf.Tensor, num_tokens: tf.Tensor, cache: tf.Tensor) -> Tensors:
        blocks = [tuple(tf.split(block, 2)) for block in tf.unstack(cache)]
        return outputs(*backbone.next_state(token_ids, num_tokens, blocks))

    def outputs(state: tf.Tensor, cache: Cache) -> Tensors:
        stacked = tf.stack([tf.concat(block, axis=0) for block in cache])
        return {"logits": backbone.logits(state)[0], "cache": stacked}

    one = tf.TensorSpec([1], INT)
    cache = tf.TensorSpec(backbone.cache_shape, tf.float32)
    texts = {"text": tf.TensorSpec([max_bytes], INT)}
    signatures: Signatures = {
        TEXT: (read, texts),
        TOKENIZE: (tokenize, texts),
        TOKENS: (read_next, {"token_ids": one, "num_tokens": one, "cache": cache}),
    }
    return DeviceGraph(signatures, [backbone], tokenizer.get_vocabulary())


DEVICE_TASKS = {
    GPT1TextClassifier: TaskEntry(device_graph=classifier_graph),
    GPT1TextSimilarity: TaskEntry(device_graph=similarity_graph),
    GPT1MultipleChoice: TaskEntry(device_graph=choice_graph),
    GPT1CausalLM: TaskEntry(device_graph=next_token_graph),
}
