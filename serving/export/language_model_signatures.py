"""The signatures of a language model's export: log-probabilities, and text generation."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.tokenization.graph_ops import not_inlined
from gpt1_keras.tokenization.padding import bucket_lengths, pad
from serving.export.batching import batched, merged
from serving.export.decoder.packed_decoder import CachedDecoder, computes_by_blocks
from serving.export.generation import before_stops, continuations, joined, joined_continuations
from serving.export.generation_options import GenerationOptions, bounds
from serving.export.signature import (
    ExportSpec,
    Signature,
    Signatures,
    Tensors,
    full_stops,
    text_specs,
)
from serving.export.text_inputs import ENDS, STARTS, asserted
from serving.export_names import DEFAULT_SIGNATURE, GENERATE, SCORE, TOKENIZE

_TEXT = text_specs("text")
_OPTIONS = {
    name: tf.TensorSpec([None], dtype, name)
    for name, dtype in (
        ("length", tf.int32),
        ("temperature", tf.float32),
        ("top_k", tf.int32),
        ("top_p", tf.float32),
        ("seed", tf.int32),
    )
}
_STOP = {"stop": tf.TensorSpec([None, None], tf.string, "stop")}


def language_model_signatures(spec: ExportSpec) -> Signatures:
    """Returns the signatures of a language model.

    - `serving_default` and `score`: map `text`, string `[batch]`, to `token_ids`, int32 `[batch,
      length]`; `log_probabilities`, float `[batch, length]`, of each token given those before it,
      in nats, and 0 for the first token and for padding; and `score`, float `[batch]`, the mean
      over all tokens but the first, which is minus infinity for a text of one token or none.
    - `generate`: takes `text`, and for each text, or once for all, the options of
      `GenerationOptions`, which have its defaults: `length`, `top_k` and `seed`, int32 `[batch]`;
      `temperature` and `top_p`, float `[batch]`; and `stop`, string `[batch, n]`, an empty string
      being none. It returns `text`, string `[batch]`, the normalised prompt with its continuation,
      and `continuation`, string `[batch]`, both with the spaces that people write. If prompt and
      continuation are longer than the context, the prompt loses its first tokens.
    - `tokenize`: maps `text` to `token_ids` and `padding_mask`, int32 `[batch, length]`; and to
      `starts` and `ends` of this shape, the range of bytes that each token came from, -1 for
      padding.

    All signatures also return `truncated`, bool `[batch]`, and all but `tokenize` return
    `num_tokens`, int32 `[batch]`. `score` returns `blank`, bool `[batch]`: whether a text has no
    token.

    Args:
        spec: what the export is made of: a `GPT1CausalLM` with a preprocessor. With `batching`,
            requests of `score` are merged, and so are requests of `generate`, even with different
            options.

    Raises:
        ValueError: the backbone does not compute by blocks; or an explanation is asked for.
    """
    backbone = spec.model.backbone
    if not computes_by_blocks(backbone):
        variant = " whose blocks override `call`" if isinstance(backbone, GPT1Backbone) else ""
        raise ValueError(
            "A language model needs a GPT1Backbone to be exported. Received: "
            f"{type(backbone).__name__}{variant}."
        )
    if spec.explanation:
        raise ValueError(
            f"A {type(spec.model).__name__}'s answers cannot be explained. Expected a fine-tuned "
            "task: classes, scores or multiple choice."
        )
    graph = LanguageModelGraph(spec)
    return Signatures(graph.sequence_length, graph.signatures())


class LanguageModelGraph:
    """The functions of a language model's signatures.

    Attributes:
        sequence_length: the context, which may be longer than the preprocessor's sequences.
        decoder: computes hidden states, of whole texts or of one more token of each.
    """

    def __init__(self, spec: ExportSpec) -> None:
        backbone = spec.model.backbone
        self.sequence_length = backbone.max_sequence_length
        self._buckets = bucket_lengths(self.sequence_length)
        self.decoder = CachedDecoder(backbone, self._buckets, spec.blocks)
        self._token_embedding = backbone.token_embedding
        self._batching = spec.batching
        self._tokenizer = spec.model.preprocessor.tokenizer
        ids = tf.range(backbone.vocabulary_size)
        is_word = ids < self._tokenizer.vocabulary_size()
        for special in self._tokenizer.special_token_ids:
            is_word &= ids != special
        self._never = tf.where(is_word, 0.0, float("-inf"))

    def signatures(self) -> dict[str, Signature]:
        score_texts: Callable[..., Any] = self._score_texts
        go_on: Callable[..., Any] = functools.partial(continuations, self.decoder, self.word_logits)
        if self._batching:
            prompts = [
                tf.TensorSpec([None, self.sequence_length], tf.int32, "prompts"),
                tf.TensorSpec([None], tf.int32, "kept"),
            ]
            score_texts = merged(score_texts, ["text"], self._batching)
            go_on = batched(not_inlined(go_on), [*prompts, *_OPTIONS.values()], self._batching)
        score = self._signature(functools.partial(self._score, score_texts), _TEXT)
        generate = self._signature(
            functools.partial(self._generate, go_on), {**_TEXT, **_OPTIONS, **_STOP}
        )
        return {
            DEFAULT_SIGNATURE: score,
            SCORE: score,
            GENERATE: dataclasses.replace(generate, defaults=self._defaults()),
            TOKENIZE: Signature(self._tokenize_with_offsets, _TEXT, self._example, self._buckets),
        }

    def _signature(
        self, function: Callable[..., Tensors], specs: dict[str, tf.TensorSpec]
    ) -> Signature:
        return Signature(self._for_any_batch(function), specs, self._example, self._buckets)

    def _example(self, length: int) -> Tensors:
        """Returns a text of `length` tokens, and options for its continuation."""
        # Two tokens: the last state gives the first one; only the second takes a step.
        values = {
            "length": [min(2, self.sequence_length - 1)],
            "temperature": [1.0],
            "top_k": [0],
            "top_p": [1.0],
            "seed": [0],
            "stop": [[""]],
        }
        return {"text": tf.constant([full_stops(length)])} | {
            name: tf.constant(value) for name, value in values.items()
        }

    def _defaults(self) -> Mapping[str, tf.Tensor]:
        options = GenerationOptions()
        length = min(options.length, self.sequence_length - 1)
        values = {**vars(options), "length": length, "stop": [""]}
        specs = {**_OPTIONS, **_STOP}
        return {name: tf.constant([values[name]], specs[name].dtype) for name in specs}

    def _for_any_batch(self, function: Callable[..., Tensors]) -> Callable[..., Tensors]:
        """Makes a function accept options that all texts share, and empty batches.

        For an empty batch, it computes a made-up text and returns nothing.
        """
        made_up = self._example(1)

        def run(**inputs: tf.Tensor) -> Tensors:
            size = tf.size(inputs["text"])
            sizes = {name: tf.shape(tensor)[0] for name, tensor in inputs.items()}
            conditions = [
                (
                    (count == size) | (count == 1),
                    f"Expected a {name} for every text, or one for all.",
                    count,
                )
                for name, count in sizes.items()
            ]
            outputs = function(
                **{
                    name: _with_rows(tensor, made_up[name], tf.maximum(size, 1))
                    for name, tensor in asserted(inputs, *conditions).items()
                }
            )
            return {name: tensor[:size] for name, tensor in outputs.items()}

        return run

    def _tokenize_with_offsets(self, text: tf.Tensor) -> Tensors:
        ids, *ranges = self._tokenizer.tokenize_with_offsets(text)
        inputs = self._pad(ids)
        shape = tf.shape(inputs["token_ids"])
        for name, offsets in zip((STARTS, ENDS), ranges):
            inputs[name] = tf.cast(offsets.to_tensor(-1, shape=shape), tf.int32)
        return inputs

    def _pad(self, ids: tf.RaggedTensor) -> Tensors:
        """Pads the first ids of each text, int32 `[batch, length]`, and says if there are more."""
        padded = pad(ids[:, : self.sequence_length], self._tokenizer, self.sequence_length)
        return {**padded, "truncated": ids.row_lengths() > self.sequence_length}

    def _score(self, score_texts: Callable[..., Tensors], text: tf.Tensor) -> Tensors:
        outputs = score_texts(text=text)
        longest = tf.reduce_max(outputs["num_tokens"], keepdims=True)
        length = tf.gather(self._buckets, tf.searchsorted(self._buckets, longest)[0])
        for name in ("token_ids", "log_probabilities"):
            outputs[name] = outputs[name][:, :length]
        return outputs

    def _score_texts(self, text: tf.Tensor) -> Tensors:
        ids = self._tokenizer.tokenize(text)
        token_ids = ids.to_tensor(self._tokenizer.pad_token_id, shape=[None, self.sequence_length])
        num_tokens = tf.minimum(tf.cast(ids.row_lengths(), tf.int32), self.sequence_length)
        found = log_probabilities(self.decoder, self._logits, token_ids, num_tokens)
        count = tf.cast(num_tokens - 1, tf.float32)
        # Without a token to predict, a text must not rank before the others.
        mean = tf.where(count > 0, tf.reduce_sum(found, axis=-1) / count, float("-inf"))
        return {
            "token_ids": token_ids,
            "log_probabilities": found,
            "score": mean,
            "num_tokens": num_tokens,
            "truncated": ids.row_lengths() > self.sequence_length,
            "blank": num_tokens == 0,
        }

    def _generate(
        self,
        go_on: Callable[..., Tensors],
        text: tf.Tensor,
        stop: tf.Tensor,
        **options: tf.Tensor,
    ) -> Tensors:
        stops, has_tokens = self.normalized_stops(stop)
        conditions = [
            (fits, f"{name} must be {expected}.", options[name])
            for name, fits, expected in bounds(options, self.sequence_length)
        ]
        conditions.append(
            (has_tokens, "Every stop text needs a token, or is empty for none.", stop)
        )
        ids = self._tokenizer.tokenize(asserted({"text": text}, *conditions)["text"])
        length, before = options["length"], tf.cast(ids.row_lengths(), tf.int32)
        has_token = before > 0, "Every text needs a token to continue from.", before
        before = asserted({"before": before}, has_token)["before"]
        kept = tf.minimum(before, self.sequence_length - length)
        limits = tf.cast(ids.row_limits(), tf.int32)
        prompts = _slices(ids.values, limits - kept, limits)
        added = go_on(
            prompts=prompts.to_tensor(0, shape=[None, self.sequence_length]),
            kept=kept,
            **options,
        )
        added = tf.RaggedTensor.from_tensor(added, tf.cast(length, tf.int64))
        texts = joined(self._tokenizer.detokenize(tf.concat([prompts, added], axis=1)))
        whole = joined_continuations(self._tokenizer.detokenize(added))
        continuations = before_stops(whole, stops)
        left_out = tf.strings.length(whole) - tf.strings.length(continuations)
        texts = tf.strings.substr(
            texts, tf.zeros_like(left_out), tf.strings.length(texts) - left_out
        )
        return {
            "text": tf.strings.strip(texts),
            "continuation": tf.strings.strip(continuations),
            "num_tokens": kept + length,
            "truncated": before > kept,
        }

    def normalized_stops(self, stop: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns normalized stop texts, and which of them have tokens, or are none.

        A stop text without a token, such as a line break for `bert`, would never be found.
        """
        ids = self._tokenizer.tokenize(tf.reshape(stop, [-1]))
        normalized = joined_continuations(self._tokenizer.detokenize(ids))
        is_found = (ids.row_lengths() > 0) | (tf.reshape(stop, [-1]) == "")
        return tf.reshape(normalized, tf.shape(stop)), is_found

    def word_logits(self, states: tf.Tensor) -> tf.Tensor:
        """Returns logits of float `[n, hidden_dim]`, minus infinity for tokens that are no word."""
        return self._logits(states) + self._never

    def _logits(self, states: tf.Tensor) -> tf.Tensor:
        return tf.cast(self._token_embedding(states, reverse=True), tf.float32)


def _with_rows(tensor: tf.Tensor, made_up: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Repeats a tensor's only row, or the made-up one if it has none, for all `rows`."""
    shape = tf.shape(tensor)
    missing = tf.maximum(1 - shape[0], 0)
    made_up = tf.broadcast_to(made_up[:missing], tf.concat([[missing], shape[1:]], axis=0))
    tensor = tf.concat([tensor, made_up], axis=0)
    return tf.gather(tensor, tf.minimum(tf.range(rows), tf.shape(tensor)[0] - 1))


def _slices(values: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.RaggedTensor:
    indices = tf.ragged.range(starts, ends)
    return indices.with_values(tf.gather(values, indices.values))


_ROWS_OF_LOGITS = 512  # at once: 83 MB with the paper's vocabulary


def log_probabilities(
    decoder: CachedDecoder,
    logits: Callable[[tf.Tensor], tf.Tensor],
    token_ids: tf.Tensor,
    num_tokens: tf.Tensor,
) -> tf.Tensor:
    """Scores each token given those before it, and computes nothing for padding.

    Args:
        logits: from hidden states, float `[n, hidden_dim]`, to float32 `[n, vocabulary_size]`.
        token_ids: int32 `[batch, length]`, padded on the right.
        num_tokens: int32 `[batch]`, the number of tokens of each text, which may be 0.

    Returns:
        float32 `[batch, length]`, in nats; 0 for the first token, which is given, and for padding.
    """
    length = token_ids.shape[1]
    read = tf.maximum(num_tokens, 1)
    states = decoder.states(token_ids, read)
    # The last token's target is padding; it is masked below.
    targets = tf.RaggedTensor.from_tensor(tf.roll(token_ids, -1, axis=1), tf.cast(read, tf.int64))

    def step(begin: tf.Tensor, found: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        end = begin + _ROWS_OF_LOGITS
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            targets.values[begin:end], logits(states[begin:end])
        )
        return end, tf.concat([found, -losses], axis=0)

    _, found = tf.while_loop(
        lambda begin, _: begin < tf.size(targets.values),
        step,
        (0, tf.zeros([0])),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
        parallel_iterations=1,
    )
    of_targets = targets.with_values(found).to_tensor(0.0, shape=[None, length])[:, :-1]
    of_targets = tf.where(tf.sequence_mask(num_tokens - 1, length - 1), of_targets, 0.0)
    return tf.pad(of_targets, [[0, 0], [1, 0]])
