"""Checks the arguments of `GPT1CausalLM.generate`, and finds where its texts begin and end."""

from collections.abc import Sequence, Set
from typing import Any

import numpy as np
from keras import ops

from gpt1_keras.types import Tensor

# The id of a token that has not been chosen. No stop token has it, as padding might.
NOT_YET = -1


def check_prompts(prompts: Any) -> None:
    """Checks the ids of prompts for `generate`, a dict of arrays or tensors.

    A dataset of them passes, and is not checked.

    Raises:
        ValueError: the dict has other names, or a prompt has no token, or padding before a token.
    """
    if not isinstance(prompts, dict):
        return
    if set(prompts) != {"token_ids", "padding_mask"}:
        raise ValueError(
            "Without a preprocessor, `generate` takes a dict of 'token_ids' and 'padding_mask'. "
            f"Received: {', '.join(map(repr, prompts))}."
        )
    mask = np.asarray(prompts["padding_mask"]) != 0
    is_right = mask[:, :1].all() and not (mask[:, 1:] & ~mask[:, :-1]).any()
    if not is_right:
        raise ValueError(
            "`generate` continues each prompt where its padding begins: expected a padding_mask "
            f"of at least one 1 and then 0 in each row. Received: {mask.astype(int)}."
        )


def stop_ids(stop_token_ids: Any, vocabulary_size: int) -> tuple[int, ...] | None:
    """Returns one or several ids as a tuple, as JAX needs it hashable; None if there are none.

    Raises:
        ValueError: they are nested, or are not ids below `vocabulary_size`.
    """
    if stop_token_ids is None or isinstance(stop_token_ids, str) and stop_token_ids == "auto":
        return None
    try:
        ids = np.asarray(
            sorted(stop_token_ids) if isinstance(stop_token_ids, Set) else stop_token_ids
        )
    except (TypeError, ValueError):
        ids = np.asarray(stop_token_ids, object)
    is_int = np.issubdtype(ids.dtype, np.integer) or ids.size == 0
    if not is_int or ids.ndim > 1 or np.any(ids < 0) or np.any(ids >= vocabulary_size):
        raise ValueError(
            f"`stop_token_ids` must be an id or several, from 0 to {vocabulary_size - 1}, 'auto' "
            f"or None. Received: {stop_token_ids!r}."
        )
    return tuple(ids.reshape(-1).tolist()) or None


def known_tokens(
    token_ids: Tensor, index: Tensor, prompt_mask: Tensor, stop_token_ids: Sequence[int] | None
) -> Tensor:
    """Returns the tokens that a sampler need not choose, int32 `[texts]`, and `NOT_YET` elsewhere.

    These are a prompt's own tokens, while longer prompts wait for shorter ones to be continued, and
    any token after a text's end. Their probability is 1, or a beam's would depend on other texts.

    Args:
        token_ids: int32 `[texts, length]`, `NOT_YET` where no token has been chosen. There may be
            several texts, beams, in a row for each prompt.
        index: int scalar, of the next token.
        prompt_mask: bool `[batch, length]`.
        stop_token_ids: as in `until_stop`.
    """
    batch, length = ops.shape(prompt_mask)
    index = ops.minimum(index, length - 1)  # some samplers ask once more after the last token
    known = ops.take(token_ids, index, axis=1)
    if stop_token_ids is None:
        return known
    beams = ops.reshape(token_ids, (batch, -1, length))
    before = until_stop(beams, prompt_mask[:, None], stop_token_ids)
    is_over = ops.reshape(ops.take(before, index, axis=-1), (-1,)) == 0
    return ops.where(is_over, stop_token_ids[0], known)


def certain(logits: Tensor, known: Tensor) -> Tensor:
    """Makes known tokens, int `[texts]`, certain in logits, float `[texts, vocabulary_size]`.

    Logits stay as they are where the token is `NOT_YET`.
    """
    is_token = ops.arange(ops.shape(logits)[-1]) == known[:, None]
    of_known = ops.where(is_token, 0.0, float("-inf"))
    return ops.where(known[:, None] == NOT_YET, logits, ops.cast(of_known, logits.dtype))


def until_stop(
    token_ids: Tensor, prompt_mask: Tensor, stop_token_ids: Sequence[int] | None
) -> Tensor:
    """Returns 1 until the first stop token after the prompt, then 0; int32 `[..., length]`."""
    if stop_token_ids is None:
        return ops.ones_like(token_ids)
    stops = ops.any(
        ops.expand_dims(token_ids, -1) == ops.convert_to_tensor(stop_token_ids), axis=-1
    )
    stops = ops.cast(ops.logical_and(stops, ops.logical_not(prompt_mask)), "int32")
    stops_before = ops.cumsum(stops, axis=-1) - stops
    return ops.cast(stops_before == 0, "int32")
