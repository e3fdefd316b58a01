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

from benchmarks.harness.matrix_product import fastest_of, product_workers
from benchmarks.harness.measured_models import SIZES
from benchmarks.harness.program import Program, table
from benchmarks.harness.turns import REST, Worker, alternate, speedup
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
PEERS = {
    **{
        f"{module}-{precision}-{mode}": Peer(f"{label}, {mode}", module, precision, mode)
        for label, module, precision in _KERAS
        for mode in ("graph", "XLA")
    },
    "hugging_face-float32": Peer("Hugging Face", "hugging_face", "float32"),
    "hugging_face-bfloat16": Peer("Hugging Face", "hugging_face", "bfloat16"),
}


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
    rows = []
    for shape in options.batches:
        for pair in _pairs([PEERS[name] for name in names], options.before):
            rows += _rows(shape, pair, *_train(shape, pair, options), SIZES[options.size])
    header = ["batch", "dtype", "what", "s/step", "tokens/s", "of product", "GFLOP/s", "peak GB"]
    facts = f"Size {options.size!r}; medians of {options.steps} steps after {_WARMUP_STEPS}."
    program.report(facts, table([*header, "speed"], rows, labels=3), _NOTES, left_out)


def _batch(text):
    try:
        batch, length = map(int, text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not like 8x128") from None
    return batch, length


def _pairs(peers, before):
    for ours in (peer for peer in peers if peer.module == "ours"):
        if before:
            yield ours, dataclasses.replace(ours, label=f"{_BEFORE}, {ours.mode}")
        for other in peers:
            if other.module != "ours" and other.precision == ours.precision:
                yield ours, other


def _train(shape, pair, options):
    """Trains ours and another in turns.

    Returns:
        `(seconds, products, memory)`: lists of the seconds of their steps, the GFLOP/s of the
        fastest product beside each step, and the peaks of their memory in bytes.
    """
    batch, length = shape
    rounds = _WARMUP_STEPS + options.steps
    setting = {"size": options.size, "batch": batch, "length": length, "steps": rounds}
    with contextlib.ExitStack() as stack:
        workers = product_workers(stack, pair[0].precision, options.size, rounds)
        for peer in pair:
            checkout = options.before if peer.label.startswith(_BEFORE) else None
            setting |= {"precision": peer.precision, "mode": peer.mode}
            worker = Worker(f"peers.{peer.module}:train", checkout=checkout, **setting)
            workers[peer] = stack.enter_context(worker)
        turns = {name: worker.turn for name, worker in workers.items()}
        found = alternate(turns, options.steps, warmup=_WARMUP_STEPS, rest=REST)
        memory = [workers[peer].summary()["peak_memory"] for peer in pair]
    seconds = [[facts["seconds"] for facts in found[peer]] for peer in pair]
    return seconds, fastest_of(found), memory


def _rows(shape, pair, seconds, products, memory, size):
    """Returns the rows of ours and another; the other's has how many times as fast ours is."""
    from training.evaluation.throughput import flops_per_token

    batch, length = shape
    gigaflops = 1e-9 * batch * length * flops_per_token(size, length)
    speeds = ["", f"{speedup(*seconds):.2f}"]
    rows = []
    for peer, taken, peak, speed in zip(pair, seconds, memory, speeds, strict=True):
        median = statistics.median(taken)
        share = statistics.median(gigaflops / s / p for s, p in zip(taken, products, strict=True))
        cells = [f"{median:.3g}", f"{batch * length / median:,.0f}", f"{share:.0%}"]
        cells += [f"{statistics.median(products):.0f}", f"{peak / 1e9:.2f}", speed]
        rows.append([f"{batch} x {length}", peer.precision, peer.label, *cells])
    return rows


_NOTES = """\
- "of product" is the share of the fastest matrix product of that dtype, of either framework,
  measured next to each step. It counts the model's FLOPs: per token 6 (weights of the blocks'
  matrices + vocabulary x width) + 12 layers x width x length, without credit for the half of
  attention that causality makes needless.
- "speed" is how many times as fast as the one in its row ours is, in the row before.
- All train with dropout 0.1, AdamW (ours: the paper's Adam), gradients clipped to norm 1, on random
  ids, without metrics. Hugging Face's is eager torch with the fused AdamW; its bfloat16 is
  autocast's, the others' is `mixed_bfloat16`. KerasHub's is GPT-2 of the same size."""


if __name__ == "__main__":
    sys.exit(exit_status(main))
