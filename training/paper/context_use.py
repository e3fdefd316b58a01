"""Measures how a language model uses its context.

    gpt1 context_use --preset gpt1_tiny_books --corpus DIR --output DIR
    gpt1 context_use --preset gpt1_tiny_books --text FILE --output DIR

DIR/context_use.json has the loss by position in the context, and the loss of a passage when it is
read first and when it follows itself; DIR/context_use.svg plots both. If a model uses its context,
the loss falls with the position, and is lower for a passage that it can copy. `gpt1 pretrain`
measures the same at each checkpoint.
"""

import dataclasses
import sys

from gpt1_keras.cli import check_at_least_one, option, program
from gpt1_keras.presets import PRESET_HELP, PRESET_NAMES


@dataclasses.dataclass(frozen=True)
class _Options:
    preset: str = option(PRESET_HELP, name=PRESET_NAMES)
    output: str = option("folder for context_use.json and context_use.svg")
    corpus: str | None = option("folder that gpt1 corpus wrote; or give --text", None)
    text: str | None = option("a text file, UTF-8", None, metavar="FILE")
    split: str = option("of the corpus", "validation")
    windows: int = option("how many, at most, spread over the text", 512)

    def __post_init__(self) -> None:
        if (self.corpus is None) == (self.text is None):
            raise ValueError("Give either --corpus or --text.")
        check_at_least_one(self, "windows")


@program("training.paper.context_use")
def main(options: _Options) -> None:
    """Measure how a language model uses its context."""
    from training.evaluation.context_report import measure_context_use

    result = measure_context_use(**vars(options))
    for each in result["loss_by_position"]:
        print(f"Positions {each['from']} to {each['to'] - 1}: loss {each['loss']:.3f}")
    passage = result["repeated_passage"]
    print(
        f"A passage of {passage['tokens']} tokens: loss {passage['first']:.3f}, and "
        f"{passage['second']:.3f} where it follows itself: a gap of {passage['gap']:.3f} nats"
    )


if __name__ == "__main__":
    sys.exit(main())
