"""Measures how a language model uses its context.

    python -m training.paper.context_use --preset gpt1_tiny_books --corpus DIR --output DIR
    python -m training.paper.context_use --preset gpt1_tiny_books --text FILE --output DIR

DIR/context_use.json has the loss by position in the context, and the loss of a passage where it is
read first and where it follows itself; DIR/context_use.svg plots both. Of a model that uses its
context, both fall: a passage that is copied costs nats less. `training.pretrain` measures the same
at each validation.
"""

import dataclasses
import json
import os
import pathlib
import sys
from typing import Any

from gpt1_keras import GPT1CausalLM
from gpt1_keras.cli import check_at_least_one, option, program
from gpt1_keras.files import atomic_path, check_writable
from gpt1_keras.presets import PRESET_HELP, load_task
from training.corpus.corpus_format import Corpus
from training.corpus.shards import encode_documents
from training.evaluation.context_plots import plot_measurement
from training.evaluation.context_use import ContextUse, spread_windows
from training.evaluation.language_models import load_for_corpus
from training.evaluation.plots import save


@dataclasses.dataclass(frozen=True)
class _Options:
    preset: str = option(PRESET_HELP)
    output: str = option("folder for context_use.json and context_use.svg")
    corpus: str | None = option("folder that training.corpus wrote; or else", None)
    text: str | None = option("a text file, UTF-8", None, metavar="FILE")
    split: str = option("of the corpus", "validation")
    windows: int = option("how many, at most, spread over the text", 512)

    def __post_init__(self) -> None:
        if (self.corpus is None) == (self.text is None):
            raise ValueError("Give either --corpus or --text.")
        check_at_least_one(self, "windows")


def context_use(
    preset: str | os.PathLike[str],
    output: str | os.PathLike[str],
    corpus: str | os.PathLike[str] | None = None,
    text: str | os.PathLike[str] | None = None,
    split: str = "validation",
    windows: int = 512,
) -> dict[str, Any]:
    """Measures a preset, and writes the result and its plot.

    Args:
        preset: a name, a folder or a handle, as of `gpt1_keras.presets.find_preset`.
        output: path of the folder to write to.
        corpus: path of a corpus that was made with the preset's tokenizer.
        text: path of a text file instead.
        split: of the corpus.
        windows: how many windows of the model's context, at most.

    Returns:
        The content of `context_use.json`: what `ContextUse.measure` returns, with the preset and
        what it was measured on.

    Raises:
        FileNotFoundError: the preset, the corpus or the text does not exist.
        ValueError: the corpus was made with another tokenizer or has no such split; or the text is
            shorter than a window.
        OSError: nothing can be written to `output`.
    """
    folder = pathlib.Path(output)
    check_writable(folder)
    if corpus is not None:
        data = Corpus(corpus)
        shards, source = data.split(split).shards, f"{split} of {corpus}"
        lm = load_for_corpus(preset, data)
    else:
        assert text is not None  # where there is no corpus; see `_Options`
        with open(text, "rb") as lines:
            lm, source = load_task(preset, GPT1CausalLM), str(text)
            shards = (encode_documents([lines], lm.preprocessor.tokenizer)[0],)
        lm.preprocessor = None
        lm.compile()
    length = lm.backbone.max_sequence_length
    found = spread_windows(shards, length, windows)
    if not len(found):
        longest = max((len(shard) for shard in shards), default=0)
        raise ValueError(
            f"A window of the context of {preset} takes {length + 1} tokens, and the longest text "
            f"in {source} has {longest}."
        )
    result = {"preset": str(preset), "source": source, **ContextUse(lm, found).measure()}
    with atomic_path(folder / "context_use.json") as temporary:
        pathlib.Path(temporary).write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")
    save(plot_measurement(result, str(preset)), folder / "context_use.svg")
    return result


@program("training.paper.context_use")
def main(options: _Options) -> None:
    """Measure how a language model uses its context."""
    result = context_use(**vars(options))
    for each in result["loss_by_position"]:
        print(f"Positions {each['from']} to {each['to'] - 1}: loss {each['loss']:.3f}")
    passage = result["repeated_passage"]
    print(
        f"A passage of {passage['tokens']} tokens: loss {passage['first']:.3f}, and "
        f"{passage['second']:.3f} where it follows itself: a gap of {passage['gap']:.3f} nats"
    )


if __name__ == "__main__":
    sys.exit(main())
