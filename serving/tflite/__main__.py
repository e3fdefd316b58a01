"""Converts a model into one .tflite file, text in, scores out.

    gpt1 tflite --model runs/sst2/best --output sst2.tflite --quantize int8

The file runs wherever LiteRT does: Android, iOS, browsers, Python, C. See docs/on_device.md.
"""

import dataclasses
import os
import sys

from gpt1_keras.cli import option, program
from gpt1_keras.presets import PRESET_HELP, PRESET_NAMES
from serving.tflite import MAX_BYTES, QUANTIZATIONS, SEQUENCE_LENGTH


@dataclasses.dataclass(frozen=True)
class _ConvertOptions:
    model: str = option(PRESET_HELP, name=PRESET_NAMES)
    output: str = option("the .tflite file", metavar="FILE")
    max_bytes: tuple[int, ...] = option(
        "the most bytes of UTF-8 in a text, one number for all fields or one for each",
        (MAX_BYTES,),
        consume_multiple=1,
        metavar="N",
    )
    sequence_length: int | None = option(
        f"the most tokens of a framed text (default: {SEQUENCE_LENGTH}, or the model's context if "
        "that is shorter)",
        None,
        metavar="N",
    )
    num_choices: int | None = option(
        "the most choices of an example, for multiple choice", None, metavar="N"
    )
    quantize: str = option(
        "store weights as integers or half floats; none stores float32",
        "none",
        choices=QUANTIZATIONS,
    )


@program("serving.tflite")
def main(options: _ConvertOptions) -> None:
    """Convert a model into one .tflite file: text in, scores out."""
    from gpt1_keras.presets import load_task
    from serving.tflite.converter import convert

    path = convert(
        load_task(options.model),
        options.output,
        options.max_bytes,
        options.sequence_length,
        options.num_choices,
        options.quantize,
    )
    print(f"{path}: {os.path.getsize(path) / 1e6:.1f} MB")


if __name__ == "__main__":
    sys.exit(main())
