"""Continues prompts with a language model."""

from collections.abc import Iterator, Sequence

import keras_hub

from gpt1_keras import GPT1CausalLM


def continuations(
    lm: GPT1CausalLM,
    prompts: Sequence[bytes],
    sampler: keras_hub.samplers.Sampler,
    max_length: int | None = None,
) -> Iterator[str]:
    """Continues prompts one by one, so that no text depends on the prompts after it.

    Args:
        lm: a language model.
        prompts: UTF-8.
        sampler: chooses each next token.
        max_length: number of tokens of prompt and continuation together; by default, the sequence
            length of the model's preprocessor.

    Yields:
        Each prompt with its continuation.

    Raises:
        ValueError: the model has no preprocessor; there is no prompt, or a prompt has no token or
            leaves no room for another; `max_length` is not from 1 to the model's context; or the
            sampler chooses from more tokens than there are. It is raised before the first text.
    """
    _check(lm, prompts, sampler, max_length)
    lm.compile(sampler=sampler)
    for prompt in prompts:
        yield lm.generate([prompt], max_length=max_length)[0]


def _check(
    lm: GPT1CausalLM,
    prompts: Sequence[bytes],
    sampler: keras_hub.samplers.Sampler,
    max_length: int | None,
) -> None:
    """Raises ValueError as `continuations` says."""
    if lm.preprocessor is None:
        raise ValueError("The model has no preprocessor, and so no tokenizer for prompts.")
    context = lm.backbone.max_sequence_length
    if max_length is None:
        max_length = lm.preprocessor.sequence_length
    if not 1 <= max_length <= context:
        raise ValueError(
            f"max_length must be from 1 to {context}, the model's context. Received: {max_length}."
        )
    k, tokens = getattr(sampler, "k", None), lm.backbone.vocabulary_size
    if k is not None and k > tokens:
        raise ValueError(f"k must be at most {tokens}, the model's tokens. Received: {k}.")
    if not prompts:
        raise ValueError("There is no prompt, neither an argument nor a line of standard input.")
    lengths = lm.preprocessor.tokenizer(list(prompts)).row_lengths().numpy()
    for number, length in enumerate(lengths, 1):
        if not length:
            raise ValueError(f"Prompt {number} is empty; a text goes on from at least one token.")
        if length >= max_length:
            raise ValueError(
                f"Prompt {number} has {length} tokens, and max_length is {max_length}: there is no "
                "room to go on."
            )
