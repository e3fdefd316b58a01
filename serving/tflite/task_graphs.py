"""The graphs of fine-tuned tasks: their signatures, as functions of named tensors."""

import keras
import tensorflow as tf

import gpt1_keras
from serving.tflite.device_backbone import Dense, DeviceBackbone
from serving.tflite.framing import Framer
from serving.tflite.tokenizer import ByteTokenizer

INT = tf.int32  # and float32: the types that LiteRT's Kotlin and JavaScript have in common


class TaskGraph(tf.Module):
    """Answers texts by the decoder's states at their extract tokens.

    Its signatures:

    - `text`: each field, int32 `[max_bytes]`, to the task's answers, `num_tokens`, int32 `[1]`,
      and `truncated`, int32 `[1]`: 1 where a text was cut, or fills its input and so may have been
      longer.
    - `tokenize`: the same texts to what the decoder reads, `num_tokens` and `truncated`.
    - `tokens`: what the decoder reads, in place of texts, to the answers.

    Args:
        model: a fine-tuned `RawTextTask` with a preprocessor, whose fields name the texts.
        max_bytes: list of int, of the text in each field.
        sequence_length: int, the most tokens of a framed sequence.
    """

    def __init__(self, model, max_bytes, sequence_length):
        super().__init__()
        self._max_bytes = dict(zip(model.preprocessor.fields, max_bytes, strict=True))
        self._byte_tokenizer = ByteTokenizer(model.preprocessor.tokenizer, self._sizes())
        self._framer = Framer(model.preprocessor.tokenizer, sequence_length)
        self._decoder = DeviceBackbone(model.backbone, sequence_length)
        self._head = Dense(model.head)

    def signatures(self):
        """The functions by name, each with the `tf.TensorSpec`s of its inputs by name."""
        return {
            "text": (self._answer_texts, self._text_specs()),
            "tokenize": (self._tokenize, self._text_specs()),
            "tokens": (self._answer, self._token_specs()),
        }

    def _sizes(self):
        """The bytes of each text."""
        return list(self._max_bytes.values())

    def _text_specs(self):
        return {field: tf.TensorSpec([size], INT) for field, size in self._max_bytes.items()}

    def _token_specs(self):
        """The `tf.TensorSpec`s of what the decoder reads, by name."""
        raise NotImplementedError

    def _frame(self, tokens, texts):
        """What the decoder reads, by name; `num_tokens` and `truncated`, scalars.

        Args:
            tokens: what `ByteTokenizer` gives.
            texts: list of int32 `[size]`.
        """
        raise NotImplementedError

    def _answer(self, **inputs):
        """The named answers from what the decoder reads."""
        raise NotImplementedError

    def _rows(self, texts):
        """The texts by field as a list of int32 `[size]`."""
        return [texts[field] for field in self._max_bytes]

    def _tokenize(self, **texts):
        rows = self._rows(texts)
        inputs, num_tokens, truncated = self._frame(self._byte_tokenizer(rows), rows)
        return {
            **inputs,
            "num_tokens": num_tokens[tf.newaxis],
            "truncated": flag(truncated | fills(rows)),
        }

    def _answer_texts(self, **texts):
        outputs = self._tokenize(**texts)
        answers = self._answer(**{name: outputs[name] for name in self._token_specs()})
        return answers | {name: outputs[name] for name in ("num_tokens", "truncated")}


class ClassOrScoreGraph(TaskGraph):
    """Of classification, regression and similarity.

    Answers are `scores`, float `[classes]`, which sum to one, or of a task with a range of scores
    `score`, float `[1]`. The decoder reads `token_ids`, int32 `[orders, sequence_length]`: of
    similarity both orders of the texts, else one; and `num_tokens`, which each order has.
    """

    def __init__(self, model, max_bytes, sequence_length):
        super().__init__(model, max_bytes, sequence_length)
        is_similarity = isinstance(model, gpt1_keras.GPT1TextSimilarity)
        texts = tuple(range(len(self._max_bytes)))
        self._orders = [texts, texts[::-1]] if is_similarity else [texts]
        self._activate, self._score_of = model.activate, model.score_of
        self._has_classes = model.score_range is None
        self._is_probable = model.activation is keras.activations.softmax

    def _token_specs(self):
        shape = [len(self._orders), self._decoder.sequence_length]
        return {"token_ids": tf.TensorSpec(shape, INT), "num_tokens": tf.TensorSpec([1], INT)}

    def _frame(self, tokens, texts):
        framed = [self._framer.frame(tokens, order) for order in self._orders]
        return {"token_ids": tf.stack([ids for ids, *_ in framed])}, *framed[0][1:]

    def _answer(self, token_ids, num_tokens):
        last = tf.tile(num_tokens[tf.newaxis] - 1, [len(self._orders), 1])
        state = tf.reduce_sum(self._decoder.states_at(token_ids, last), axis=0)
        answers = self._activate(self._head(state))
        if not self._has_classes:
            return {"score": self._score_of(answers)}
        # As in the server: probabilities, whatever the activation.
        return {"scores": (answers if self._is_probable else tf.nn.softmax(answers))[0]}


class ChoiceGraph(TaskGraph):
    """Of multiple choice, with a fixed number of choices.

    The last field is int32 `[choices, max_bytes]`; a choice without any byte is not there. Answers
    are `scores`, float `[choices]`: probabilities, 0 of what is not there. The decoder reads what
    `transforms.pad_choices` gives, int32 `[1, length]` and `[1, choices]`.

    Args:
        num_choices: int.
    """

    def __init__(self, model, max_bytes, sequence_length, num_choices):
        self._num_choices = num_choices
        super().__init__(model, max_bytes, sequence_length)

    def _sizes(self):
        *sizes, of_choices = super()._sizes()
        return sizes + [of_choices] * self._num_choices

    def _text_specs(self):
        *others, (field, size) = self._max_bytes.items()
        specs = {name: tf.TensorSpec([size], INT) for name, size in others}
        return {**specs, field: tf.TensorSpec([self._num_choices, size], INT)}

    def _token_specs(self):
        length = self._framer.tree_length(self._num_choices)
        specs = dict.fromkeys(
            ("token_ids", "positions", "branches"), tf.TensorSpec([1, length], INT)
        )
        return {**specs, "extract_indices": tf.TensorSpec([1, self._num_choices], INT)}

    def _rows(self, texts):
        *others, choices = super()._rows(texts)
        return others + tf.unstack(choices)

    def _frame(self, tokens, texts):
        is_there = tf.reduce_any(tf.stack(texts[-self._num_choices :]) != 0, axis=1)
        tree, num_tokens, truncated = self._framer.frame_choices(tokens, is_there)
        return {name: tensor[tf.newaxis] for name, tensor in tree.items()}, num_tokens, truncated

    def _answer(self, token_ids, positions, branches, extract_indices):
        states = self._decoder.states_at(token_ids, extract_indices, positions, branches)[0]
        is_there = tf.cast(extract_indices[0] >= 0, tf.float32)
        scores = self._head(states)[:, 0] + (is_there - 1.0) * 1e9
        return {"scores": tf.nn.softmax(scores) * is_there}


def fills(texts):
    """Whether one of some texts, int32 `[size]` each, has no zero behind it: bool scalar."""
    return tf.reduce_any(tf.stack([text[-1] for text in texts]) != 0)


def flag(condition):
    """A bool scalar as int32 `[1]`."""
    return tf.cast(condition, INT)[tf.newaxis]
