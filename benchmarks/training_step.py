"""The pre-training step beside Hugging Face's, KerasHub's and a plain one, in one run.

    python -m benchmarks.training_step --output FILE.md

Every competitor trains in a process of its own on every shape of batch: a few steps to warm up,
then the steps that count, of which the median is taken. Before and after, the fastest matrix
products of TensorFlow and torch are measured. The tables have speed and memory of all, and ours as
ratios to the others. The machine must be idle: a busy core slows torch's threads, which wait for
each other, out of all proportion.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys

from benchmarks.competitors import COMPETITORS, WARMUP_STEPS
from benchmarks.matrix_product import FRAMEWORKS
from benchmarks.setting import SIZES, describe, table
from training.throughput import flops_per_token

_KERAS_HUB = ("keras_hub_xla", "keras_hub_graph")
_KERAS_HUB_BFLOAT16 = ("keras_hub_xla_bfloat16", "keras_hub_graph_bfloat16")
# What ours is set against, of each the fastest: Hugging Face's, KerasHub's, and the plain one,
# whose memory counts too and so is taken in the same mode.
_OURS = {
    "ours_xla": (("hugging_face",), _KERAS_HUB, ("plain_xla",)),
    "ours_graph": (("hugging_face",), _KERAS_HUB, ("plain_graph",)),
    "ours_xla_bfloat16": (("hugging_face_bfloat16",), _KERAS_HUB_BFLOAT16, ()),
    "ours_graph_bfloat16": (("hugging_face_bfloat16",), _KERAS_HUB_BFLOAT16, ()),
}


def main():
    options = _parse_options()
    dtypes = list(dict.fromkeys(COMPETITORS[name].dtype for name in options.only))
    results, failed = {}, []  # (batch, length, name) -> one result a round
    print(describe(), flush=True)
    products = [_measure_products(dtypes, options.size)]
    for round in range(1, options.rounds + 1):
        for batch, length in options.batches:
            for name in options.only:
                try:
                    result = _measure_step(name, batch, length, options)
                except subprocess.CalledProcessError as error:
                    # A long run goes on without it.
                    failed.append(f"{batch} x {length}, {name}: exit status {error.returncode}")
                    print(failed[-1], flush=True)
                    continue
                results.setdefault((batch, length, name), []).append(result)
                print(
                    f"round {round}, {batch} x {length}, {name}: "
                    f"{result['seconds']:.4g} s a step, {result['peak_memory'] / 1e9:.2f} GB, "
                    f"mean loss {result['mean_loss']:.3f}",
                    flush=True,
                )
    products.append(_measure_products(dtypes, options.size))

    medians = {
        key: {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        for key, runs in results.items()
    }
    report = _report(medians, products, options)
    print(f"\n{report}")
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
    parser.add_argument("--rounds", type=int, default=1, help="runs of each (default: 1)")
    parser.add_argument("--size", choices=SIZES, default="paper", help="default: paper")
    parser.add_argument("--output", help="a Markdown file to write")
    return parser.parse_args()


def _names(text):
    names = text.split(",")
    for name in names:
        if name not in COMPETITORS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(COMPETITORS)}")
    return names


def _batches(text):
    return [tuple(map(int, shape.split("x"))) for shape in text.split(",")]


def _measure_step(name, batch, length, options):
    arguments = ["--batch", batch, "--length", length, "--steps", options.steps]
    result = _run("competitors", name, "--size", options.size, *arguments)
    result["seconds"] = statistics.median(result.pop("step_seconds"))
    return result


def _measure_products(dtypes, size):
    """GFLOP/s by framework and dtype."""
    arguments = ["--dtypes", ",".join(dtypes), "--size", size]
    products = {name: _run("matrix_product", name, *arguments) for name in FRAMEWORKS}
    print(f"fastest matrix products, GFLOP/s: {products}", flush=True)
    return products


def _run(module, *arguments):
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    process = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ},
    )
    if process.returncode:
        print(process.stderr, file=sys.stderr)
    process.check_returncode()
    return json.loads(process.stdout.splitlines()[-1])


def _report(medians, products, options):
    peaks = {
        dtype: max(run[framework][dtype] for run in products for framework in run)
        for dtype in products[0]["torch"]
    }
    sections = [
        _heading(options),
        _speed_table(medians, peaks, options),
        _ratio_table(medians),
        _product_table(products),
        _NOTES,
    ]
    return "\n\n".join(section for section in sections if section)


def _heading(options):
    command = shlex.join(["python", "-m", "benchmarks.training_step", *sys.argv[1:]])
    size = SIZES[options.size]
    return (
        f"{describe()}. {size['num_layers']} layers, width {size['hidden_dim']}, "
        f"{size['num_heads']} heads, {size['vocabulary_size']:,} tokens; medians of "
        f"{options.steps} steps after {WARMUP_STEPS}, rounds: {options.rounds}. `{command}`"
    )


def _speed_table(medians, peaks, options):
    size = SIZES[options.size]
    rows = []
    for (batch, length, name), result in medians.items():
        competitor = COMPETITORS[name]
        speed = batch * length / result["seconds"]
        gigaflops = 1e-9 * speed * flops_per_token(size, length)
        rows.append(
            [
                f"{batch} x {length}",
                competitor.dtype,
                competitor.label,
                f"{speed:,.0f}",
                f"{result['seconds']:.3g}",
                f"{result['first_step_seconds']:.1f}",
                f"{result['peak_memory'] / 1e9:.2f}",
                f"{_own_memory(result) / 1e9:.2f}",
                f"{gigaflops:.1f}",
                f"{gigaflops / peaks[competitor.dtype]:.0%}",
            ]
        )
    header = ["batch", "dtype", "what", "tokens/s", "s/step", "s to first step", "peak GB"]
    return table([*header, "less imports", "GFLOP/s", "of product"], rows)


def _ratio_table(medians):
    rows = []
    for (batch, length, name), ours in medians.items():
        if name not in _OURS:
            continue
        others = [
            min(
                (medians[key] for key in ((batch, length, n) for n in names) if key in medians),
                key=lambda result: result["seconds"],
                default=None,
            )
            for names in _OURS[name]
        ]
        speeds = [f"{other['seconds'] / ours['seconds']:.2f}" if other else "" for other in others]
        memory = ["", ""]
        if plain := others[-1]:
            memory = [
                f"{ours['peak_memory'] / plain['peak_memory']:.0%}",
                f"{_own_memory(ours) / _own_memory(plain):.0%}",
            ]
        competitor = COMPETITORS[name]
        rows.append([f"{batch} x {length}", competitor.dtype, competitor.label, *speeds, *memory])
    header = ["batch", "dtype", "what", "speed / Hugging Face", "speed / KerasHub", "speed / plain"]
    return rows and table([*header, "peak / plain", "less imports / plain"], rows)


def _own_memory(result):
    return result["peak_memory"] - result["import_memory"]


def _product_table(products):
    rows = [
        [framework, dtype, *(f"{run[framework][dtype]:.0f}" for run in products)]
        for framework in FRAMEWORKS
        for dtype in products[0][framework]
    ]
    return table(["matrix product", "dtype", "GFLOP/s before", "after"], rows)


_NOTES = """\
- GFLOP/s are the model's: per token 6 (weights of the blocks' matrices + vocabulary x width)
  + 12 layers x width x length. The last term is attention's two products, without credit for the
  half that causality makes needless. Work done twice to save memory does not count.
- "of product" is their share of the best matrix product of that dtype in this run, of either
  framework.
- Peak GB is the largest resident memory of the process, which does nothing else; "less imports"
  takes off what it was after the imports. "s to first step" has imports, building and compiling.
- All train with dropout 0.1, AdamW (ours: the paper's Adam), gradients clipped to norm 1, on random
  ids, and without metrics. Hugging Face's is eager torch with the fused AdamW; its bfloat16 is
  autocast's, the others' is `mixed_bfloat16`. On a CPU, graph is what Keras takes by default.
- KerasHub's is GPT-2 of the same size; ratios are to its faster mode. "plain" is
  `benchmarks/plain_gpt1.py`, the same decoder of stock Keras layers, in the same mode as ours."""


if __name__ == "__main__":
    main()
