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

_VOCABULARY_SIZE = 40_481  # the paper's
_ROUNDS = 3


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.peer", description=__doc__)
    parser.add_argument("--batch-size", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--length", type=int, default=512, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=10, help="default: %(default)s")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = options.batch_size, options.length
    for name, model in (
        ("GPT-1", transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig())),
        (
            "GPT-2, fused attention",
            transformers.GPT2LMHeadModel(
                transformers.GPT2Config(
                    vocab_size=_VOCABULARY_SIZE, n_positions=512, attn_implementation="sdpa"
                )
            ),
        ),
    ):
        seconds = _seconds_a_step(model.to(device).train(), device, shape, options.steps)
        print(f"Hugging Face's {name}, {shape[0]} x {shape[1]}: {1e3 * seconds:.1f} ms a step")


def _seconds_a_step(model, device, shape, steps):
    optimizer = torch.optim.AdamW(model.parameters(), 2.5e-4, fused=True)
    ids = torch.randint(0, _VOCABULARY_SIZE, shape, device=device)

    def update():
        with torch.autocast(device, torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    seconds = []
    float(update())  # warms up
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        for _ in range(steps):
            loss = update()
        float(loss)  # waits for the device
        seconds.append((time.perf_counter() - started) / steps)
    return min(seconds)


if __name__ == "__main__":
    main()
