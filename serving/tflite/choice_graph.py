"""The graph of multiple choice."""

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
    task_graph,
)

_HIDDEN = 1e9  # subtracted from the logit of an absent choice


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
    framer = Framer(preprocessor.tokenizer, spec.sequence_length, preprocessor.truncate)
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
