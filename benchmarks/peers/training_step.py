"""What `benchmarks.training_step` compares, each run in a process of its own.

    python -m benchmarks.peers.training_step NAME --size paper --batch 8 --length 128 --steps 7

Each step is a turn, as `benchmarks.common.turns` says. The summary has the peak of the process's
memory, in all and as it was after the imports, in bytes. Imports are inside the functions, so that
no process pays for another's framework.
"""

import argparse
import dataclasses
import functools
import pathlib
from collections.abc import Callable

from benchmarks.common.setting import SIZES, cores, hugging_face_config
from benchmarks.common.turns import Turns, summarize

_LEARNING_RATE = 2.5e-4
_WEIGHT_DECAY = 0.01
_CLIP_NORM = 1.0


@dataclasses.dataclass(frozen=True)
class Competitor:
    """`train(job, dtype)` takes the job's steps in turns, and returns the bytes of imports."""

    label: str
    dtype: str
    train: Callable


@dataclasses.dataclass(frozen=True)
class Job:
    """What to train: sizes of the model, shape of a batch, number of steps."""

    size: dict
    batch: int
    length: int
    steps: int

    def random_ids(self, extra=0):
        """Token ids, int32 `[steps, batch, length + extra]`."""
        import numpy as np

        shape = (self.steps, self.batch, self.length + extra)
        random = np.random.default_rng(0)
        return random.integers(0, self.size["vocabulary_size"], shape, dtype="int32")


def _train_ours(job, dtype, jit_compile):
    import keras

    import gpt1_keras
    from gpt1_keras.optimization.optimizer import GPT1Adam

    import_memory = _peak_memory()
    keras.config.set_dtype_policy(_keras_policy(dtype))
    model = gpt1_keras.GPT1CausalLM(gpt1_keras.GPT1Backbone(**job.size, dropout=0.1))
    optimizer = GPT1Adam(_LEARNING_RATE, weight_decay=_WEIGHT_DECAY, global_clipnorm=_CLIP_NORM)
    model.compile(optimizer=optimizer, jit_compile=jit_compile)
    _fit(model, job)
    return import_memory


def _train_plain(job, dtype, jit_compile):
    import keras

    from benchmarks.peers.plain_gpt1 import plain_gpt1

    import_memory = _peak_memory()
    keras.config.set_dtype_policy(_keras_policy(dtype))
    model = plain_gpt1(**job.size)
    _compile_stock(model, jit_compile)
    _fit(model, job)
    return import_memory


def _train_keras_hub(job, dtype, jit_compile):
    import keras
    import keras_hub

    import_memory = _peak_memory()
    keras.config.set_dtype_policy(_keras_policy(dtype))
    model = keras_hub.models.GPT2CausalLM(
        keras_hub.models.GPT2Backbone(**job.size, dropout=0.1), preprocessor=None
    )
    # Its default metric would only cost it time.
    _compile_stock(model, jit_compile, weighted_metrics=None)
    _fit(model, job, padding_mask=True)
    return import_memory


def _compile_stock(model, jit_compile, **kwargs):
    import keras

    model.compile(
        optimizer=keras.optimizers.AdamW(
            _LEARNING_RATE, weight_decay=_WEIGHT_DECAY, global_clipnorm=_CLIP_NORM
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit_compile,
        **kwargs,
    )


def _fit(model, job, padding_mask=False):
    import keras
    import numpy as np
    import tensorflow as tf

    ids = job.random_ids(extra=1)
    x = {"token_ids": ids[:, :, :-1]}
    if padding_mask:
        x["padding_mask"] = np.ones_like(x["token_ids"])
    data = tf.data.Dataset.from_tensor_slices((x, ids[:, :, 1:]))
    turns = Turns()
    callback = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: turns.begin(),
        # Reading the loss waits for the step to end.
        on_train_batch_end=lambda batch, logs: turns.end(loss=float(logs["loss"])),
    )
    model.fit(data, verbose=0, callbacks=[callback])


def _train_hugging_face(job, dtype):
    import torch
    from transformers import OpenAIGPTLMHeadModel

    import_memory = _peak_memory()
    torch.set_num_threads(cores())
    model = OpenAIGPTLMHeadModel(hugging_face_config(job.size)).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=_LEARNING_RATE, weight_decay=_WEIGHT_DECAY, fused=True
    )
    turns = Turns()
    for ids in torch.tensor(job.random_ids(), dtype=torch.int64):
        turns.begin()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad()
        turns.end(loss=loss.item())
    return import_memory


def _keras_policy(dtype):
    return "mixed_bfloat16" if dtype == "bfloat16" else dtype


def _peak_memory():
    """Bytes. (`resource` would count what the process that started this one had then.)"""
    status = pathlib.Path("/proc/self/status").read_text()
    kilobytes = next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]
    return int(kilobytes) * 1024


def _in_both_modes(name, label, train, dtype):
    return {
        name.format(mode=mode.lower()): Competitor(
            f"{label}, {mode}", dtype, functools.partial(train, jit_compile=mode == "XLA")
        )
        for mode in ("XLA", "graph")
    }


COMPETITORS = {
    **_in_both_modes("ours_{mode}", "gpt1_keras", _train_ours, "float32"),
    **_in_both_modes("plain_{mode}", "plain Keras", _train_plain, "float32"),
    **_in_both_modes("keras_hub_{mode}", "KerasHub GPT-2", _train_keras_hub, "float32"),
    "hugging_face": Competitor("Hugging Face", "float32", _train_hugging_face),
    **_in_both_modes("ours_{mode}_bfloat16", "gpt1_keras", _train_ours, "bfloat16"),
    **_in_both_modes("keras_hub_{mode}_bfloat16", "KerasHub GPT-2", _train_keras_hub, "bfloat16"),
    "hugging_face_bfloat16": Competitor("Hugging Face", "bfloat16", _train_hugging_face),
}


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.training_step")
    parser.add_argument("name", choices=COMPETITORS)
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()

    job = Job(SIZES[options.size], options.batch, options.length, options.steps)
    competitor = COMPETITORS[options.name]
    import_memory = competitor.train(job, competitor.dtype)
    summarize(peak_memory=_peak_memory(), import_memory=import_memory)


if __name__ == "__main__":
    main()
