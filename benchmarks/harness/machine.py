"""The machine that is measured on, in words, and what it can compute."""

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
    return f"{machine()}; {_commit()}Python {platform.python_version()}, " + ", ".join(versions)


def why_not(precision):
    """Why this machine is not measured in a precision, `float32`, `bfloat16` or `int8`, or None."""
    needed = _INSTRUCTIONS.get(precision, ())
    if needed and not set(needed) & set(flags()):
        return f"this processor has no instructions for it: none of {', '.join(needed)}"
    return None


def _commit():
    """The commit that is measured, with a comma; empty where this is no git repository.

    It ends with `-dirty` where files have changed since.
    """
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    folder = pathlib.Path(__file__).parent
    try:
        found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"commit {found.stdout.strip()}, "


def _of_processor(key):
    """What /proc/cpuinfo says of the first processor; empty if nothing."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(key))
    return next(found, "")
