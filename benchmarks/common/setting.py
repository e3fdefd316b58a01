"""What the benchmarks share: the model's sizes, the machine, tables."""

import importlib.metadata
import importlib.util
import os
import pathlib
import platform

# Written out, so that a process without TensorFlow can read them: gpt1_paper, gpt1_tiny and
# gpt1_micro, with vocabularies of their own.
SIZES = {
    "paper": {
        "vocabulary_size": 40481,
        "num_layers": 12,
        "num_heads": 12,
        "hidden_dim": 768,
        "intermediate_dim": 3072,
        "max_sequence_length": 512,
    },
    "tiny": {
        "vocabulary_size": 8228,
        "num_layers": 4,
        "num_heads": 4,
        "hidden_dim": 256,
        "intermediate_dim": 1024,
        "max_sequence_length": 256,
    },
    "micro": {
        "vocabulary_size": 1000,
        "num_layers": 2,
        "num_heads": 4,
        "hidden_dim": 128,
        "intermediate_dim": 512,
        "max_sequence_length": 128,
    },
}
_PACKAGES = (
    *("tensorflow", "keras", "keras-hub", "torch", "transformers", "tokenizers"),
    *("onnxruntime", "openvino"),
)
# What decides how fast a processor multiplies: x86's names, and then ARM's.
_MULTIPLIERS = (
    *("avx2", "fma", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "i8mm", "bf16", "sve"),
)
_INSTRUCTIONS = {
    "bfloat16": ("avx512_bf16", "amx_bf16", "bf16"),
    "int8": ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"),
}


def cores():
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def flags():
    """Those of the processor's flags, as the kernel names them, that decide how it multiplies."""
    found = set((_of_processor("flags") or _of_processor("Features")).split())
    return [flag for flag in _MULTIPLIERS if flag in found]


def machine():
    """The processor, its cores and its flags, in words."""
    name = _of_processor("model name") or platform.machine()  # ARM kernels do not name it
    return f"{name}, {cores()} cores, {' '.join(flags())}"


def describe():
    """One line: the machine, and the versions of what is measured."""
    found = [name for name in _PACKAGES if importlib.util.find_spec(name.replace("-", "_"))]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in found]
    return f"{machine()}; Python {platform.python_version()}, " + ", ".join(versions)


def why_not(precision):
    """Why this machine is not measured in a precision, `float32`, `bfloat16` or `int8`, or None."""
    needed = _INSTRUCTIONS.get(precision, ())
    if needed and not set(needed) & set(flags()):
        return f"this processor has no instructions for it: none of {', '.join(needed)}"
    return None


def _of_processor(key):
    """What /proc/cpuinfo says of the first processor; empty if nothing."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(key))
    return next(found, "")


def train_by_onednn():
    """Turns oneDNN on, as `training`'s programs do, in processes that are started from here.

    So the peers that use TensorFlow have it too.
    """
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def hugging_face_config(size):
    """`OpenAIGPTConfig` of one of `SIZES`."""
    from transformers import OpenAIGPTConfig

    return OpenAIGPTConfig(
        vocab_size=size["vocabulary_size"],
        n_positions=size["max_sequence_length"],
        n_embd=size["hidden_dim"],
        n_layer=size["num_layers"],
        n_head=size["num_heads"],
    )


def table(header, rows, labels=1):
    """A Markdown table of cells as strings, with aligned columns.

    Args:
        header: the columns' names.
        rows: lists of as many cells.
        labels: how many of the first columns say what the figures in the others are of. Those are
            aligned to the right, which tells `python -m benchmarks` that they are figures.
    """
    widths = [max(3, *map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = ["-" * width for width in widths[:labels]]
    rule += ["-" * (width - 1) + ":" for width in widths[labels:]]
    return "\n".join(
        "| "
        + " | ".join(
            cell.ljust(width) if number < labels else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths))
        )
        + " |"
        for line in [header, rule, *rows]
    )
