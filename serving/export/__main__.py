"""Exports a model as a versioned SavedModel that takes raw text.

    gpt1 export --model DIR --output DIR

writes DIR/1/, DIR/2/, ... for TF Serving: core TensorFlow ops only, no XLA, warm-up requests.
"""

import dataclasses
import sys

from gpt1_keras.cli import UsageError, note, option, program
from gpt1_keras.files import check_writable, leftovers
from gpt1_keras.labelled_files import columns_option, parse_columns
from gpt1_keras.presets import PRESET_HELP, PRESET_NAMES
from serving.export.export_options import (
    GROUP,
    INTEGRATED_GRADIENTS,
    LEAVE_ONE_OUT,
    METHODS,
    POOLINGS,
    Batching,
    Embedding,
    Explanation,
)


@dataclasses.dataclass(frozen=True)
class _ExportOptions:
    model: str = option(PRESET_HELP, name=PRESET_NAMES)
    output: str = option("base directory; versions go inside")
    dtype: str | None = option("to compute in", None, choices=["float32", "bfloat16"])
    int8: bool = option(
        "multiply the backbone's matrices in 8 bits: faster, and a quarter of the size; for Linux "
        "on x86-64",
        False,
    )
    int8_storage: bool = option(
        "only store matrices in 8 bits: a quarter of the size, and runs everywhere", False
    )
    calibration: str | None = option(
        "a table of texts like those that will be asked, on which --int8 measures the ranges of "
        "activations (default: those of --validation, or made-up ones)",
        None,
        metavar="FILE",
    )
    validation: str | None = option(
        "a table of labelled examples, as gpt1 finetune takes, on which to measure what options "
        "cost",
        None,
        metavar="FILE",
    )
    columns: str | None = columns_option()
    embed: str | None = option(
        "add the signature `embed`, which returns a text's hidden states: their mean, that of the "
        "last token, or those of all tokens",
        None,
        choices=POOLINGS,
    )
    embed_normalize: bool = option("scale the vectors of --embed to length 1", False)
    explain: str | None = option(
        "add the signature `explain`, which says how much each word has to do with the answer",
        None,
        choices=METHODS,
    )
    explain_steps: int = option(
        "points at which integrated-gradients computes gradients", Explanation.steps
    )
    explain_max_words: int = option(
        "the most words of an example that leave-one-out explains", Explanation.max_words
    )
    batching: bool = option(
        "answer the requests of many clients together, whatever their lengths and options",
        False,
        group=GROUP,
    )

    def __post_init__(self) -> None:
        if self.embed_normalize and self.embed is None:
            raise ValueError("embed_normalize scales the vectors of --embed, which is missing.")


@program("serving.export")
def main(options: _ExportOptions, batching: Batching) -> None:
    """Export a model as the next version of a SavedModel for TF Serving."""
    _check_used(options, batching)
    from gpt1_keras.presets import load_task
    from serving.export.exporter import export

    check_writable(options.output)
    for path in leftovers(options.output):
        note(f"{path} is an export that is being written, or was killed; if it was, remove it.")
    path = export(
        load_task(options.model),
        options.output,
        batching=options.batching and batching,
        explain=Explanation(options.explain, options.explain_steps, options.explain_max_words)
        if options.explain
        else None,
        dtype=options.dtype,
        int8=options.int8,
        int8_storage=options.int8_storage,
        calibration=options.calibration,
        validation=options.validation,
        columns=parse_columns(options.columns),
        embed=Embedding(options.embed, options.embed_normalize) if options.embed else None,
    )
    print(path)


def _check_used(options: _ExportOptions, batching: Batching) -> None:
    if not options.batching and batching != Batching():
        raise UsageError("expected --batching beside the options of batching inside the graph")
    for name, method in (
        ("explain_steps", INTEGRATED_GRADIENTS),
        ("explain_max_words", LEAVE_ONE_OUT),
    ):
        is_default = getattr(options, name) == getattr(_ExportOptions, name)
        if options.explain != method and not is_default:
            raise UsageError(f"expected --explain {method} beside --{name.replace('_', '-')}")


if __name__ == "__main__":
    sys.exit(main())
