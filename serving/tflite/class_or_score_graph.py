"""The graph of classification, regression and similarity."""

import tensorflow as tf

from serving.tflite.byte_tokenizer import ByteTokenizer
from serving.tflite.device_backbone import DeviceBackbone
from serving.tflite.device_block import Dense
from serving.tflite.device_framing import Framer
from serving.tflite.device_graph import (
    INT,
    DeviceGraph,
    DeviceSpec,
    Framed,
    Tensors,
    confidence_of_one,
    fills,
    refuse_choices,
    task_graph,
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
    framer = Framer(preprocessor.tokenizer, spec.sequence_length, preprocessor.truncate)
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


def similarity_graph(spec: DeviceSpec) -> DeviceGraph:
    """Returns the graph of similarity: `class_or_score_graph` with both orders of the texts."""
    return class_or_score_graph(spec, reads_both_orders=True)
