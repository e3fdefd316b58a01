"""Continues texts with a language model.

    python -m serving.generate --model runs/books/preset "the road was long and" --max-length 60
    python -m serving.generate --model runs/books/preset --sampler beam < prompts.txt

Prompts are arguments or lines of the standard input. For each prompt it prints a line: the prompt
and its continuation, together up to `--max-length` tokens.
"""

import dataclasses
import os
import sys

from gpt1_keras.cli import option, program
from gpt1_keras.presets import PRESET_HELP, PRESET_NAMES
from serving.generation.samplers import SamplerOptions


@dataclasses.dataclass(frozen=True)
class _GenerateOptions:
    model: str = option(PRESET_HELP, name=PRESET_NAMES, metavar="PRESET")
    texts: tuple[str, ...] = option(
        "prompt (default: lines of the standard input)", (), name="text"
    )
    max_length: int | None = option(
        "tokens of prompt and continuation (default: the preset's sequence length)",
        None,
        metavar="N",
    )


@program("serving.generate")
def main(options: _GenerateOptions, sampler: SamplerOptions) -> None:
    """Continue texts with a language model."""
    from gpt1_keras import GPT1CausalLM
    from gpt1_keras.presets import load_task
    from serving.generation.continuations import continuations

    # The bytes as they were typed: the tokenizer replaces those that are not valid UTF-8.
    prompts = [os.fsencode(text) for text in options.texts] or sys.stdin.buffer.read().splitlines()
    made = sampler.make()
    lm = load_task(options.model, GPT1CausalLM)
    for text in continuations(lm, prompts, made, options.max_length):
        print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
