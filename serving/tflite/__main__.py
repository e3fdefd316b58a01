"""Converts a model into one .tflite file, text in, scores out.

    python -m serving.tflite --model runs/sst2/best --output sst2.tflite --quantize int8

The file runs wherever LiteRT does: Android, iOS, browsers, Python, C. See docs/on_device.md.
"""

import argparse
import os
import sys

# Read at import: only errors are of interest here.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from gpt1_keras.presets import PRETRAINED, load_task
from serving.tflite.convert import MAX_BYTES, SEQUENCE_LENGTH, convert
from serving.tflite.quantize import QUANTIZATIONS


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m serving.tflite",
        description="Convert a model into one .tflite file: text in, scores out.",
    )
    parser.add_argument(
        "--model", required=True, help=f"{', '.join(PRETRAINED)}, or a model's preset folder"
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="the .tflite file")
    parser.add_argument(
        "--max-bytes",
        type=int,
        nargs="+",
        default=MAX_BYTES,
        metavar="N",
        help="bytes of UTF-8 that a text may have, of all fields or of each (default: %(default)s)",
    )
    parser.add_argument(
        "--sequence-length",
        type=int,
        default=SEQUENCE_LENGTH,
        metavar="N",
        help="tokens that a framed text may have (default: %(default)s)",
    )
    parser.add_argument(
        "--num-choices", type=int, metavar="N", help="of multiple choice: choices at most"
    )
    parser.add_argument(
        "--quantize",
        choices=QUANTIZATIONS,
        default="none",
        help="weights as integers or half floats (default: %(default)s, float32)",
    )
    options = parser.parse_args(arguments)
    try:
        path = convert(
            load_task(options.model),
            options.output,
            options.max_bytes,
            options.sequence_length,
            options.num_choices,
            options.quantize,
        )
    except (ImportError, OSError, ValueError) as error:
        print(f"Cannot convert {options.model}: {error}", file=sys.stderr)
        return 1
    print(f"{path}: {os.path.getsize(path) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
