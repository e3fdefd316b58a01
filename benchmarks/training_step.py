"""The pre-training step beside Hugging Face's, KerasHub's and a plain one, in one run.

    python -m benchmarks.training_step --output FILE.md

Ours and one competitor at a time train in processes of their own, a step each in turns, and between
the steps the frameworks' fastest matrix products are measured. So where the machine's speed
changes, as that of shared machines does, it changes for all. The medians of the steps after a
warm-up are given, and of the ratios of neighbouring steps. The machine must be idle: a busy core
slows torch's threads, which wait for each other, out of all proportion.
"""

import argparse
import contextlib
import dataclasses
import shlex
import statistics
import sys

from benchmarks.common.precisions import measured_here
from benchmarks.common.setting import SIZES, describe, table, train_by_onednn, why_not
from benchmarks.common.turns import Worker
from benchmarks.matrix_product import FRAMEWORKS
from benchmarks.peers.training_step import COMPETITORS
from training.evaluation.throughput import flops_per_token

# The first step traces and compiles, the second fills caches and arenas.
_WARMUP_STEPS = 2
# What each of ours is compared with. The plain one's memory counts too, so it is in the same mode.
_RIVALS = {
    "ours_graph": ("plain_graph", "hugging_face", "keras_hub_graph", "keras_hub_xla"),
    "ours_xla": ("plain_xla", "hugging_face", "keras_hub_graph", "keras_hub_xla"),
    "ours_graph_bfloat16": (
        "hugging_face_bfloat16",
        "keras_hub_graph_bfloat16",
        "keras_hub_xla_bfloat16",
    ),
}


@dataclasses.dataclass(frozen=True)
class Duel:
    """Ours and a rival on one shape of batch.

    Attributes:
        batch, length: ints.
        names: of ours and of the rival.
        seconds: of their steps, two lists.
        products: GFLOP/s of the fastest matrix product next to each of these steps, a list.
        summaries: of both, dicts of bytes.
    """

    batch: int
    length: int
    names: tuple
    seconds: tuple
    products: list
    summaries: tuple

    def speedup(self):
        """How many times as fast ours is."""
        ours, rival = self.seconds
        return statistics.median(b / a for a, b in zip(ours, rival))

    def shares(self, config):
        """The share of the matrix product that each reaches, two floats."""
        flops = self.batch * self.length * flops_per_token(config, self.length)
        return tuple(
            statistics.median(1e-9 * flops / s / p for s, p in zip(seconds, self.products))
            for seconds in self.seconds
        )


def main():
    options = _parse_options()
    train_by_onednn()
    names, left_out = measured_here(options.only, lambda name: why_not(COMPETITORS[name].dtype))
    duels, failed = [], []
    for batch, length in options.batches:
        for ours in (name for name in _RIVALS if name in names):
            for rival in (name for name in _RIVALS[ours] if name in names):
                heading = f"{batch} x {length}, {ours} beside {rival}"
                try:
                    duels.append(_fight(batch, length, (ours, rival), options))
                except RuntimeError as error:  # a long run goes on without it
                    failed.append(f"{heading}: {error}")
                    print(failed[-1], file=sys.stderr, flush=True)
                else:
                    line = f"{heading}: {_line(duels[-1], options)}"
                    print(line, file=sys.stderr, flush=True)
    report = "\n".join([_report(duels, options), *([""] if left_out else []), *left_out])
    print(report)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(report + "\n")
    if failed:
        raise SystemExit("\n".join(failed))


def _parse_options():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training_step",
        description="The pre-training step beside its peers: speed and memory.",
    )
    parser.add_argument(
        "--only", type=_names, default=list(COMPETITORS), help=f"of {', '.join(COMPETITORS)}"
    )
    parser.add_argument(
        "--batches", type=_batches, default="8x128,4x512", help="default: 8x128,4x512"
    )
    parser.add_argument("--steps", type=int, default=5, help="steps that count (default: 5)")
    parser.add_argument("--size", choices=SIZES, default="paper", help="default: paper")
    parser.add_argument("--output", help="a Markdown file to write")
    return parser.parse_args()


def _names(text):
    names = text.split(",")
    for name in names:
        if name not in COMPETITORS:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(COMPETITORS)}")
    return names


def _batches(text):
    return [tuple(map(int, shape.split("x"))) for shape in text.split(",")]


def _fight(batch, length, names, options):
    """Trains ours and a rival in turns."""
    turns = _WARMUP_STEPS + options.steps
    shape = ["--size", options.size, "--batch", batch, "--length", length, "--steps", turns]
    product = ["--size", options.size, "--dtype", COMPETITORS[names[0]].dtype, "--turns", turns]
    with contextlib.ExitStack() as stack:

        def start(module, name, arguments):
            worker = Worker(module, name, *arguments)
            stack.callback(worker.stop)
            return worker

        products = [start("matrix_product", name, product) for name in FRAMEWORKS]
        trainers = [start("peers.training_step", name, shape) for name in names]
        best, seconds = [], ([], [])
        for _ in range(turns):
            best.append(max(worker.turn()["gigaflops"] for worker in products))
            for worker, taken in zip(trainers, seconds):
                taken.append(worker.turn()["seconds"])
        summaries = tuple(worker.summary() for worker in trainers)
    seconds = tuple(taken[_WARMUP_STEPS:] for taken in seconds)
    return Duel(batch, length, names, seconds, best[_WARMUP_STEPS:], summaries)


def _line(duel, options):
    steps = [f"{statistics.median(seconds):.3g} s" for seconds in duel.seconds]
    shares = [f"{share:.0%}" for share in duel.shares(SIZES[options.size])]
    memory = [f"{summary['peak_memory'] / 1e9:.2f} GB" for summary in duel.summaries]
    return (
        f"{' and '.join(steps)} a step, {' and '.join(shares)} of the product, "
        f"{' and '.join(memory)}; {duel.speedup():.2f} times as fast"
    )


def _report(duels, options):
    command = shlex.join(["python", "-m", "benchmarks.training_step", *sys.argv[1:]])
    size = SIZES[options.size]
    heading = (
        f"{describe()}. {size['num_layers']} layers, width {size['hidden_dim']}, "
        f"{size['num_heads']} heads, {size['vocabulary_size']:,} tokens; medians of "
        f"{options.steps} steps after {_WARMUP_STEPS}. `{command}`"
    )
    return "\n\n".join([heading, _speed_table(duels, size), _ratio_table(duels), _NOTES])


def _speed_table(duels, size):
    """A row for each competitor, of all its duels."""
    found = {}
    for duel in duels:
        for name, seconds, share, summary in zip(
            duel.names, duel.seconds, duel.shares(size), duel.summaries
        ):
            key = (duel.batch, duel.length, name)
            found.setdefault(key, []).append((statistics.median(seconds), share, summary))
    rows = []
    for (batch, length, name), results in found.items():
        seconds, shares, summaries = zip(*results)
        memory = statistics.median(summary["peak_memory"] for summary in summaries)
        rows.append(
            [
                f"{batch} x {length}",
                COMPETITORS[name].dtype,
                COMPETITORS[name].label,
                f"{statistics.median(seconds):.3g}",
                f"{batch * length / statistics.median(seconds):,.0f}",
                f"{statistics.median(shares):.0%}",
                f"{memory / 1e9:.2f}",
            ]
        )
    header = ["batch", "dtype", "what", "s/step", "tokens/s", "of product", "peak GB"]
    return table(header, rows, labels=3)


def _ratio_table(duels):
    rows = []
    for duel in duels:
        ours, rival = duel.summaries
        rows.append(
            [
                f"{duel.batch} x {duel.length}",
                COMPETITORS[duel.names[0]].dtype,
                " / ".join(COMPETITORS[name].label for name in duel.names),
                f"{duel.speedup():.2f}",
                f"{ours['peak_memory'] / rival['peak_memory']:.0%}",
                f"{_own_memory(ours) / _own_memory(rival):.0%}",
                f"{max(duel.products):.0f}",
            ]
        )
    header = ["batch", "dtype", "ours / the other", "speed", "peak memory", "less imports"]
    return table([*header, "best product, GFLOP/s"], rows, labels=3)


def _own_memory(summary):
    return summary["peak_memory"] - summary["import_memory"]


_NOTES = """\
- "of product" is the share of the fastest matrix product of that dtype, of either framework,
  measured next to each step. It counts the model's FLOPs: per token 6 (weights of the blocks'
  matrices + vocabulary x width) + 12 layers x width x length. The last term is attention's two
  products, without credit for the half that causality makes needless. Recomputation to save
  memory does not count.
- "speed" is the median ratio of neighbouring steps. Peak memory is the largest resident
  memory of the process, which does nothing else; "less imports" subtracts what it was after the
  imports.
- All train with dropout 0.1, AdamW (ours: the paper's Adam), gradients clipped to norm 1, on random
  ids, and without metrics. Hugging Face's is eager torch with the fused AdamW; its bfloat16 is
  autocast's, the others' is `mixed_bfloat16`. On a CPU, graph is Keras's default.
- KerasHub's is GPT-2 of the same size. "plain" is `benchmarks/peers/plain_gpt1.py`, the same
  decoder of stock Keras layers, in the same mode as ours."""


if __name__ == "__main__":
    main()
