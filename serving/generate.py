"""Continues texts with a language model.

    gpt1 generate --model runs/books/preset "the road was long and" --length 60
    gpt1 generate --model runs/books/preset --temperature 0 < prompts.txt

Prompts are arguments or lines of the standard input. Each text is printed while it is generated:
the prompt and its continuation, in one line. The options are those of the signature `generate` of
the model's export, which returns the same texts for them.
"""

import dataclasses
import os
import sys

from gpt1_keras.cli import option, program
from gpt1_keras.presets import PRESET_HELP, PRESET_NAMES
from serving.export.generation_options import GenerationOptions


@dataclasses.dataclass(frozen=True)
class _GenerateOptions:
    model: str = option(PRESET_HELP, name=PRESET_NAMES, metavar="PRESET")
    texts: tuple[str, ...] = option(
        "prompt (default: lines of the standard input)", (), name="text"
    )


@program("serving.generate")
def main(options: _GenerateOptions, generation: GenerationOptions) -> None:
    """Continue texts with a language model."""
    from gpt1_keras import GPT1CausalLM
    from gpt1_keras.presets import load_task
    from serving.export.generation_stream import TextStream

    # The bytes as they were typed: the tokenizer replaces those that are not valid UTF-8.
    prompts = [os.fsencode(text) for text in options.texts] or sys.stdin.buffer.read().splitlines()
    stream = TextStream(load_task(options.model, GPT1CausalLM), generation)
    stream.check_prompts(prompts)
    for prompt in prompts:
        for piece in stream.pieces(prompt):
            print(piece, end="", flush=True)
        print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
