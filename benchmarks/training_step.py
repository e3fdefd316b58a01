"""The time of a pre-training step beside Hugging Face's and KerasHub's.

    python -m benchmarks.training_step
    python -m benchmarks.training_step --before DIR    # and beside another commit's

Ours and one peer at a time train in two processes, which take single steps in turns; before each
pair of steps, the frameworks' fastest matrix products are measured. So a change in the machine's
speed, as on shared machines, affects all of them. Figures are medians over the steps after a
warm-up, and medians of the ratios of neighbouring steps. The machine must be idle: torch's threads
wait for each other, so one busy core slows all of them.
"""

import argparse
import contextlib
import dataclasses
import os
import statistics
import sys

from benchmarks.harness.alternate import REST, alternate, speedup
from benchmarks.harness.matrix_product import fastest_of, product_workers
from benchmarks.harness.measured_models import SIZES
from benchmarks.harness.program import Program, table
from benchmarks.harness.worker import Worker
from benchmarks.peers import Peer, add_peers, measured_here
from gpt1_keras.cli import exit_status

# The first step traces and compiles, the second fills caches and arenas.
_WARMUP_STEPS = 2
_KERAS = [  # label, module and precision
    ("gpt1_keras", "ours", "float32"),
    ("KerasHub GPT-2", "keras_hub", "float32"),
    ("gpt1_keras", "ours", "bfloat16"),
    ("KerasHub GPT-2", "keras_hub", "bfloat16"),
]
_BEFORE = "gpt1_keras before"
_TORCH = ("torch", "transformers")
PEERS = {
    **{
        f"{module}-{precision}-{mode}": Peer(f"{label}, {mode}", module, precision, (), mode)
        for label, module, precision in _KERAS
        for mode in ("graph", "XLA")
    },
    "hugging_face-float32": Peer("Hugging Face", "hugging_face", "float32", _TORCH),
    "hugging_face-bfloat16": Peer("Hugging Face", "hugging_face", "bfloat16", _TORCH),
}


@dataclasses.dataclass(frozen=True)
class Pair:
    """The measurements of ours and a peer with one shape of batch.

    Attributes:
        batch, length: ints.
        peers: ours and the other.
        seconds: two lists, of the seconds of their steps.
        products: list of the fastest matrix product's GFLOP/s beside each of these steps.
        memory: two dicts of bytes.
    """

    batch: int
    length: int
    peers: tuple
    seconds: tuple
    products: list
    memory: tuple

    def speedup(self):
        """Returns how many times as fast ours is."""
        return speedup(*self.seconds)

    def shares(self, config):
        """Returns the share of the fastest product's speed that each reaches, two floats."""
        from training.evaluation.throughput import flops_per_token

        flops = self.batch * self.length * flops_per_token(config, self.length)
        return tuple(
            statistics.median(1e-9 * flops / s / p for s, p in zip(seconds, self.products))
            for seconds in self.seconds
        )


def main():
    program = Program("training_step", __doc__, "--size")
    # On a CPU, Keras's default is the graph; measuring XLA too would take an hour more.
    add_peers(program, PEERS, [name for name, peer in PEERS.items() if peer.mode != "XLA"])
    program.add("--batches", nargs="+", type=_batch, default=[(8, 128), (4, 512)], metavar="NxM",
                help="batch and length of each (default: 8x128 4x512)")  # fmt: skip
    program.add("--steps", type=int, default=3, help="steps that count (default: %(default)s)")
    program.add("--before", metavar="DIR", help="a checkout of another commit, beside ours")
    options = program.parse()
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as `training`'s programs do
    names, left_out = measured_here(options.only, PEERS)
    pairs, failed = [], []
    for shape in options.batches:
        for ours, other in _pairs([PEERS[name] for name in names], options.before):
            heading = f"{shape[0]} x {shape[1]}, {ours.label} beside {other.label}"
            try:
                pairs.append(_train(shape, (ours, other), options))
            except RuntimeError as error:  # a long run goes on without this pair
                failed.append(f"{heading}: {error}")
                print(failed[-1], file=sys.stderr, flush=True)
            else:
                line = f"{heading}: {pairs[-1].speedup():.2f} times as fast"
                print(line, file=sys.stderr, flush=True)
    size = SIZES[options.size]
    facts = (
        f"{size['num_layers']} layers, width {size['hidden_dim']}, {size['num_heads']} heads, "
        f"{size['vocabulary_size']:,} tokens; medians of {options.steps} steps after "
        f"{_WARMUP_STEPS}."
    )
    program.report(facts, _steps_table(pairs, size), _ratios_table(pairs), _NOTES, left_out)
    if failed:
        raise SystemExit("\n".join(failed))


def _batch(text):
    try:
        batch, length = map(int, text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not like 8x128") from None
    return batch, length


def _pairs(peers, before):
    """Yields each of ours with the peers of its precision."""
    for ours in (peer for peer in peers if peer.module == "ours"):
        if before:
            yield ours, dataclasses.replace(ours, label=f"{_BEFORE}, {ours.mode}")
        for other in peers:
            if other.module != "ours" and other.precision == ours.precision:
                yield ours, other


def _train(shape, peers, options):
    """Trains ours and another alternately; returns a `Pair`."""
    batch, length = shape
    rounds = _WARMUP_STEPS + options.steps
    setting = {"size": options.size, "batch": batch, "length": length, "steps": rounds}
    with contextlib.ExitStack() as stack:
        workers = product_workers(stack, peers[0].precision, options.size, rounds)
        for peer in peers:
            checkout = options.before if peer.label.startswith(_BEFORE) else None
            worker = Worker(
                f"peers.{peer.module}:train",
                checkout=checkout,
                precision=peer.precision,
                mode=peer.mode,
                **setting,
            )
            workers[peer] = stack.enter_context(worker)
        turns = {name: worker.turn for name, worker in workers.items()}
        found = alternate(turns, options.steps, warmup=_WARMUP_STEPS, rest=REST)
        memory = tuple(workers[peer].summary() for peer in peers)
    seconds = tuple([facts["seconds"] for facts in found[peer]] for peer in peers)
    return Pair(batch, length, peers, seconds, fastest_of(found), memory)


def _steps_table(pairs, size):
    """Returns the table with a row for each peer, over all its pairs."""
    found = {}
    for pair in pairs:
        figures = zip(pair.peers, pair.seconds, pair.shares(size), pair.memory)
        for peer, seconds, share, memory in figures:
            key = (pair.batch, pair.length, peer)
            figures = (statistics.median(seconds), share, memory["peak_memory"])
            found.setdefault(key, []).append(figures)
    rows = []
    for (batch, length, peer), figures in found.items():
        seconds, share, memory = map(statistics.median, zip(*figures))
        cells = [f"{seconds:.3g}", f"{batch * length / seconds:,.0f}", f"{share:.0%}"]
        cells.append(f"{memory / 1e9:.2f}")
        rows.append([f"{batch} x {length}", peer.precision, peer.label, *cells])
    header = ["batch", "dtype", "what", "s/step", "tokens/s", "of product", "peak GB"]
    return table(header, rows, labels=3)


def _ratios_table(pairs):
    rows = []
    for pair in pairs:
        peaks, own = zip(*(
            (each["peak_memory"], each["peak_memory"] - each["import_memory"])
            for each in pair.memory
        ))  # fmt: skip
        cells = [f"{pair.speedup():.2f}", f"{peaks[0] / peaks[1]:.0%}", f"{own[0] / own[1]:.0%}"]
        cells.append(f"{max(pair.products):.0f}")
        labels = " / ".join(peer.label for peer in pair.peers)
        rows.append([f"{pair.batch} x {pair.length}", pair.peers[0].precision, labels, *cells])
    header = ["batch", "dtype", "ours / the other", "speed", "peak memory", "less imports"]
    return table([*header, "best product, GFLOP/s"], rows, labels=3)


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
- KerasHub's is GPT-2 of the same size."""


if __name__ == "__main__":
    sys.exit(exit_status(main))
