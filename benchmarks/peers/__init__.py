"""The peers that we compare with: a file for each, with the functions that benchmarks call.

`ours.py` has the same functions for gpt1_keras; `fastapi_app.py` serves any of the classifiers.
Frameworks are imported inside the functions, so that a process imports only what it measures.

- `train(turns, precision, mode, size, batch, length, steps)`: takes a pre-training step in each
  turn. It returns the peak of memory in bytes.
- `fine_tune(turns, folder, data_dir, count, batches, coefficient)`: trains on `batches` batches of
  SST-2 in each turn.
- `classifier(precision, size, tokenizer, folder, calibration, callers)`: returns a function from
  texts to their scores, float `[texts, classes]`. The folder keeps the model's files. With more
  than one caller, it answers as many calls at once as there are cores, each by one thread.
- `predict(turns, path, rounds, ...)`: answers all texts of a file in each turn. It returns the peak
  of memory.
"""

import dataclasses
import importlib

from benchmarks.harness.machine import why_not


@dataclasses.dataclass(frozen=True)
class Peer:
    """gpt1_keras or a peer, as one benchmark runs it.

    Attributes:
        label: its name in tables.
        module: name of a module of `benchmarks.peers`.
        precision: that of its products, such as `float32`.
        mode: how Keras trains, `graph` or `XLA`; elsewhere None.
    """

    label: str
    module: str
    precision: str
    mode: str | None = None


def add_peers(program, peers, default=None):
    """Adds the option --only, which chooses among peers, to a `Program`."""
    default = default or [*peers]
    what = "peers (default: all that this machine computes)"
    program.add("--only", nargs="+", choices=peers, default=default, metavar="NAME", help=what)


def measured_here(names, peers):
    """Returns which of some names are measured here, and a note on the others.

    Returns:
        `(names, note)`; the note has a line for each name that is left out.
    """
    reasons = {name: why_not(peers[name].precision) for name in names}
    lines = [f"- Left out: {name}: {why}" for name, why in reasons.items() if why]
    return [name for name, why in reasons.items() if not why], "\n".join(lines)


def run(module, function, *arguments, **named):
    """Calls a function of a module of `benchmarks.peers`."""
    return getattr(importlib.import_module(f"benchmarks.peers.{module}"), function)(
        *arguments, **named
    )
