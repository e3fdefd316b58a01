"""Greedy generation beside Hugging Face's, with the same weights, in one run.

    python -m benchmarks.generation

Both continue the same prompts, in turns, and have to write the same tokens. Hugging Face's port of
GPT-1 keeps no keys and values, so it reads the whole text again for every token, whatever
`use_cache` says; ours caches them. The machine must be idle, as for `benchmarks.training_step`.
"""

import argparse
import shlex
import statistics
import sys
import time

import keras
import numpy as np
import torch
from transformers import OpenAIGPTLMHeadModel

import gpt1_keras
from benchmarks.common.setting import SIZES, cores, describe, hugging_face_config, table
from gpt1_keras.convert.weights import block_variables

_BATCH_SIZES = (1, 8)
_PROMPT_TOKENS = 16


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.generation",
        description="Greedy generation beside Hugging Face's, tokens per second.",
    )
    parser.add_argument("--tokens", type=int, default=64, help="new tokens (default: 64)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: 3)")
    parser.add_argument("--size", choices=SIZES, default="paper", help="default: paper")
    parser.add_argument("--output", help="a Markdown file to write")
    options = parser.parse_args()

    torch.set_num_threads(cores())
    backbone = _random_backbone(SIZES[options.size])
    generators = {
        "gpt1_keras, XLA": _ours(backbone, options.tokens, jit_compile=True),
        "gpt1_keras, graph": _ours(backbone, options.tokens, jit_compile=False),
        "Hugging Face": _theirs(_copy_to_torch(backbone, options.size), options.tokens),
    }
    rows, differences = [], []
    for batch_size in _BATCH_SIZES:
        prompts = np.random.default_rng(batch_size).integers(
            0, SIZES[options.size]["vocabulary_size"], (batch_size, _PROMPT_TOKENS), dtype="int32"
        )
        outputs, seconds = {}, {name: [] for name in generators}
        for _ in range(1 + options.rounds):
            for name, generate in generators.items():
                started = time.perf_counter()
                outputs[name] = generate(prompts)
                seconds[name].append(time.perf_counter() - started)
        equal = {
            name: np.array_equal(found, outputs["Hugging Face"]) for name, found in outputs.items()
        }
        differences += [f"batch {batch_size}: {name}" for name in generators if not equal[name]]
        speeds = {
            name: batch_size * options.tokens / statistics.median(times[1:])
            for name, times in seconds.items()
        }
        rows += [
            [
                str(batch_size),
                name,
                f"{speeds[name]:,.1f}",
                f"{speeds[name] / speeds['Hugging Face']:.2f}",
                f"{seconds[name][0]:.1f}",
                f"{'yes' if equal[name] else 'NO'}, {len(np.unique(outputs[name]))} different",
            ]
            for name in generators
        ]

    command = shlex.join(["python", "-m", "benchmarks.generation", *sys.argv[1:]])
    header = ["batch", "what", "tokens/s", "/ Hugging Face", "first call, s", "same tokens"]
    report = (
        f"{describe()}. Size {options.size!r}, {_PROMPT_TOKENS} tokens of prompt and "
        f"{options.tokens} new ones, medians of {options.rounds} calls after the first. "
        f"`{command}`\n\n{table(header, rows, labels=2)}"
    )
    print(report)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(report + "\n")
    if differences:
        raise SystemExit(f"Tokens other than Hugging Face's: {'; '.join(differences)}.")


def _random_backbone(size):
    backbone = gpt1_keras.GPT1Backbone(**size)
    # Freshly initialised, it would only repeat the last token.
    random = np.random.default_rng(0)
    for variable in backbone.weights:
        variable.assign(variable + random.normal(0.0, 0.05, variable.shape))
    return backbone


def _copy_to_torch(backbone, size):
    model = OpenAIGPTLMHeadModel(hugging_face_config(SIZES[size])).eval()
    decoder = model.transformer
    pairs = [
        (decoder.tokens_embed.weight, backbone.token_embedding.embeddings),
        (decoder.positions_embed.weight, backbone.embedding.positions.embeddings),
    ]
    for block, variables in zip(decoder.h, map(block_variables, backbone.blocks), strict=True):
        pairs += zip(block.parameters(), variables, strict=True)
    with torch.no_grad():
        for parameter, variable in pairs:
            parameter.copy_(torch.from_numpy(keras.ops.convert_to_numpy(variable)))
    return model


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


def _theirs(model, tokens):
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
    main()
