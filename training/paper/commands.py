"""The commands that rebuild the paper's tables and figures, `gpt1 paper NAME`, and their options.

    gpt1 paper ablate --tasks sst2,cola --preset NAME --data-dir DIR --output DIR
    gpt1 paper report --runs DIR --output DIR
    gpt1 paper learning_curve --tasks sst2 --preset NAME --data-dir DIR --output DIR
    gpt1 paper zero_shot --preset gpt1_tiny_books --data-dir DIR --output DIR
    gpt1 paper context_use --preset gpt1_tiny_books --corpus DIR --output DIR
    gpt1 paper ngrams --corpus DIR --output FILE.json
    gpt1 paper plot_pretraining --run DIR --ngrams FILE.json --output FILE.svg

Those that take long go on after an interruption with the same command.
"""

import dataclasses
import pathlib
import time

from gpt1_keras.cli import Commands, check_at_least_one, option, program
from gpt1_keras.presets import PRESET_HELP, PRESET_NAMES
from training.datasets.data_options import DataOptions
from training.paper.grid_options import AblationOptions, CurveOptions, GridOptions
from training.paper.probes import PROBES, find_probe
from training.runs import newest_saved


@program("training.paper ablate", resumable=newest_saved)
def ablate(shared: GridOptions, options: AblationOptions, data: DataOptions) -> None:
    """Run the paper's ablations: its table 5, and the left of its figure 2.

    It fine-tunes on each data set, with each seed, in each variant: in full, without the auxiliary
    loss and without pre-training; with `--lstm`, from an LSTM; with `--layers`, from the embeddings
    and the first 0, 1, ... blocks, with fresh weights in the other blocks. Each run is a folder of
    runs/, as `gpt1 finetune` writes it; baselines/ has the trivial baselines on the same examples.
    The output gets the tables and evidence of `gpt1 paper report`, and with `--layers`
    transfer.svg.
    """
    from training.paper.ablate import ablate, ablation_grid

    print(ablate(ablation_grid(shared, options), shared.output, data))


@dataclasses.dataclass(frozen=True)
class _ReportOptions:
    runs: tuple[str, ...] = option("folders with results, also in subfolders", consume_multiple=1)
    output: str = option("folder for tables.md, the plots and the evidence")


@program("training.paper report")
def report(options: _ReportOptions) -> None:
    """Put fine-tuned results into the paper's tables 2 to 5, beside the published ones.

    It gathers every result.json of `gpt1 finetune`, and of baselines, below `--runs`. Our results
    are medians and ranges over seeds, on validation splits; published results, also those of
    others' small models, are on test splits. As evidence, the output gets scores.csv, with the
    scores of all runs, and predictions/TASK.csv, with the predictions of one seed, from which its
    scores can be computed again.
    """
    from training.paper.report import report

    print(report(options.runs, options.output))


@program("training.paper learning_curve", resumable=newest_saved)
def learning_curve(shared: GridOptions, options: CurveOptions, data: DataOptions) -> None:
    """Fine-tune on more and more labels, with and without pre-training, and plot the scores.

    The output gets learning_curve.svg and learning_curve.md, with medians and ranges, and the
    evidence that `gpt1 paper report` writes. Each run is a folder of runs/, without its preset. The
    same command goes on also with more labels, tasks or seeds.
    """
    from training.paper.learning_curve import curve_grid, learning_curve

    print(learning_curve(curve_grid(shared, options, data), shared.output, data))


@dataclasses.dataclass(frozen=True)
class _ZeroShotOptions:
    output: str = option("folder for result.json, and zero_shot.svg of a run")
    preset: str | None = option(f"{PRESET_HELP}; or give --run", None, name=PRESET_NAMES)
    run: tuple[str, ...] = option(
        "folder of a pre-training with snapshots; before it, those of the runs it went on from", ()
    )
    beside: str | None = option("result.json of another run, to plot dashed", None, metavar="FILE")
    probes: str = option("some of " + ", ".join(PROBES), "cola,sst2,race_middle,dprd")
    limit: int | None = option("use this many examples of each probe (default: all)", None)

    def __post_init__(self) -> None:
        if (self.preset is None) != bool(self.run):
            raise ValueError("Give either --preset or --run.")
        check_at_least_one(self, "limit")
        for name in self.probes.split(","):
            find_probe(name)


@program("training.paper zero_shot", resumable=newest_saved)
def zero_shot(options: _ZeroShotOptions, data: DataOptions) -> None:
    """Test what a language model knows without fine-tuning (section 5 of the paper).

    Each probe asks which text the model finds likelier. result.json has the scores, also on a scale
    from guessing (0) to the best single model before the paper (1). With `--run`, all snapshots of
    a finished pre-training are scored (`gpt1 pretrain --snapshot-every N`), and zero_shot.svg plots
    the scaled scores against passes over the corpus, as the paper's figure 2 does against updates.
    """
    from training.paper.zero_shot import plot_series, read_beside, zero_shot, zero_shot_series

    names, output = options.probes.split(","), pathlib.Path(options.output)
    arguments = names, output / "result.json", data, options.limit
    if options.run:
        beside = [] if options.beside is None else [read_beside(options.beside, names)]
        series = zero_shot_series(options.run, *arguments)
        plot_series([series, *beside], output / "zero_shot.svg")
        return
    assert options.preset is not None  # where there is no run; see `_ZeroShotOptions`
    scores = zero_shot(options.preset, *arguments)
    for name, found in scores.items():
        print(f"{name}: {found['score']:.4f}, relative {found['relative']:.3f}")


@dataclasses.dataclass(frozen=True)
class _ContextUseOptions:
    preset: str = option(PRESET_HELP, name=PRESET_NAMES)
    output: str = option("folder for context_use.json and context_use.svg")
    corpus: str | None = option("folder that gpt1 corpus wrote; or give --text", None)
    text: str | None = option("a text file, UTF-8", None, metavar="FILE")
    split: str = option("split of the corpus to measure on", "validation")
    windows: int = option("how many, at most, spread over the text", 512)

    def __post_init__(self) -> None:
        if (self.corpus is None) == (self.text is None):
            raise ValueError("Give either --corpus or --text.")
        check_at_least_one(self, "windows")


@program("training.paper context_use")
def context_use(options: _ContextUseOptions) -> None:
    """Measure how a language model uses its context.

    context_use.json has the loss by position in the context, and the loss of a passage when it is
    read first and when it follows itself; context_use.svg plots both. If a model uses its context,
    the loss falls with the position, and is lower for a passage that it can copy. `gpt1 pretrain`
    measures the same at each checkpoint.
    """
    from training.evaluation.context_use import measure_context_use

    result = measure_context_use(**vars(options))
    for each in result["loss_by_position"]:
        print(f"Positions {each['from']} to {each['to'] - 1}: loss {each['loss']:.3f}")
    passage = result["repeated_passage"]
    print(
        f"A passage of {passage['tokens']} tokens: loss {passage['first']:.3f}, and "
        f"{passage['second']:.3f} where it follows itself: a gap of {passage['gap']:.3f} nats"
    )


@dataclasses.dataclass(frozen=True)
class _NgramOptions:
    corpus: str = option("folder that gpt1 corpus wrote")
    output: str | None = option(
        "JSON file for the scores, as gpt1 paper plot_pretraining takes it", None
    )
    tokens: int | None = option("score only this many, from the first (default: all)", None)


@program("training.paper ngrams")
def ngrams(options: _NgramOptions) -> None:
    """Score a corpus's validation split by a unigram and a trigram model.

    It counts the train split, and scores every token of the validation split except the first of
    each shard, exactly those that `training.corpus.windows.SequentialWindows` predicts; with
    `--tokens`, only the first of them, to match a run with `--validation-batches`. The unigram
    model is smoothed by adding one; the trigram model, by interpolated modified Kneser-Ney (Chen &
    Goodman 1998), the best known smoothing of counts. No n-gram crosses shards. It takes about 50
    bytes of memory per token.
    """
    from gpt1_keras.files import write_json
    from training.corpus.corpus_format import Corpus
    from training.evaluation.ngram_models import score_corpus

    started = time.monotonic()
    scores = score_corpus(Corpus(options.corpus), options.tokens)
    if options.output:
        write_json(options.output, scores)
    print(f"Unigram, add-one: validation perplexity {scores['unigram_perplexity']:.2f}")
    print(f"Trigram, Kneser-Ney: validation perplexity {scores['trigram_perplexity']:.2f}")
    print(f"Counted and scored in {time.monotonic() - started:.1f} s")


@dataclasses.dataclass(frozen=True)
class _PlotOptions:
    run: str = option("folder of a run of gpt1 pretrain, finished or still running")
    output: str = option("the plot: FILE.svg or FILE.png")
    ngrams: str | None = option("scores of gpt1 paper ngrams, to plot as lines", None)


@program("training.paper plot_pretraining")
def plot_pretraining(options: _PlotOptions) -> None:
    """Plot the perplexity of a pre-training run against its updates."""
    from training.paper.perplexity_plot import plot_pretraining

    plot_pretraining(**vars(options))


main = Commands(
    "training.paper",
    *(ablate, report, learning_curve, zero_shot),
    *(context_use, ngrams, plot_pretraining),
)
