"""Where the time of a training step or of an export's answers goes, in per cent by kernel.

    python -m benchmarks.kernels step --batch 8 --length 128
    python -m benchmarks.kernels export --export DIR --data-dir DIR

TensorFlow's profiler times each kernel on each thread; what runs at the same time is counted twice,
and what waits is not counted. The step is that of `benchmarks.training_step`, gpt1_keras in the
graph; the export answers batches of 32 sentences of SST-2's validation split.
"""

import argparse
import collections
import pathlib
import re
import shlex
import sys
import tempfile

from benchmarks.common.setting import SIZES, describe, table, train_by_onednn

_BATCH_SIZE = 32
_MOST_ROWS = 20
_XLA = "CpuExecutable::ExecuteAsyncOnStream"
# Kernels that run others, which are counted themselves.
_CALLS = re.compile("While|If|Case|BatchFunction|(Stateful)?PartitionedCall|ParallelMapDataset.*")


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels",
        description="Where the time of a training step or of an export's answers goes.",
    )
    parser.add_argument("what", choices=_RUNS)
    parser.add_argument("--size", choices=SIZES, default="paper", help="of a step; default: paper")
    parser.add_argument("--batch", type=int, default=8, help="of a step; default: 8")
    parser.add_argument("--length", type=int, default=128, help="of a step; default: 128")
    parser.add_argument(
        "--dtype", default="float32", help="policy of a step (default: %(default)s)"
    )
    parser.add_argument("--export", help="an export's base path")
    parser.add_argument("--data-dir", help="folder of TensorFlow Datasets with SST-2")
    parser.add_argument("--times", type=int, default=3, help="steps or batches (default: 3)")
    options = parser.parse_args()
    seconds = _profile(_RUNS[options.what](options), options.times)
    total = sum(seconds.values())
    rows = [
        [kernel, f"{100 * each / total:.1f}", f"{1e3 * each / options.times:.1f}"]
        for kernel, each in seconds.most_common(_MOST_ROWS)
    ]
    command = shlex.join(["python", "-m", "benchmarks.kernels", *sys.argv[1:]])
    print(f"{describe()}. `{command}`\n\n{table(['kernel', '%', 'ms each time'], rows)}")


def _profile(run, times):
    """The seconds of each kernel, a `Counter`, of a function that is called so many times."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    run()  # the first traces, the second fills caches
    run()
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            for _ in range(times):
                run()
        [file] = pathlib.Path(folder).rglob("*.xplane.pb")
        space = XSpace.FromString(file.read_bytes())
    [host] = [plane for plane in space.planes if plane.name == "/host:CPU"]
    seconds = collections.Counter()
    for line in host.lines:
        for event in line.events:
            if kernel := _kernel(host.event_metadata[event.metadata_id].name):
                seconds[kernel] += 1e-12 * event.duration_ps
    return seconds


def _kernel(event):
    """The type of the operation that an event is of, or None."""
    if event == _XLA:
        return "XLA's loops"
    operation, _, kernel = event.split("#")[0].rpartition(":")
    # The runtime's own events are named as in C++, or are sentences.
    is_kernel = operation and not operation.endswith(":") and kernel.isidentifier()
    return kernel if is_kernel and not _CALLS.fullmatch(kernel) else None


def _step(options):
    """A function that trains on one batch."""
    train_by_onednn()  # before TensorFlow is imported, which reads it
    import keras
    import numpy as np

    import gpt1_keras
    from gpt1_keras.optimization.optimizer import GPT1Adam

    size = SIZES[options.size]
    backbone = gpt1_keras.GPT1Backbone(**size, dropout=0.1, dtype=options.dtype)
    model = gpt1_keras.GPT1CausalLM(backbone)
    model.compile(optimizer=GPT1Adam(2.5e-4, global_clipnorm=1.0), jit_compile=False)
    shape = (options.batch, options.length + 1)
    ids = np.random.default_rng(0).integers(0, size["vocabulary_size"], shape, dtype="int32")
    keras.config.disable_interactive_logging()
    return lambda: model.train_on_batch({"token_ids": ids[:, :-1]}, ids[:, 1:])


def _export(options):
    """A function that answers one batch after the other."""
    import itertools

    import tensorflow as tf
    import tensorflow_datasets as tfds

    [version] = pathlib.Path(options.export).iterdir()
    model = tf.saved_model.load(version)
    answer = model.signatures["serving_default"]
    data = tfds.load("glue/sst2", split="validation", data_dir=options.data_dir, download=False)
    texts = [each["sentence"] for each in data.batch(_BATCH_SIZE, drop_remainder=True)]
    batches = itertools.cycle(texts)
    return lambda: (answer(text=next(batches)), model)


_RUNS = {"step": _step, "export": _export}


if __name__ == "__main__":
    main()
