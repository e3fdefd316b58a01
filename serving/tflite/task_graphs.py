"""The graphs of fine-tuned tasks: their signatures, as functions of named tensors."""

import functools
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from gpt1_keras.tasks.base import RawTextTask
from serving.export.confidence import confidence_of
from serving.export_names import TEXT, TOKENIZE, TOKENS
from serving.tflite.byte_tokenizer import ByteTokenizer, TokenizedTexts
from serving.tflite.device_backbone import DeviceBackbone
from serving.tflite.device_block import Dense
from serving.tflite.device_framing import Framer
from serving.tflite.device_graph import INT, DeviceGraph, Specs, Tensors, fills, flag


class TaskGraph(DeviceGraph):
    """Answers texts by the hidden states at their extract tokens.

    Its signatures:

    - `text`: each field, int32 `[max_bytes]`, to the task's answers, `num_tokens`, int32 `[1]`,
      and `truncated`, int32 `[1]`: 1 where a text was cut, or fills its input and so may have been
      longer.
    - `tokenize`: the same texts to the model's inputs, `num_tokens` and `truncated`.
    - `tokens`: the model's inputs, in place of texts, to the answers.

    Args:
        model: a fine-tuned `RawTextTask` with a preprocessor, whose fields name the texts.
        max_bytes: of the text in each field.
        sequence_length: the most tokens of a framed sequence.
        num_choices: as in `DeviceGraph`.
    """

    def __init__(
        self,
        model: RawTextTask,
        max_bytes: Sequence[int],
        sequence_length: int,
        num_choices: int | None = None,
    ) -> None:
        super().__init__(model, num_choices)
        self._num_choices = num_choices or 0
        self._max_bytes = dict(zip(model.preprocessor.fields, max_bytes, strict=True))
        self._byte_tokenizer = ByteTokenizer(model.preprocessor.tokenizer, self._lengths())
        self._framer = Framer(model.preprocessor.tokenizer, sequence_length)
        self._backbone = DeviceBackbone(model.backbone, sequence_length)
        self._head = Dense.of(model.head)
        self._confidence_of = functools.partial(confidence_of, model)

    def signatures(self) -> dict[str, tuple[Callable[..., Tensors], Specs]]:
        return {
            TEXT: (self._answer_texts, self._text_specs()),
            TOKENIZE: (self._tokenize, self._text_specs()),
            TOKENS: (self._answer, self._token_specs()),
        }

    def _lengths(self) -> list[int]:
        """The bytes of each text."""
        return list(self._max_bytes.values())

    def _text_specs(self) -> Specs:
        return {field: tf.TensorSpec([size], INT) for field, size in self._max_bytes.items()}

    def _token_specs(self) -> Specs:
        """The specs of the model's inputs by name."""
        raise NotImplementedError

    def _frame(
        self, tokens: TokenizedTexts, texts: Sequence[tf.Tensor]
    ) -> tuple[Tensors, tf.Tensor, tf.Tensor]:
        """The model's inputs by name; and, as scalars, `num_tokens` and `truncated`.

        Args:
            tokens: what `ByteTokenizer` returns for the texts.
            texts: int32 `[max_bytes]` each.
        """
        raise NotImplementedError

    def _answer(self, **inputs: tf.Tensor) -> Tensors:
        """The named answers from the model's inputs."""
        raise NotImplementedError

    def _confidence(self, answers: tf.Tensor) -> Tensors:
        """As `serving.export.confidence.confidence_of`, of one example: bool is int32 `[1]`."""
        found = self._confidence_of(answers)
        outputs = {"scores": found["scores"][0]}
        return outputs | {name: flag(found[name][0]) for name in found.keys() - outputs.keys()}

    def _split_texts(self, texts: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
        """The texts by field as a list of int32 `[max_bytes]`."""
        return [texts[field] for field in self._max_bytes]

    def _tokenize(self, **texts: tf.Tensor) -> Tensors:
        rows = self._split_texts(texts)
        inputs, num_tokens, truncated = self._frame(self._byte_tokenizer(rows), rows)
        return {
            **inputs,
            "num_tokens": num_tokens[tf.newaxis],
            "truncated": flag(truncated | fills(rows)),
        }

    def _answer_texts(self, **texts: tf.Tensor) -> Tensors:
        outputs = self._tokenize(**texts)
        answers = self._answer(**{name: outputs[name] for name in self._token_specs()})
        return answers | {name: outputs[name] for name in ("num_tokens", "truncated")}


class ClassOrScoreGraph(TaskGraph):
    """Of classification and regression.

    Answers are `scores`, float `[classes]`, and where the model has a threshold `is_sure`, int32
    `[1]`; or, if the task answers with a number, `score`, float `[1]`. The model reads `token_ids`,
    int32 `[orders, sequence_length]`, where there is one order of the texts; and `num_tokens`,
    int32 `[1]`, of each order.
    """

    reads_both_orders = False

    def __init__(
        self,
        model: RawTextTask,
        max_bytes: Sequence[int],
        sequence_length: int,
        num_choices: int | None = None,
    ) -> None:
        super().__init__(model, max_bytes, sequence_length, num_choices)
        texts = tuple(range(len(self._max_bytes)))
        self._orders = [texts, texts[::-1]] if self.reads_both_orders else [texts]
        self._activate, self._score_of = model.activate, model.score_of
        self._has_classes = model.class_names is not None

    def _token_specs(self) -> Specs:
        shape = [len(self._orders), self._backbone.sequence_length]
        return {"token_ids": tf.TensorSpec(shape, INT), "num_tokens": tf.TensorSpec([1], INT)}

    def _frame(
        self, tokens: TokenizedTexts, texts: Sequence[tf.Tensor]
    ) -> tuple[Tensors, tf.Tensor, tf.Tensor]:
        framed = [self._framer.frame(tokens, order) for order in self._orders]
        return {"token_ids": tf.stack([ids for ids, *_ in framed])}, *framed[0][1:]

    def _answer(self, **inputs: tf.Tensor) -> Tensors:
        last = tf.tile(inputs["num_tokens"][tf.newaxis] - 1, [len(self._orders), 1])
        states = self._backbone.states_at(inputs["token_ids"], last)
        answers = self._activate(self._head(tf.reduce_sum(states, axis=0)))
        if not self._has_classes:
            return {"score": self._score_of(answers)}
        return self._confidence(answers)


class SimilarityGraph(ClassOrScoreGraph):
    """Of similarity: as `ClassOrScoreGraph`, of two orders of the texts."""

    reads_both_orders = True
