"""Continues texts with a language model.

    python -m serving.generate --model runs/books/preset "the road was long and" --max-length 60
    python -m serving.generate --model runs/books/preset --sampler beam < prompts.txt

Prompts are arguments or lines of the standard input. For each it prints a line: the prompt and how
it goes on, up to `--max-length` tokens. Prompts are continued one by one, so that a text does not
depend on those behind it.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

# Read when TensorFlow is imported: only texts and errors are of interest here.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras_hub

import gpt1_keras
from gpt1_keras.presets import PRETRAINED, find_preset

_TASK = "GPT1CausalLM"
_DEFAULTS = {"temperature": 1.0, "k": 5, "p": 0.9, "beams": 5}
# KerasHub's samplers, and which options each takes.
_SAMPLERS = {
    "greedy": (keras_hub.samplers.GreedySampler, ()),
    "random": (keras_hub.samplers.RandomSampler, ("temperature", "seed")),
    "top_k": (keras_hub.samplers.TopKSampler, ("k", "temperature", "seed")),
    "top_p": (keras_hub.samplers.TopPSampler, ("p", "temperature", "seed")),
    "beam": (keras_hub.samplers.BeamSampler, ("beams",)),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Continues prompts and prints the texts; returns the exit status."""
    options = vars(_parser().parse_args(argv))
    model, texts, max_length = (options.pop(name) for name in ("model", "texts", "max_length"))
    # As they were typed, also where they are not valid UTF-8: the tokenizer replaces what is not.
    prompts = [os.fsencode(text) for text in texts] or sys.stdin.buffer.read().splitlines()
    try:
        sampler = make_sampler(**options)
        for text in generate(load(model), prompts, sampler, max_length):
            print(text, flush=True)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def make_sampler(sampler: str, **options: Any) -> keras_hub.samplers.Sampler:
    """Makes one of KerasHub's samplers.

    Args:
        sampler: its name, such as `"top_k"`.
        **options: `temperature`, `k`, `p`, `beams` and `seed`; None for the default.

    Raises:
        ValueError: an unknown sampler, an option that it does not take or that is out of range.
    """
    if sampler not in _SAMPLERS:
        raise ValueError(f"Unknown sampler {sampler!r}; expected one of {list(_SAMPLERS)}.")
    given = {name: value for name, value in options.items() if value is not None}
    make, names = _SAMPLERS[sampler]
    for name, value in given.items():
        if name not in names:
            raise ValueError(f"The sampler {sampler!r} takes no {name}. Received: {value}.")
    values = {name: given.get(name, _DEFAULTS.get(name)) for name in names}
    ranges = {
        "temperature": ("above 0", lambda value: 0 < value < float("inf")),
        "k": ("at least 1", lambda value: value >= 1),
        "p": ("above 0 and at most 1", lambda value: 0 < value <= 1),
        "beams": ("at least 1", lambda value: value >= 1),
    }
    for name, (expected, fits) in ranges.items():
        if name in values and not fits(values[name]):
            raise ValueError(f"{name} must be {expected}. Received: {values[name]}.")
    if "beams" in values:
        values["num_beams"] = values.pop("beams")
    return make(**values)


def load(preset: str) -> gpt1_keras.GPT1CausalLM:
    """Loads a language model.

    Args:
        preset: name of a preset that ships, or path of a preset's folder.

    Raises:
        FileNotFoundError: there is no preset.
        ValueError: the preset is of another task, or has no tokenizer.
    """
    folder = find_preset(preset)
    path = folder / "task.json"
    if not path.is_file():
        raise FileNotFoundError(f"{preset} is no preset of a language model: it has no task.json.")
    task = json.loads(path.read_text(encoding="utf-8"))["class_name"]
    if task != _TASK:
        raise ValueError(f"{preset} is a preset of a {task}; expected a {_TASK}.")
    lm = gpt1_keras.GPT1CausalLM.from_preset(str(folder))
    if lm.preprocessor is None:
        raise ValueError(f"{preset} has no preprocessor, and so no tokenizer for prompts.")
    return lm


def generate(
    lm: gpt1_keras.GPT1CausalLM,
    prompts: Sequence[bytes],
    sampler: keras_hub.samplers.Sampler,
    max_length: int | None = None,
) -> Iterator[str]:
    """Continues prompts, one after the other.

    Args:
        lm: with a preprocessor.
        prompts: UTF-8.
        sampler: what chooses each next token.
        max_length: number of tokens of prompt and continuation; the preprocessor's by default.

    Yields:
        each prompt with its continuation.

    Raises:
        ValueError: there is no prompt, one holds no token or leaves no room to go on, `max_length`
            is out of the model's context, or the sampler has more choices than there are tokens;
            all before the first text.
    """
    _check(lm, prompts, sampler, max_length)
    lm.compile(sampler=sampler)
    for prompt in prompts:
        yield lm.generate([prompt], max_length=max_length)[0]


def _check(lm, prompts, sampler, max_length):
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m serving.generate",
        description="Continue texts with a language model.",
    )
    add = parser.add_argument
    add("texts", nargs="*", metavar="TEXT", help="prompt (default: lines of the standard input)")
    add(
        "--model",
        required=True,
        metavar="PRESET",
        help=f"{', '.join(PRETRAINED)}, or a preset's folder",
    )
    add(
        "--max-length",
        type=int,
        metavar="N",
        help="tokens of prompt and continuation (default: the preset's sequence length)",
    )
    add(
        "--sampler",
        default="top_k",
        help=f"one of {', '.join(_SAMPLERS)} (default: %(default)s)",
    )
    add("--k", type=int, help=f"top_k: how many tokens to choose from (default: {_DEFAULTS['k']})")
    add(
        "--p",
        type=float,
        help="top_p: the probability of the likeliest tokens to choose from "
        f"(default: {_DEFAULTS['p']})",
    )
    add(
        "--temperature",
        type=float,
        help="random, top_k, top_p: below 1 for likelier texts, above for more surprising ones "
        f"(default: {_DEFAULTS['temperature']})",
    )
    add("--beams", type=int, help=f"beam: texts to keep (default: {_DEFAULTS['beams']})")
    add("--seed", type=int, help="random, top_k, top_p: for the same texts every time")
    return parser


if __name__ == "__main__":
    sys.exit(main())
