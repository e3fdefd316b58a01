"""GPT1CausalLM, and its preprocessor: predicts the next token, and generates text."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import keras
import keras_hub
import numpy as np
from keras import ops

from gpt1_keras.models.attention import attend_cached
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.models.left_padding import MoveBack, MoveToFront
from gpt1_keras.optimization.objective import next_token_loss
from gpt1_keras.optimization.optimizer import pretraining_optimizer
from gpt1_keras.preset_files import FromHandle
from gpt1_keras.tasks.prompts_and_stops import (
    NOT_YET,
    certain,
    check_prompts,
    known_tokens,
    stop_ids,
    until_stop,
)
from gpt1_keras.tasks.task import Task
from gpt1_keras.tokenization.backend import batch_of_one, is_single, text_backend
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from gpt1_keras.types import TaskArguments, Tensor
from gpt1_keras.upstream import to_backend_tensors


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1CausalLMPreprocessor(FromHandle, keras_hub.models.CausalLMPreprocessor):
    """Tokenizes texts for `GPT1CausalLM`.

    GPT-1 was pre-trained on contiguous text without start or end tokens (section 4.1), so none
    are added.

    Args:
        tokenizer: `GPT1Tokenizer`.
        sequence_length: the length that texts are truncated or padded to.

    Raises:
        ValueError: `add_start_token` or `add_end_token`, which KerasHub's preprocessors take; or in
            a call, `y` or `sample_weight`.

    Call arguments:
        x: strings `[batch]`, a list, tuple, array, tensor or pandas column; or one string.
        y, sample_weight: must be None, as targets and their weights come from `x`.
        sequence_length: replaces the preprocessor's.

    Returns:
        `(x, y, sample_weight)`: `{"token_ids", "padding_mask"}`, int32 `[batch, sequence_length]`;
        the next token after each position, int32 of the same shape; and 1 where there is a next
        token, int32 of the same shape. For one string, there is no axis `batch`.
    """

    backbone_cls = GPT1Backbone
    tokenizer_cls = GPT1Tokenizer

    def __init__(self, tokenizer: GPT1Tokenizer, sequence_length: int = 512, **kwargs: Any) -> None:
        for name in ("add_start_token", "add_end_token"):
            if kwargs.get(name):
                raise ValueError(
                    f"GPT-1 was pre-trained without start and end tokens. Received: {name}="
                    f"{kwargs[name]}; expected False."
                )
        kwargs |= {"add_start_token": False, "add_end_token": False}
        super().__init__(tokenizer, sequence_length, **kwargs)
        self.built = True

    def call(
        self, x: Any, y: Any = None, sample_weight: Any = None, sequence_length: int | None = None
    ) -> tuple[dict[str, Any], Any, Any]:
        for name, given in (("y", y), ("sample_weight", sample_weight)):
            if given is not None:
                raise ValueError(
                    "A language model's targets are the next tokens of `x`, each of weight 1. "
                    f"Received also `{name}`; expected texts alone."
                )
        # One more than the inputs: the last token is only a target.
        packed = self._pack(x, sequence_length, extra=1)
        token_ids, mask = packed["token_ids"], packed["padding_mask"]
        inputs = {"token_ids": token_ids[..., :-1], "padding_mask": mask[..., :-1]}
        return to_backend_tensors((inputs, token_ids[..., 1:], mask[..., 1:]))

    def generate_preprocess(self, x: Any, sequence_length: int | None = None) -> dict[str, Any]:
        """Turns prompts into what `generate` continues.

        Args:
            x: strings `[batch]`, or one string.
            sequence_length: the length of prompt and continuation together, in tokens.

        Returns:
            dict of `token_ids` and `padding_mask`, int32 `[batch, sequence_length]`, or
            `[sequence_length]` for one string.

        Raises:
            ValueError: there is no prompt; or one has no token, and GPT-1 has no token to start a
                text with.
        """
        packed = self._pack(x, sequence_length)
        if not len(packed["padding_mask"]):
            raise ValueError("Expected one prompt or more. Received: none.")
        empty = np.flatnonzero(~np.any(packed["padding_mask"], axis=-1))
        if len(empty):
            raise ValueError(
                "A prompt needs at least one token to continue from. Received a prompt without "
                f"any at index {empty[0]}."
            )
        return to_backend_tensors(packed)

    def generate_postprocess(self, x: dict[str, Any]) -> Any:
        """Turns generated ids, a dict like that of `generate_preprocess`, into texts or one text.

        Special tokens are left out.
        """
        token_ids = keras.ops.convert_to_numpy(x["token_ids"])
        mask = keras.ops.convert_to_numpy(x["padding_mask"])
        # A model may embed more ids than its tokenizer has tokens; those have no text.
        kept = mask.astype(bool) & (token_ids < self.tokenizer.vocabulary_size())
        kept &= ~np.isin(token_ids, self.tokenizer.special_token_ids)
        if token_ids.ndim == 1:
            return self.tokenizer.detokenize(token_ids[kept].tolist())
        return self.tokenizer.detokenize([ids[row].tolist() for ids, row in zip(token_ids, kept)])

    def export_to_transformers(self, path: str | os.PathLike[str]) -> None:
        """Like `GPT1Tokenizer.export_to_transformers`."""
        self.tokenizer.export_to_transformers(path)

    def read(self, x: Any) -> tuple[Any, bool]:
        """Returns a user's texts as a batch of strings, `[batch]`, and whether it was one text.

        Raises ValueError if they are not strings.
        """
        is_one = is_single(x)
        return text_backend().as_texts(batch_of_one(x) if is_one else x), is_one

    def _pack(self, x: Any, length: int | None, extra: int = 0) -> dict[str, Any]:
        """Returns `token_ids` and `padding_mask`, int32 `[batch, length + extra]`."""
        length = self.sequence_length if length is None else length
        if length < 1:
            raise ValueError(f"Expected sequence_length of at least 1. Received: {length}.")
        backend, (texts, is_one) = text_backend(), self.read(x)
        if backend.rank(texts) != 1:
            raise ValueError(
                "Expected strings of shape [batch], or one string. Received rank: "
                f"{backend.rank(texts)}."
            )
        ids = self.tokenizer.tokenize(texts)
        packed = backend.pad(ids, self.tokenizer, length + extra, "sequence_length")
        return {name: batch[0] for name, batch in packed.items()} if is_one else packed

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["add_start_token"], config["add_end_token"]
        return config


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1CausalLM(Task, keras_hub.models.CausalLM):
    """Predicts next tokens: P(u) = softmax(h_n W_e^T) (equation 2).

    It maps `{"token_ids", "padding_mask"}`, int32 `[batch, length]`, to logits, float `[batch,
    length, vocabulary_size]`. The mask is optional. `fit`, `evaluate` and `generate` take raw
    strings. Tokens that were never trained, the backbone's `num_untrained_tokens`, have a logit of
    -1e9, and weigh nothing as targets of L1.

    Args:
        backbone: `GPT1Backbone` or `LSTMBackbone`. Only the former can generate.
        preprocessor: `GPT1CausalLMPreprocessor`; `None` if inputs are ids.

    Example:
    ```python
    lm = gpt1_keras.convert.load_hugging_face("path/to/openai-gpt")
    lm.compile(sampler="greedy")
    lm.generate("the road was long and", max_length=40)
    ```
    """

    backbone_cls = GPT1Backbone
    preprocessor_cls = GPT1CausalLMPreprocessor
    optional_inputs = ("padding_mask",)

    def __init__(
        self,
        backbone: CausalBackbone,
        preprocessor: GPT1CausalLMPreprocessor | None = None,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        self.attach(backbone, preprocessor)
        hidden_states = backbone(backbone.input)
        logits = backbone.token_embedding(hidden_states, reverse=True)
        super().__init__(inputs=backbone.input, outputs=logits, **kwargs)

    def compile(  # type: ignore[override]  # names what Keras takes as *args
        self,
        optimizer: Any = "auto",
        loss: Any = "auto",
        *,
        metrics: Any = None,
        weighted_metrics: Any = "auto",
        sampler: Any = "auto",
        **kwargs: Any,
    ) -> None:
        """Configures training and generation, like `keras_hub.models.CausalLM.compile`.

        Args:
            optimizer: `"auto"` for the paper's optimizer for pre-training (section 4.1).
            loss: `"auto"` for L1 (equation 1): the mean cross-entropy of next tokens, computed
                without all logits in memory. `fit` and `evaluate` then report its perplexity too.
            metrics: by default none, as metrics need all logits in memory.
            weighted_metrics: `"auto"` for none.
            sampler: how `generate` chooses tokens, as KerasHub's `compile` takes it; `"auto"` to
                sample from the 40 likeliest tokens at a temperature of 0.8, as exports do.
            **kwargs: see `keras_hub.models.CausalLM.compile`, and `Task.compile` for
                `accumulation_steps`.

        Raises:
            ValueError: `lm_coefficient` is given: this task has no other loss than L1.
        """
        if weighted_metrics == "auto":
            weighted_metrics = None
        self._has_own_loss = loss != "auto"
        self._has_metrics = bool(weighted_metrics or metrics)
        if sampler == "auto":  # as `serving.generate` and the signature of exports
            k = min(40, self.backbone.vocabulary_size)
            sampler = keras_hub.samplers.TopKSampler(k=k, temperature=0.8)
        super().compile(
            optimizer=pretraining_optimizer() if optimizer == "auto" else optimizer,
            loss=loss,
            metrics=metrics,
            weighted_metrics=weighted_metrics,
            sampler=sampler,
            **kwargs,
        )

    def forward_loss(
        self, x: dict[str, Tensor], y: Tensor, sample_weight: Tensor | None, training: bool
    ) -> tuple[Any, Tensor]:
        """Like `Task.forward_loss`, but without outputs unless metrics or the loss need them."""
        if self._has_own_loss:
            return super().forward_loss(x, y, sample_weight, training)
        hidden_states = self.backbone(x, training=training)
        weights = self._token_weights(y, sample_weight)
        loss = next_token_loss(
            hidden_states,
            self.backbone.token_embedding,
            y,
            weights / ops.maximum(ops.sum(weights), 1e-9),
            training,
        )
        if not self._has_metrics:
            return (), loss
        return self.backbone.token_embedding(hidden_states, reverse=True), loss

    def loss_count(self, x: dict[str, Tensor], y: Tensor, sample_weight: Tensor | None) -> Tensor:
        """Returns the sum of the targets' weights, float32 scalar."""
        if self._has_own_loss:
            return super().loss_count(x, y, sample_weight)
        return ops.sum(self._token_weights(y, sample_weight))

    def _token_weights(self, y: Tensor, sample_weight: Tensor | None) -> Tensor:
        """Returns the weight of each target in L1, float32 `[batch, length]`."""
        weights = ops.ones(ops.shape(y)) if sample_weight is None else sample_weight
        weights = ops.cast(weights, "float32")
        untrained = self.backbone.num_untrained_tokens
        if untrained:
            weights *= ops.cast(y < self.backbone.vocabulary_size - untrained, "float32")
        return weights

    def get_metrics_result(self) -> dict[str, Tensor]:
        logs = super().get_metrics_result()
        return logs if self._has_own_loss else {**logs, "perplexity": ops.exp(logs["loss"])}

    def call_with_cache(
        self, token_ids: Tensor, cache: Tensor, cache_update_index: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns `(logits, hidden_states, cache)`; see `states_with_cache`."""
        states, cache = self.states_with_cache(token_ids, cache, cache_update_index)
        return self.backbone.token_embedding(states, reverse=True), states, cache

    def states_with_cache(
        self, token_ids: Tensor, cache: Tensor, cache_update_index: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Computes `(hidden_states, cache)`, and reuses the keys and values of earlier positions.

        Args:
            token_ids: int `[batch, length]`.
            cache: float `[batch, num_layers, 2, num_heads, max_length, head_dim]`.
            cache_update_index: int scalar, the position of the first of `token_ids`.
        """
        x = self.backbone.embedding(token_ids, start_index=cache_update_index)
        positions = cache_update_index + ops.arange(ops.shape(token_ids)[1])
        caches = []
        for i, block in enumerate(self.backbone.blocks):
            qkv = block.project(x, positions)
            attended, block_cache = attend_cached(qkv, cache[:, i], cache_update_index)
            x = block.finish(attended, x)
            caches.append(block_cache)
        return x, ops.stack(caches, axis=1)

    def empty_cache(self, batch: Tensor, length: Tensor) -> Tensor:
        """Returns an empty `cache` for `call_with_cache`, for `batch` texts of `length` tokens."""
        backbone = self.backbone
        head_dim = backbone.hidden_dim // backbone.num_heads
        shape = (batch, backbone.num_layers, 2, backbone.num_heads, length, head_dim)
        return ops.zeros(shape, dtype=self.compute_dtype)

    def generate_step(
        self, inputs: dict[str, Tensor], stop_token_ids: Sequence[int] | None = None
    ) -> dict[str, Tensor]:
        """Continues one batch of prompts; `generate` compiles this function.

        Args:
            inputs: dict of `token_ids` and `padding_mask`, int `[batch, max_length]`, as returned.
            stop_token_ids: ids that end a text.
        """
        token_ids, mask = (
            ops.cast(inputs[name], dtype)
            for name, dtype in (("token_ids", "int32"), ("padding_mask", "bool"))
        )
        batch, length = ops.shape(token_ids)[0], ops.shape(token_ids)[1]
        cache = self.empty_cache(batch, length)
        hidden_states, cache = self.states_with_cache(token_ids, cache, 0)

        def next(prompt: Tensor, cache: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            # Samplers that keep several beams of each text pass a larger batch.
            last = ops.slice(prompt, (0, index - 1), (ops.shape(prompt)[0], 1))
            logits, hidden_states, cache = self.call_with_cache(last, cache, index - 1)
            known = known_tokens(prompt, index, mask, stop_token_ids)
            return certain(logits[:, 0], known), hidden_states[:, 0], cache

        generated = self.sampler(
            next=next,
            prompt=ops.where(mask, token_ids, NOT_YET),
            cache=cache,
            # Shorter prompts are continued while longer ones are still being read.
            index=ops.min(ops.sum(ops.cast(mask, "int32"), axis=-1)),
            mask=mask,
            stop_token_ids=stop_token_ids,
            hidden_states=hidden_states,
            model=self,
        )
        return {
            "token_ids": ops.where(generated == NOT_YET, token_ids, generated),
            "padding_mask": until_stop(generated, mask, stop_token_ids),
        }

    def generate(
        self,
        inputs: Any,
        max_length: int | None = None,
        stop_token_ids: Any = "auto",
        strip_prompt: bool = False,
        **sampling: Any,
    ) -> Any:
        """Continues prompts, like `keras_hub.models.CausalLM.generate`.

        Args:
            inputs: prompts, strings; without a preprocessor, a dict of `token_ids` and
                `padding_mask`, int `[batch, max_length]`, each prompt followed by its padding.
            max_length, strip_prompt: as in KerasHub's `generate`.
            stop_token_ids: one or several ids that end a text. With `"auto"` or None there are
                none, as GPT-1 has no end token: texts reach `max_length` tokens.
            **sampling: refused, as `compile` takes the sampler.

        Raises:
            TypeError: there are further arguments, such as `temperature`.
            ValueError: the backbone is not a `GPT1Backbone`, or one of its blocks overrides `call`;
                a prompt has no token, or padding on its left; `max_length` is longer than the
                context; or `stop_token_ids` are not ids of the model.
        """
        if sampling:
            raise TypeError(
                "`generate` takes no sampler: call compile(sampler=...) before, such as compile("
                "sampler=keras_hub.samplers.TopKSampler(k=40, temperature=0.8)). Received: "
                f"{', '.join(sampling)}."
            )
        if not isinstance(self.backbone, GPT1Backbone):
            raise ValueError(
                f"Generation needs a GPT1Backbone. Received: {type(self.backbone).__name__}."
            )
        if not self.backbone.is_cut_at_attention:
            raise ValueError(
                "Generation needs blocks that override `project` or `finish`, and not `call`. "
                f"Received: {type(self.backbone.blocks[0]).__name__}."
            )
        self.check_tokenizer()
        stop_token_ids = stop_ids(stop_token_ids, self.backbone.vocabulary_size)
        if self.preprocessor is not None and is_single(inputs):
            # KerasHub recognizes a single text only as a str or a tf.Tensor.
            prompts = batch_of_one(inputs)
            return super().generate(prompts, max_length, stop_token_ids, strip_prompt)[0]
        if self.preprocessor is None:
            check_prompts(inputs)
        return super().generate(inputs, max_length, stop_token_ids, strip_prompt)

    def score(
        self,
        token_ids: Tensor,
        padding_mask: Tensor | None = None,
        scoring_mode: str = "logits",
        layer_intercept_fn: Callable[[Tensor, int], Tensor] | None = None,
        target_ids: Tensor | None = None,
    ) -> Tensor:
        """Scores texts, like `keras_hub.models.GPT2CausalLM.score`, in inference.

        Args:
            token_ids: int `[batch, length]`.
            padding_mask: optional int `[batch, length]`, as for the model.
            scoring_mode: `"logits"` or `"loss"`.
            layer_intercept_fn: optional function of float `[batch, length, hidden_dim]` and an
                index; it returns a tensor of this shape, which replaces its argument. The index is
                -1 for the sum of the embeddings, and then 0, 1, ... for each block's output. Its
                sequences begin with their first token, on whichever side they were padded.
            target_ids: int `[batch, length]`, the token after each position; for `"loss"`.

        Returns:
            float `[batch, length, vocabulary_size]`, logits; or float32 `[batch, length]`, the
            cross-entropy of each target in nats.

        Raises:
            ValueError: other `token_ids`, such as texts; another `scoring_mode`, no `target_ids`
                for `"loss"`, or a backbone that is not a `GPT1Backbone`.
        """
        if scoring_mode not in ("logits", "loss"):
            raise ValueError(
                f"`scoring_mode` must be 'logits' or 'loss'. Received: {scoring_mode!r}."
            )
        if scoring_mode == "loss" and target_ids is None:
            raise ValueError("scoring_mode='loss' needs `target_ids`. Received: None.")
        if not isinstance(self.backbone, GPT1Backbone):
            raise ValueError(
                f"Scoring needs a GPT1Backbone. Received: {type(self.backbone).__name__}."
            )
        token_ids = ops.convert_to_tensor(token_ids)
        dtype = keras.backend.standardize_dtype(token_ids.dtype)
        if len(token_ids.shape) != 2 or "int" not in dtype:
            raise ValueError(
                "`token_ids` must be ints of shape [batch, length]; for texts, call "
                "`score(**preprocessor(texts)[0])`. Received: "
                f"{dtype} of shape {tuple(token_ids.shape)}."
            )
        intercept = layer_intercept_fn or (lambda x, index: x)
        x = MoveToFront()(token_ids, padding_mask)
        x = intercept(self.backbone.embedding(x), -1)
        for index, block in enumerate(self.backbone.blocks):
            x = intercept(block(x), index)
        x = MoveBack()(x, padding_mask)
        logits = self.backbone.token_embedding(x, reverse=True)
        if scoring_mode == "logits":
            return logits
        logits = ops.cast(logits, "float32")
        return ops.sparse_categorical_crossentropy(target_ids, logits, from_logits=True)
