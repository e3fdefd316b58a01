"""Continues a text token by token, with what the signature `generate` decodes and samples by."""

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from gpt1_keras import GPT1CausalLM
from serving.export.decoder.packed_decoder import Cache
from serving.export.exported_tasks import signatures_of
from serving.export.generation import (
    joined,
    joined_continuations,
    sample_tokens,
    uniform_numbers,
)
from serving.export.generation_options import GenerationOptions, bounds
from serving.export.language_model_signatures import LanguageModelGraph
from serving.export.signature import ExportSpec

_GOES_ON = "'"  # a word that the next one may be joined to, as in "don ' t"


class TextStream:
    """Continues prompts one by one, and yields each text in pieces while it is generated.

    A text is the one that the signature `generate` of the model's export returns for the same
    options, unless two tokens are equally likely to the last digits of a float.

    Raises:
        ValueError: the model cannot be exported, or an option is out of range.
    """

    def __init__(self, lm: GPT1CausalLM, options: GenerationOptions) -> None:
        spec = ExportSpec(lm)
        signatures_of(spec)  # refuses what cannot be exported
        self._graph = LanguageModelGraph(spec)
        self._tokenizer = lm.preprocessor.tokenizer
        self._options = options
        for name, fits, expected in bounds(vars(options), self._graph.sequence_length):
            if not fits:
                raise ValueError(f"{name} must be {expected}. Received: {getattr(options, name)}.")
        self._stops = [self._normalized_stop(each) for each in options.stop]
        self._sampling = [
            tf.constant([value]) for value in (options.temperature, options.top_k, options.top_p)
        ]
        self._read = tf.function(self._graph.decoder.read, autograph=False, reduce_retracing=True)
        self._step = tf.function(self._next_token, autograph=False, reduce_retracing=True)

    def check_prompts(self, prompts: Sequence[bytes]) -> None:
        """Raises ValueError if there is no prompt, or one is empty or leaves no room to go on."""
        if not prompts:
            raise ValueError(
                "There is no prompt, neither an argument nor a line of standard input."
            )
        context, length = self._graph.sequence_length, self._options.length
        for number, count in enumerate(self._tokenizer(list(prompts)).row_lengths().numpy(), 1):
            if not count:
                raise ValueError(
                    f"Prompt {number} is empty; a text goes on from at least one token."
                )
            if count + length > context:
                raise ValueError(
                    f"Prompt {number} has {count} tokens, and the length is {length}: together "
                    f"they must be at most {context}, the model's context."
                )

    def pieces(self, prompt: bytes) -> Iterator[str]:
        """Yields a prompt with its continuation, a few characters at a time.

        Args:
            prompt: UTF-8, a text that `check_prompts` accepts.
        """
        ids = self._tokenizer([prompt])[0].numpy().tolist()
        added: list[int] = []
        shown = ""
        for token in self._tokens(ids):
            added.append(token)
            is_last = len(added) == self._options.length
            text, start = self._settled(ids, added, is_last)
            end, is_stopped = find_end(text[start:], self._stops, is_last)
            now = text[: start + end].rstrip()
            if len(now) > len(shown):
                yield now[len(shown) :]
                shown = now
            if is_stopped:
                return

    def _tokens(self, ids: Sequence[int]) -> Iterator[int]:
        length = self._options.length
        uniform = uniform_numbers(tf.constant([self._options.seed]), self._graph.sequence_length)
        states, cache = self._read(tf.constant([ids]), tf.constant([len(ids)]))
        window = tf.nest.map_structure(
            lambda each: tf.zeros([1, each.shape[1], length, each.shape[3]], each.dtype), cache
        )
        token = self._sample(states, uniform[:, 0])
        yield int(token[0])
        for index in range(length - 1):
            position = tf.constant([len(ids) + index])
            number = tf.constant(index)
            token, window = self._step(
                token, position, cache, window, number, uniform[:, index + 1]
            )
            yield int(token[0])

    def _next_token(
        self,
        token: tf.Tensor,
        position: tf.Tensor,
        cache: Cache,
        window: Cache,
        index: tf.Tensor,
        uniform: tf.Tensor,
    ) -> tuple[tf.Tensor, Cache]:
        """Reads a token and samples the next one, int32 `[1]`; see `CachedDecoder.step`."""
        starts = tf.zeros_like(position)
        states, window = self._graph.decoder.step(token, position, cache, starts, window, index)
        return self._sample(states, uniform), window

    def _sample(self, states: tf.Tensor, uniform: tf.Tensor) -> Any:
        return sample_tokens(self._graph.word_logits(states), uniform, *self._sampling)

    def _settled(self, ids: Sequence[int], added: Sequence[int], is_last: bool) -> tuple[str, int]:
        """Returns the text that no later token changes, and the index where it goes on.

        The last word may not be finished, and an apostrophe may be joined to the word after it.
        """
        words = self._tokenizer.detokenize([*ids, *added])
        whole = _written(joined(words))
        start = len(whole) - len(_written(joined_continuations(self._tokenizer.detokenize(added))))
        if is_last:
            return whole, start
        complete = words.rpartition(" ")[0]
        if complete.endswith(f" {_GOES_ON}"):
            complete = complete[: -len(_GOES_ON)]
        return _written(joined(complete.rstrip(" "))), start

    def _normalized_stop(self, stop: str) -> str:
        normalized, has_tokens = self._graph.normalized_stops(tf.constant([stop]))
        if not stop or not has_tokens[0]:
            raise ValueError(f"A stop text needs at least one token. Received: {stop!r}.")
        return _written(normalized[0])


def find_end(text: str, stops: Sequence[str], is_last: bool) -> tuple[int, bool]:
    """Finds the part of a continuation that stands, whatever follows.

    Args:
        text: the continuation as far as it is known.
        stops: texts before the earliest of which the continuation ends.
        is_last: whether nothing follows.

    Returns:
        `(end, is_stopped)`: the index after that part, and whether the continuation ends there.
    """
    end = min([at for stop in stops if (at := text.find(stop)) >= 0], default=len(text))
    if not is_last:
        longest = max(map(len, stops), default=0)
        for start in range(max(len(text) + 1 - longest, 0), end):
            # What follows may complete a stop text that begins here.
            if any(stop.startswith(text[start:]) for stop in stops):
                return start, False
    return end, end < len(text)


def _written(text: tf.Tensor) -> str:
    return text.numpy().decode()
