"""What the benchmarks share: the model's sizes, the machine, tables."""

import importlib.metadata
import os
import pathlib
import platform

# Written out, so that a process without TensorFlow can read them; "paper" and "micro" are the
# presets gpt1_paper and gpt1_micro.
SIZES = {
    "paper": {
        "vocabulary_size": 40481,
        "num_layers": 12,
        "num_heads": 12,
        "hidden_dim": 768,
        "intermediate_dim": 3072,
        "max_sequence_length": 512,
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
_PACKAGES = ("tensorflow", "keras", "keras-hub", "torch", "transformers")


def cores():
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def describe():
    """One line: processor, cores, and the versions of what is measured."""
    names = [
        line.split(":", 1)[1].strip()
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES]
    processor = names[0] if names else platform.machine()  # ARM kernels do not name it
    return f"{processor}, {cores()} cores; Python {platform.python_version()}, " + ", ".join(
        versions
    )


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


def table(header, rows):
    """A Markdown table of cells as strings, with aligned columns."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
        for line in lines
    )
