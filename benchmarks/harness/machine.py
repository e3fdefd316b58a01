"""The machine that benchmarks run on, in words, and what it can compute."""

import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import subprocess

_PACKAGES = (
    *("tensorflow", "keras", "keras-hub", "torch", "transformers", "tokenizers"),
    *("onnxruntime", "openvino"),
)
# Flags that decide how fast a processor multiplies: x86's, and then ARM's.
_MULTIPLIERS = (
    *("avx2", "fma", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "i8mm", "bf16", "sve"),
)
_INSTRUCTIONS = {
    "bfloat16": ("avx512_bf16", "amx_bf16", "bf16"),
    "int8": ("avx2", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"),
}


def cores():
    """Returns the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def flags():
    """Returns the processor's flags that decide how it multiplies, as the kernel names them."""
    found = set((_of_processor("flags") or _of_processor("Features")).split())
    return [flag for flag in _MULTIPLIERS if flag in found]


def machine():
    """Returns the processor, its cores and its flags, in words."""
    name = _of_processor("model name") or platform.machine()  # on ARM, the kernel gives no name
    return f"{name}, {cores()} cores, {' '.join(flags())}"


def describe():
    """Returns one line: the machine, and the versions of what is measured."""
    found = [name for name in _PACKAGES if importlib.util.find_spec(name.replace("-", "_"))]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in found]
    return f"{machine()}; {_commit()}Python {platform.python_version()}, " + ", ".join(versions)


def why_not(precision):
    """Says why a precision (float32, bfloat16, int8) is not measured here, or returns None."""
    needed = _INSTRUCTIONS.get(precision, ())
    if needed and not set(needed) & set(flags()):
        return f"this processor has no instructions for it: none of {', '.join(needed)}"
    return None


def _commit():
    """Returns the measured commit and a comma; an empty string outside a git repository.

    The commit ends with `-dirty` if files have changed since.
    """
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    folder = pathlib.Path(__file__).parent
    try:
        found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"commit {found.stdout.strip()}, "


def _of_processor(key):
    """Returns a value of the first processor in /proc/cpuinfo; an empty string if it has none."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(key))
    return next(found, "")
