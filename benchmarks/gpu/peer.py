"""Times the step of `benchmarks.gpu.step` with Hugging Face's models on torch.

    python -m benchmarks.gpu.peer

They are GPT-1, whose attention is of single products, and GPT-2, which has as many weights and
torch's fused attention; both as `Trainer` runs them with `bf16=True`: in autocast, by fused AdamW,
with clipping, and not compiled. Random ids, with dropout; the fastest of three rounds of `--steps`
updates.
"""

import argparse
import time

import torch
import transformers

from benchmarks.harness.measured_models import SIZES
from benchmarks.peers.hugging_face import model_config, pretraining_optimizer, update

_SIZE = SIZES["paper"]
_ROUNDS = 3


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.peer", description=__doc__)
    parser.add_argument("--batch-size", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--length", type=int, default=512, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=10, help="default: %(default)s")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = options.batch_size, options.length
    ids = torch.randint(0, _SIZE["vocabulary_size"], shape, device=device)
    gpt2 = transformers.GPT2Config(
        vocab_size=_SIZE["vocabulary_size"],
        n_positions=_SIZE["max_sequence_length"],
        attn_implementation="sdpa",
    )
    for name, model in (
        ("GPT-1", transformers.OpenAIGPTLMHeadModel(model_config(_SIZE))),
        ("GPT-2, fused attention", transformers.GPT2LMHeadModel(gpt2)),
    ):
        seconds = _seconds_a_step(model.to(device).train(), ids, options.steps)
        print(f"Hugging Face's {name}, {shape[0]} x {shape[1]}: {1e3 * seconds:.1f} ms a step")


def _seconds_a_step(model, ids, steps):
    optimizer, seconds = pretraining_optimizer(model), []
    update(model, optimizer, ids, "bfloat16").item()  # warms up
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        for _ in range(steps):
            loss = update(model, optimizer, ids, "bfloat16")
        loss.item()  # waits for the device
        seconds.append((time.perf_counter() - started) / steps)
    return min(seconds)


if __name__ == "__main__":
    main()
