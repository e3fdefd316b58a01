"""Greedy generation beside Hugging Face's, with the same weights.

    python -m benchmarks.generation

Both continue the same prompts, alternately, and must write the same tokens. Hugging Face's port of
GPT-1 keeps no keys and values, even with `use_cache`, so it reads the whole text again for every
token; ours caches them. The machine must be idle, as for `benchmarks.training_step`.
"""

import statistics
import sys
import tempfile
import time

import numpy as np
import torch
from transformers import OpenAIGPTLMHeadModel

import gpt1_keras
from benchmarks.harness.alternate import alternate
from benchmarks.harness.machine import cores
from benchmarks.harness.measured_models import SIZES
from benchmarks.harness.program import Program, table
from gpt1_keras.cli import exit_status
from gpt1_keras.convert.hugging_face import save_backbone

_BATCH_SIZES = (1, 8)
_PROMPT_TOKENS = 16
_PEER = "Hugging Face"


def main():
    program = Program("generation", __doc__, "--size")
    program.add("--tokens", type=int, default=64, help="new tokens (default: %(default)s)")
    program.add("--rounds", type=int, default=3, help="after one (default: %(default)s)")
    options = program.parse()
    torch.set_num_threads(cores())
    backbone = _random_backbone(SIZES[options.size])
    generators = {
        "gpt1_keras, XLA": _ours(backbone, options.tokens, jit_compile=True),
        "gpt1_keras, graph": _ours(backbone, options.tokens, jit_compile=False),
        _PEER: _theirs(backbone, options.tokens),
    }
    rows, differences = [], []
    for batch_size in _BATCH_SIZES:
        random = np.random.default_rng(batch_size)
        vocabulary = SIZES[options.size]["vocabulary_size"]
        prompts = random.integers(0, vocabulary, (batch_size, _PROMPT_TOKENS), dtype="int32")
        turns = {name: _turn(generate, prompts) for name, generate in generators.items()}
        found = alternate(turns, 1 + options.rounds, warmup=0)
        speeds = {
            name: batch_size * options.tokens / statistics.median(s for s, _ in results[1:])
            for name, results in found.items()
        }
        for name, results in found.items():
            first_seconds, tokens = results[0]
            is_equal = np.array_equal(tokens, found[_PEER][0][1])
            differences += [] if is_equal else [f"batch {batch_size}: {name}"]
            cells = [f"{speeds[name]:,.1f}", f"{speeds[name] / speeds[_PEER]:.2f}"]
            cells += [f"{first_seconds:.1f}"]
            cells += [f"{'yes' if is_equal else 'NO'}, {len(np.unique(tokens))} different"]
            rows.append([str(batch_size), name, *cells])
    header = ["batch", "what", "tokens/s", f"/ {_PEER}", "first call, s", "same tokens"]
    facts = (
        f"Size {options.size!r}, {_PROMPT_TOKENS} tokens of prompt and {options.tokens} new ones, "
        f"medians of {options.rounds} calls after the first."
    )
    program.report(facts, table(header, rows, labels=2))
    if differences:
        raise SystemExit(f"Tokens other than Hugging Face's: {'; '.join(differences)}.")


def _turn(generate, prompts):
    """Makes a turn that returns the seconds of a call, and the tokens."""

    def turn():
        started = time.perf_counter()
        tokens = generate(prompts)
        return time.perf_counter() - started, tokens

    return turn


def _random_backbone(size):
    backbone = gpt1_keras.GPT1Backbone(**size)
    # With initial weights, it would only repeat the last token.
    random = np.random.default_rng(0)
    for variable in backbone.weights:
        variable.assign(variable + random.normal(0.0, 0.05, variable.shape))
    return backbone


def _ours(backbone, tokens, jit_compile):
    lm = gpt1_keras.GPT1CausalLM(backbone)
    lm.compile(sampler="greedy", jit_compile=jit_compile)
    padding = [(0, 0), (0, tokens)]

    def generate(prompts):
        inputs = {
            "token_ids": np.pad(prompts, padding),
            "padding_mask": np.pad(np.ones_like(prompts), padding),
        }
        return lm.generate(inputs)["token_ids"]

    return generate


def _theirs(backbone, tokens):
    with tempfile.TemporaryDirectory() as folder:
        save_backbone(backbone, f"{folder}/model")
        model = OpenAIGPTLMHeadModel.from_pretrained(f"{folder}/model").eval()

    def generate(prompts):
        ids = torch.tensor(prompts, dtype=torch.int64)
        found = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=tokens,
            pad_token_id=0,
            eos_token_id=None,
        )
        return found.numpy()

    return generate


if __name__ == "__main__":
    sys.exit(exit_status(main))
