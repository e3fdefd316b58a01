"""How soon a small decoder learns to copy, by how its position embeddings begin.

    python -m benchmarks.copying

Copying is what lets a language model use a name, or a phrase, that it has read before (Olsson et
al. 2022). Here it is all there is to learn: sequences are random tokens that repeat with a period
of their own. What is printed is the loss on the second half of new sequences, where a model that
copies is sure of every token.
"""

import argparse
import shlex
import sys
import time

import keras
import numpy as np

from benchmarks.common.setting import describe, table
from gpt1_keras import GPT1Backbone, GPT1CausalLM
from gpt1_keras.optimization.optimizer import pretraining_optimizer
from training.evaluation.context_losses import ContextUse

_LENGTH = 64
_PERIODS = (8, 28)  # tokens, from and below
_BATCH_SIZE = 16
_WARMUP_STEPS = 200
_NEW = 64  # sequences to score
_DECODER = {"num_layers": 2, "num_heads": 4, "hidden_dim": 64, "intermediate_dim": 256}
_BEGINNINGS = {"N(0, 0.02), the paper's": 1.0, "zeros": 0.0}  # what they are multiplied by


def main():
    options = _parser().parse_args()
    rates = [float(rate) for rate in options.learning_rates.split(",")]
    rows = []
    for rate in rates:
        for name, scale in _BEGINNINGS.items():
            started = time.monotonic()
            losses = list(learn(scale, rate, options))
            print(f"{name}, {rate:g}: {time.monotonic() - started:.0f} s", file=sys.stderr)
            rows.append([f"{rate:g}", name, *(f"{loss:.2f}" for loss in losses)])
    updates = range(options.every, options.steps + 1, options.every)
    command = shlex.join(["python", "-m", "benchmarks.copying", *sys.argv[1:]])
    header = ["rate", "positions begin as", *(f"{count:,} updates" for count in updates)]
    print(
        f"{describe()}. `{command}`\n\nLoss of a token that could be copied, of "
        f"{options.vocabulary} (guessing: {np.log(options.vocabulary):.2f}):\n\n"
        f"{table(header, rows, labels=2)}"
    )


def learn(positions_scale, rate, options):
    """Trains a decoder from its first weights on; yields its loss every so many updates."""
    keras.utils.set_random_seed(options.seed)
    backbone = GPT1Backbone(
        options.vocabulary, max_sequence_length=_LENGTH, dropout=0.0, **_DECODER
    )
    positions = backbone.get_layer("embedding").positions.embeddings
    positions.assign(positions * positions_scale)
    model = GPT1CausalLM(backbone)
    # At a constant rate after the warm-up: the decay is never reached.
    optimizer = pretraining_optimizer(rate, 2 * options.steps, _WARMUP_STEPS, 1, clip_norm=1.0)
    model.compile(optimizer, jit_compile=False)
    random = np.random.default_rng(options.seed)
    use = ContextUse(model, _sequences(random, _NEW, options.vocabulary))
    for _ in range(options.steps // options.every):
        tokens = _sequences(random, options.every * _BATCH_SIZE, options.vocabulary)
        model.fit({"token_ids": tokens[:, :-1]}, tokens[:, 1:], batch_size=_BATCH_SIZE, verbose=0)
        second_half = use.measure()["loss_by_position"][-1]
        yield second_half["loss"]


def _sequences(random, count, vocabulary):
    """Sequences of random tokens that repeat, int32 `[count, _LENGTH + 1]`."""
    periods = random.integers(*_PERIODS, count)
    passages = [random.integers(0, vocabulary, period) for period in periods]
    return np.stack([np.resize(passage, _LENGTH + 1) for passage in passages]).astype(np.int32)


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.copying",
        description="How soon a small decoder learns to copy, by how its positions begin.",
    )
    parser.add_argument("--vocabulary", type=int, default=1024, help="tokens")
    parser.add_argument("--learning-rates", default="0.001,0.003", help="separated by commas")
    parser.add_argument("--steps", type=int, default=2000, help="updates of each decoder")
    parser.add_argument("--every", type=int, default=250, help="updates between two scores")
    parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    main()
