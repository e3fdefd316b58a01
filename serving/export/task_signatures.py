"""The signatures of a fine-tuned task's export: one graph from raw text to answers."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from gpt1_keras.tokenization.graph_ops import not_inlined
from serving.export.batching import by_bucket
from serving.export.decoder.packed_decoder import packed_outputs
from serving.export.explainer import Explainer
from serving.export.signature import (
    ConcreteFunction,
    ExportSpec,
    Signature,
    Signatures,
    Tensors,
    compiled,
    text_specs,
)
from serving.export.task_answers import Answers
from serving.export.text_inputs import TextInputs, asserted
from serving.export_names import (
    DEFAULT_SIGNATURE,
    EXAMPLES_INPUT,
    EXPLAIN,
    TOKENIZE,
    TOKENS,
)


def task_signatures(
    spec: ExportSpec, answers: Answers, inputs: TextInputs | None = None
) -> Signatures:
    """Returns a fine-tuned task's signatures.

    - `serving_default`: takes texts by field, string `[batch]`, and choices `[batch, choices]`.
    - `classify` or `regress`: takes serialized `tf.Example`s with these features, for TF Serving's
      calls of these names.
    - `explain`, if `spec.explanation` is given: takes and returns the same as `serving_default`,
      and also returns the words' shares in the answer; see `serving.export.explainer`.
    - `tokenize`: maps the same texts to the model's inputs; and to `starts` and `ends`, int32 of
      the shape of `token_ids`: the range of bytes of its text that each token came from, -1 for
      special tokens and padding. (A preprocessor with its own `transform` and without `frame` gives
      no ranges.)
    - `tokens`: takes the model's inputs instead of texts.

    The outputs of answers include `num_tokens`, int32 `[batch]`; those from texts, `truncated` and
    `blank`, bool `[batch]`: whether anything was cut, and whether a text has no token. (A
    preprocessor with its own `transform` gives no `blank`.) `classify` and `regress` return only
    what TF Serving's calls expect.

    Args:
        spec: what the export is made of. With `batching`, requests are merged, those of
            `serving_default` and of `tf.Example`s alike.
        answers: the other outputs.
        inputs: how texts become the model's inputs; `TextInputs` by default.

    Raises:
        ValueError: the model has no blocks that `spec.blocks` could replace; or its answers cannot
            be explained, or not by this method.
    """
    graph = _TaskGraph(spec, answers, inputs or TextInputs(spec.model))
    return Signatures(graph.sequence_length, graph.signatures())


class _TaskGraph:
    """The functions of a task's signatures; arguments as in `task_signatures`."""

    def __init__(self, spec: ExportSpec, answers: Answers, inputs: TextInputs) -> None:
        model = spec.model
        packed = packed_outputs(model, inputs.bucket_lengths(), spec.blocks)
        if spec.blocks and packed is None:
            raise ValueError(
                f"A {type(model).__name__} with a {type(model.backbone).__name__} cannot be "
                "computed in 8 bits: expected a GPT1Backbone of one float dtype, and a task whose "
                "`predict_outputs` takes `states_at`. To store matrices in 8 bits, use "
                "`int8_storage`."
            )
        self.sequence_length = inputs.sequence_length
        self._inputs, self._answers = inputs, answers
        self._count_tokens = model.preprocessor.count_tokens
        self._predict_outputs = packed or not_inlined(model.predict_outputs)
        self._token_specs = {
            tensor.name: tf.TensorSpec(tensor.shape, tf.int32, tensor.name)
            for tensor in model.inputs
        }
        # Traced once for all signatures that use them.
        self._tokenize = tf.function(inputs.tokenize, autograph=False)
        self._answer_tokens = tf.function(self._outputs_of, autograph=False)
        self._answer = self._answering(self._answer_tokens)
        if spec.batching:
            from_tokens: Callable[..., Tensors] = self._answer_tokens
            if packed is None:
                from_tokens = self._by_bucket(compiled(from_tokens, self._token_specs))
            self._answer = inputs.merged(self._answering(from_tokens), spec.batching)
        self._explainer = None
        if spec.explanation:
            has_gradients = packed is not None and not spec.blocks
            self._explainer = Explainer(spec, inputs, answers, self._predict_outputs, has_gradients)

    def signatures(self) -> dict[str, Signature]:
        texts, lengths = self._inputs.specs(), self._inputs.bucket_lengths()
        example = self._inputs.example
        tokenize = Signature(self._inputs.tokenize_with_offsets, texts, example, lengths)
        signatures = {DEFAULT_SIGNATURE: Signature(self._answer_texts, texts, example, lengths)}
        for name, answer in self._answers.of_examples.items():
            signatures[name] = Signature(
                self._of_examples(answer),
                text_specs(EXAMPLES_INPUT),
                lambda length: {EXAMPLES_INPUT: _serialized_example(example(length))},
                lengths,
            )
        if self._explainer:
            # An explanation is many runs of different shapes, so one example warms its graph up.
            signatures[EXPLAIN] = Signature(
                self._explain, texts, example, lengths[:1], self._explainer.description
            )
        return signatures | {
            TOKENIZE: tokenize,
            TOKENS: Signature(
                self._answer_checked_tokens,
                self._token_specs,
                lambda length: tokenize.compiled(**tokenize.inputs_of_example(length)),
                lengths,
            ),
        }

    def _answer_texts(self, **texts: Any) -> Tensors:
        return self._answer_prepared(self._inputs.prepare(texts))

    def _answer_prepared(self, texts: Tensors) -> Tensors:
        return self._inputs.finish(texts, self._answer(**texts))

    def _of_examples(self, answer: Callable[[Tensors, Tensors], Tensors]) -> Callable[..., Tensors]:
        def answer_examples(**inputs: tf.Tensor) -> Tensors:
            texts = self._inputs.prepare(self._inputs.parse(inputs[EXAMPLES_INPUT]))
            return answer(texts, self._answer_prepared(texts))

        return answer_examples

    def _explain(self, **texts: Any) -> Tensors:
        assert self._explainer is not None  # as the signature exists
        texts = self._inputs.prepare(texts)
        return self._inputs.finish(texts, self._explainer.explain(**texts))

    def _answer_checked_tokens(self, **inputs: tf.Tensor) -> Tensors:
        return self._answer_tokens(**asserted(inputs, *self._inputs.conditions(inputs)))

    def _answering(self, from_tokens: Callable[..., Tensors]) -> Callable[..., Tensors]:
        def answer(**texts: Any) -> Tensors:
            inputs = self._tokenize(**texts)
            told = {name: inputs.pop(name) for name in ("truncated", "blank") if name in inputs}
            return {**from_tokens(**inputs), **told}

        return answer

    def _by_bucket(self, from_tokens: ConcreteFunction) -> Callable[..., Tensors]:
        def answer(**inputs: tf.Tensor) -> Tensors:
            num_tokens = self._count_tokens(inputs)
            return by_bucket(from_tokens, inputs, num_tokens, self._inputs.bucket_lengths())

        return answer

    def _outputs_of(self, **inputs: tf.Tensor) -> Tensors:
        outputs = self._answers.outputs(self._predict_outputs(inputs))
        return {**outputs, "num_tokens": self._count_tokens(inputs)}


def _serialized_example(texts: Tensors) -> tf.Tensor:
    example = tf.train.Example()
    for name, tensor in texts.items():
        values = tf.reshape(tensor, [-1]).numpy().tolist()
        example.features.feature[name].bytes_list.value.extend(values)
    return tf.constant([example.SerializeToString()])
