"""Times a pre-training step on a GPU: its share of the fastest product, its memory, its kernels.

    KERAS_BACKEND=jax python -m benchmarks.gpu.step

It needs JAX and no TensorFlow. Figures are of the fastest of three rounds of `--steps` updates on
random ids, with dropout. The share is that of the FLOPs per second that the best of ten products of
two matrices reaches on the same device.
"""

import argparse
import collections
import glob
import gzip
import json
import tempfile
import time

import jax
import keras
import numpy as np

from gpt1_keras import GPT1CausalLM
from gpt1_keras.optimization.optimizer import pretraining_optimizer
from gpt1_keras.presets import build_backbone
from training.evaluation.throughput import flops_per_token, measure_peak

_VOCABULARY_SIZE = 40_481  # the paper's
_ROUNDS = 3
_PROFILED_STEPS = 3
_SHOWN_KERNELS = 25


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.step", description=__doc__)
    parser.add_argument("--config", default="gpt1_paper", help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--length", type=int, default=512, help="default: %(default)s")
    parser.add_argument("--dtype", default="mixed_bfloat16", help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--product", type=int, default=8192, help="rows (default: %(default)s)")
    options = parser.parse_args()
    peak = measure_peak(options.dtype.removeprefix("mixed_"), options.product, repeats=10)
    backbone = build_backbone(options.config, _VOCABULARY_SIZE, dtype=options.dtype, dropout=0.1)
    model = GPT1CausalLM(backbone)
    model.compile(pretraining_optimizer(2.5e-4, 1000, 100, None, 1.0), jit_compile=True)
    shape = options.batch_size, options.length
    model.fit(_Batches(2, shape), verbose=0)  # compiles
    seconds = min(_seconds_a_step(model, _Batches(options.steps, shape)) for _ in range(_ROUNDS))
    tokens = options.batch_size * options.length
    speed = tokens * flops_per_token(backbone.get_config(), options.length) / seconds
    memory = jax.local_devices()[0].memory_stats() or {}
    print(
        f"{jax.devices()[0].device_kind}; {options.config}, {options.batch_size} x "
        f"{options.length}, {options.dtype}: {1e3 * seconds:.1f} ms a step, "
        f"{tokens / seconds:,.0f} tokens/s, {speed / 1e12:.1f} TFLOP/s, {speed / peak:.1%} of the "
        f"product's {peak / 1e12:.1f}; peak memory "
        f"{memory.get('peak_bytes_in_use', 0) / 1e9:.2f} GB"
    )
    _print_kernels(model, _Batches(_PROFILED_STEPS, shape))


class _Batches(keras.utils.PyDataset):
    """Batches of random ids."""

    def __init__(self, count, shape):
        super().__init__()
        batch, length = shape
        random = np.random.default_rng(0)
        self._ids = random.integers(0, _VOCABULARY_SIZE, (count, batch, length + 1), "int32")

    def __len__(self):
        return len(self._ids)

    def __getitem__(self, index):
        return {"token_ids": self._ids[index, :, :-1]}, self._ids[index, :, 1:]


def _seconds_a_step(model, batches):
    started = time.perf_counter()
    model.fit(batches, verbose=0)
    return (time.perf_counter() - started) / len(batches)


def _print_kernels(model, batches):
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, create_perfetto_trace=True):
            model.fit(batches, verbose=0)
        (path,) = glob.glob(f"{folder}/**/perfetto_trace.json.gz", recursive=True)
        with gzip.open(path) as file:
            events = json.load(file)["traceEvents"]
    devices = {
        event["pid"]: event["args"]["name"]
        for event in events
        if event.get("name") == "process_name"
    }
    streams = {
        (event["pid"], event["tid"])
        for event in events
        if event.get("name") == "thread_name" and "Stream" in event["args"]["name"]
    }
    microseconds, calls = collections.Counter(), collections.Counter()
    for event in events:
        place = event.get("pid"), event.get("tid")
        if event.get("ph") == "X" and "GPU" in devices.get(place[0], "") and place in streams:
            microseconds[event["name"]] += event["dur"]
            calls[event["name"]] += 1
    total = sum(microseconds.values())
    print(f"Kernels: {total / 1e3 / len(batches):.1f} ms a step")
    for name, found in microseconds.most_common(_SHOWN_KERNELS):
        milliseconds = found / 1e3 / len(batches)
        print(f"{milliseconds:8.2f} ms {found / total:6.1%} x{calls[name] // len(batches)} {name}")


if __name__ == "__main__":
    main()
