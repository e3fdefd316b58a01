"""Measures how a preset uses its context, on a corpus or a text, and writes figures and a plot."""

import os
import pathlib
from typing import Any

from gpt1_keras import GPT1CausalLM
from gpt1_keras.files import check_writable, write_json
from gpt1_keras.presets import load_task
from training.corpus.corpus_format import Corpus
from training.corpus.shards import encode_documents
from training.evaluation.context_losses import ContextUse, spread_windows
from training.evaluation.context_plots import plot_measurement
from training.evaluation.likelihood import load_for_corpus
from training.evaluation.plots import save


def measure_context_use(
    preset: str | os.PathLike[str],
    output: str | os.PathLike[str],
    corpus: str | os.PathLike[str] | None = None,
    text: str | os.PathLike[str] | None = None,
    split: str = "validation",
    windows: int = 512,
) -> dict[str, Any]:
    """Measures a preset, and writes the result and its plot.

    Args:
        corpus: path of a corpus that was made with the preset's tokenizer.

    Returns:
        The content of `context_use.json`: what `ContextUse.measure` returns, with the preset and
        what it was measured on.
    """
    folder = pathlib.Path(output)
    check_writable(folder)
    if corpus is not None:
        data = Corpus(corpus)
        shards, source = data.split(split).shards, f"{split} of {corpus}"
        lm = load_for_corpus(preset, data)
    else:
        assert text is not None  # where there is no corpus
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
    # A model that was not trained with `<start>` does not predict that another text begins.
    known = lm.backbone.vocabulary_size - lm.backbone.num_untrained_tokens
    found = found[(found[:, 1:] < known).all(axis=1)]
    if not len(found):
        raise ValueError(
            f"In each window of {source}, a text begins with `<start>`, which {preset} was not "
            f"trained with. Expected texts of {length + 1} tokens or more."
        )
    result = {"preset": str(preset), "source": source, **ContextUse(lm, found).measure()}
    write_json(folder / "context_use.json", result)
    save(plot_measurement(result, str(preset)), folder / "context_use.svg")
    return result
