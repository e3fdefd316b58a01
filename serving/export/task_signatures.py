"""The signatures of a fine-tuned task's export: one graph from raw text to answers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from gpt1_keras.tasks.base import RawTextTask
from gpt1_keras.tasks.class_heads import is_softmax
from serving.export.batching import Batching, by_bucket, merged
from serving.export.confidence import calibrated_logits, confidence_of
from serving.export.decoder.int8_block import Int8Block
from serving.export.decoder.packed_decoder import packed_outputs
from serving.export.explanations.explainer import Explainer
from serving.export.explanations.log_odds import log_odds
from serving.export.explanations.options import INTEGRATED_GRADIENTS, LEAVE_ONE_OUT, Explanation
from serving.export.offsets import framed_offsets, has_offsets, tokenize_each_with_offsets
from serving.export.signatures import (
    ConcreteFunction,
    Condition,
    Signatures,
    at_most,
    checked,
    compiled,
    in_range,
    same_shapes,
    words,
)
from serving.layout import (
    CLASSIFY,
    DEFAULT_SIGNATURE,
    EXAMPLES_INPUT,
    EXPLAIN,
    REGRESS,
    TOKENIZE,
    TOKENS,
)

Tensors: TypeAlias = dict[str, Any]  # dense or ragged tensors by name


class TaskSignatures(Signatures):
    """A fine-tuned task's signatures, as functions of named tensors.

    - `serving_default`: texts by field, string `[batch]`; `choices` `[batch, choices]`.
    - `classify` or `regress`: serialized `tf.Example`s with these features, for TF Serving's calls
      of these names.
    - `tokenize`: the same texts to the model's inputs; and `starts` and `ends`, int32 of the shape
      of `token_ids`: the range of bytes of its text that each token came from, -1 for special
      tokens and padding. (Not of a preprocessor with its own `transform` and without `frame`.)
    - `tokens`: the model's inputs in place of text.
    - `explain`, after `explain_by`: the texts and outputs of `serving_default`, and the words'
      shares in the answer; see `serving.export.explanations`.

    All outputs have `num_tokens`, int32 `[batch]`, and those of texts `truncated`, bool `[batch]`.
    A subclass says which other outputs there are, in `outputs`, and whether `tf.Example`s are
    answered, in `example_functions`.

    Args:
        model: a task with a preprocessor whose fields name the texts, and which has `as_tensors`,
            `transform`, `pad` and `count_tokens`, as `GPT1TextClassifierPreprocessor`. The model's
            inputs are int32, and `predict_outputs` maps them to its answers.
        batching: if given, texts of many requests are answered together, those of
            `serving_default` and of `tf.Example`s alike.
        int8: whether to store matrices in 8 bits; the model's own are rounded.
        blocks: the backbone's blocks, as they are to be computed; in its own dtype by default.
    """

    def __init__(
        self,
        model: RawTextTask,
        batching: Batching | None = None,
        int8: bool = False,
        blocks: Sequence[Int8Block] | None = None,
    ) -> None:
        super().__init__(model, model.preprocessor.sequence_length, int8, blocks)
        packed = packed_outputs(model, self.bucket_lengths(), blocks)
        if blocks and packed is None:
            raise ValueError(
                f"A {type(model).__name__} with a {type(model.backbone).__name__} cannot be "
                "computed in 8 bits: expected a GPT1Backbone of one float dtype, and a task whose "
                "`predict_outputs` takes `states_at`. To store matrices in 8 bits, use "
                "`int8_storage`."
            )
        self._set_untracked(
            predict_outputs=packed or model.predict_outputs,
            # Traced once, whichever signatures use them.
            _tokenize=tf.function(self._tokenize, autograph=False),
            _predict_tokens=tf.function(self._predict_tokens, autograph=False),
        )
        self._pads = packed is None
        self._answer: Callable[..., Tensors] = self._predict_texts
        self._preprocessor = model.preprocessor
        self._batching = batching
        self._explainer: Any = None

    def outputs(self, answers: tf.Tensor) -> Tensors:
        """Returns named outputs `[batch, ...]` from what the model's `predict_outputs` returns."""
        raise NotImplementedError

    def explained(self, answers: tf.Tensor, answer: tf.Tensor) -> tf.Tensor:
        """Returns the number that words have shares in, for `explain`.

        Args:
            answers: float `[batch, n]`, what the model's `predict_outputs` returns.
            answer: int32 `[batch]`, the index of the greatest where no word was left out or faded.

        Returns:
            float32 `[batch]`.
        """
        raise ValueError(f"{type(self).__name__} does not say what of its answers is `explained`.")

    def example_functions(self) -> dict[str, Callable[[tf.Tensor], Tensors]]:
        """Returns, by name, the functions of serialized tf.Examples, string `[batch]`."""
        return {}

    def token_conditions(self, inputs: Tensors) -> list[Condition]:
        """Returns what holds for the model's inputs if they are as `tokenize` returns them.

        What is not would be answered all the same: a lookup takes negative ids, and a wrong mask
        moves the extract token.
        """
        ids, mask = inputs["token_ids"], inputs["padding_mask"]
        length, num_tokens = tf.shape(mask)[-1], tf.reduce_sum(mask, axis=-1)
        is_padded = tf.sequence_mask(num_tokens, length, tf.int32) == mask
        return [
            in_range("token_ids", ids, self._model.backbone.vocabulary_size),
            at_most("columns of token_ids", length, self.sequence_length),
            (same_shapes(ids, mask), "Expected the shape of token_ids.", tf.shape(mask)),
            (
                tf.reduce_all(is_padded) & tf.reduce_all(num_tokens > 0),
                "Expected padding_mask to be 1 for each token, at least one, and then 0.",
                mask,
            ),
        ]

    def text_spec(self, field: str) -> tf.TensorSpec:
        """Returns the spec of a field's texts."""
        return tf.TensorSpec([None], tf.string, field)

    def functions(self) -> dict[str, ConcreteFunction]:
        texts = {field: self.text_spec(field) for field in self._preprocessor.fields}
        tokens = {
            tensor.name: tf.TensorSpec(tensor.shape, tf.int32, tensor.name)
            for tensor in self._model.inputs
        }
        examples = {EXAMPLES_INPUT: tf.TensorSpec([None], tf.string, EXAMPLES_INPUT)}
        if self._batching:
            from_tokens = self._predict_tokens
            if self._pads:
                from_tokens = self._by_bucket(compiled(from_tokens, tokens))
            self._answer = self._merged(from_tokens, self._batching)
        return {
            DEFAULT_SIGNATURE: compiled(self._predict, texts),
            **{name: compiled(each, examples) for name, each in self.example_functions().items()},
            **({EXPLAIN: compiled(self._explain, texts)} if self._explainer else {}),
            TOKENIZE: compiled(self._tokenize_with_offsets, texts),
            TOKENS: compiled(self._predict_checked_tokens, tokens),
        }

    def explain_by(self, explanation: Explanation) -> None:
        if explanation.method == INTEGRATED_GRADIENTS and (self._pads or self._blocks):
            raise ValueError(
                f"A {type(self._model).__name__} with a {type(self._model.backbone).__name__} "
                f"{'in 8 bits ' if self._blocks else ''}has no gradients in an export: expected a "
                "GPT1Backbone computed in one float dtype, and a task whose `predict_outputs` "
                f"takes `states_at`. To explain its answers, use {LEAVE_ONE_OUT!r}."
            )
        if not has_offsets(self._preprocessor):
            raise ValueError(
                f"{type(self._preprocessor).__name__} has a `transform` of its own, which does not "
                "say where its tokens stand in the texts: expected `frame` in its place."
            )
        self._set_untracked(_explainer=Explainer(self, self._model, explanation))

    def default_function(self) -> ConcreteFunction:
        texts = {field: self.text_spec(field) for field in self._preprocessor.fields}
        return compiled(self._predict, texts)

    def sample(self, length: int) -> dict[str, tf.Tensor]:
        segments = len(self._preprocessor.fields)
        text = words((length - segments - 1) // segments)
        return dict.fromkeys(self._preprocessor.fields, tf.constant([text]))

    def _predict(self, **texts: Any) -> Tensors:
        return self._answer(**texts)

    def _explain(self, **texts: Any) -> Tensors:
        return self._explainer.explain(**texts)

    def _predict_texts(self, **texts: Any) -> Tensors:
        inputs = self._tokenize(**texts)
        truncated = inputs.pop("truncated")
        return {**self._predict_tokens(**inputs), "truncated": truncated}

    def _by_bucket(self, from_tokens: ConcreteFunction) -> Callable[..., Tensors]:
        """As `_predict_tokens`, which is compiled, a bucket at a time."""

        def predict(**inputs: tf.Tensor) -> Tensors:
            num_tokens = self._preprocessor.count_tokens(inputs)
            return by_bucket(from_tokens, inputs, num_tokens, self.bucket_lengths())

        return predict

    def _merged(
        self, from_tokens: Callable[..., Tensors], batching: Batching
    ) -> Callable[..., Tensors]:
        """As `_predict_texts`, for the texts of many requests."""

        def predict(**joined: tf.Tensor) -> Tensors:
            inputs = self._tokenize(**self._split(**joined))
            truncated = inputs.pop("truncated")
            return {**from_tokens(**inputs), "truncated": truncated}

        call = merged(predict, self._joined_names(), batching)
        return lambda **texts: call(**self._join(texts))

    def _joined_names(self) -> Sequence[str]:
        return self._preprocessor.fields

    def _join(self, texts: Tensors) -> Tensors:
        """The part of a request that is merged with others: strings `[batch]` by name."""
        return texts

    def _split(self, **joined: tf.Tensor) -> Tensors:
        """The texts that `_join` joined."""
        return joined

    def _tokenize(self, **texts: Any) -> Tensors:
        tensors = self._preprocessor.as_tensors(texts)
        framed, truncated = self._preprocessor.transform(list(tensors.values()))
        return {**self.pad(framed), "truncated": truncated}

    def _tokenize_with_offsets(self, **texts: Any) -> Tensors:
        if not has_offsets(self._preprocessor):
            return self._tokenize(**texts)
        tensors = self._preprocessor.as_tensors(texts)
        segments, *offsets = tokenize_each_with_offsets(
            self._preprocessor.tokenizer, list(tensors.values())
        )
        framed, truncated = self._preprocessor.frame(segments)
        inputs = self.pad(framed)
        ranges = framed_offsets(self._preprocessor, inputs, segments, *offsets)
        return {**inputs, **ranges, "truncated": truncated}

    def pad(self, framed: Any) -> Tensors:
        """Returns the model's inputs from what the preprocessor framed."""
        return self._preprocessor.pad(framed)

    def _predict_checked_tokens(self, **inputs: tf.Tensor) -> Tensors:
        return self._predict_tokens(**checked(inputs, *self.token_conditions(inputs)))

    def _predict_tokens(self, **inputs: tf.Tensor) -> Tensors:
        outputs = self.outputs(self.predict_outputs(inputs))
        return {**outputs, "num_tokens": self._preprocessor.count_tokens(inputs)}

    def _parse(self, examples: tf.Tensor) -> Mapping[str, Any]:
        """The texts of serialized tf.Examples, by field."""
        features = {
            field: tf.io.FixedLenFeature([], tf.string)
            if self.text_spec(field).shape.rank == 1
            else tf.io.RaggedFeature(tf.string, row_splits_dtype=tf.int64)
            for field in self._preprocessor.fields
        }
        return tf.io.parse_example(examples, features)


class ClassSignatures(TaskSignatures):
    """Of tasks with classes: `label`, string `[batch]`; `scores`, float `[batch, classes]`.

    Where the model has a threshold, also `is_sure`, bool `[batch]`.
    """

    def __init__(
        self,
        model: RawTextTask,
        batching: Batching | None = None,
        int8: bool = False,
        blocks: Sequence[Int8Block] | None = None,
    ) -> None:
        super().__init__(model, batching, int8, blocks)
        self._class_names = tf.constant(model.class_names)

    def outputs(self, answers: tf.Tensor) -> Tensors:
        confidence = confidence_of(self._model, answers)
        best = tf.argmax(confidence["scores"], axis=-1)
        return {"label": tf.gather(self._class_names, best), **confidence}

    def explained(self, answers: tf.Tensor, answer: tf.Tensor) -> tf.Tensor:
        """Log-odds of a class; with another activation than softmax, what it returns for it."""
        activation = self._model.activation
        if activation is keras.activations.linear or is_softmax(activation):
            return log_odds(calibrated_logits(self._model, answers), answer)
        return tf.gather(answers, answer, batch_dims=1)

    def example_functions(self) -> dict[str, Callable[[tf.Tensor], Tensors]]:
        return {CLASSIFY: self._classify}

    def _classify(self, inputs: tf.Tensor) -> Tensors:
        scores = self._predict(**self._parse(inputs))["scores"]
        return {"classes": tf.tile([self._class_names], [tf.shape(scores)[0], 1]), "scores": scores}


class ScoreSignatures(TaskSignatures):
    """Of tasks that answer with a number: `score`, float `[batch]`."""

    def outputs(self, answers: tf.Tensor) -> Tensors:
        return {"score": self._model.score_of(answers)}

    def explained(self, answers: tf.Tensor, answer: tf.Tensor) -> tf.Tensor:
        """The score."""
        return self._model.score_of(answers)

    def example_functions(self) -> dict[str, Callable[[tf.Tensor], Tensors]]:
        return {REGRESS: self._regress}

    def _regress(self, inputs: tf.Tensor) -> Tensors:
        return {"outputs": self._predict(**self._parse(inputs))["score"]}


def class_or_score_signatures(
    model: RawTextTask,
    batching: Batching | None = None,
    int8: bool = False,
    blocks: Sequence[Int8Block] | None = None,
) -> TaskSignatures:
    """Returns the signatures of a task whose answer is a class, or a number.

    A number is a score in a range, or what the head of a single class returns.
    """
    signatures = ScoreSignatures if model.class_names is None else ClassSignatures
    return signatures(model, batching, int8, blocks)
