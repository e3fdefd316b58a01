"""The peers that we compare with: a file for each, with the functions that benchmarks call.

`ours.py` has the same functions for gpt1_keras; `fastapi_app.py` serves any of the classifiers.
Frameworks are imported inside the functions, so that a process imports only what it measures.

- `train(turns, precision, mode, size, batch, length, steps)`: takes a pre-training step in each
  turn. It returns the bytes of memory after the imports, and at the peak.
- `fine_tune(turns, folder, data_dir, count, batches, coefficient)`: trains on `batches` batches of
  SST-2 in each turn.
- `classifier(precision, size, tokenizer, folder, calibration, callers)`: returns a function from
  texts to their scores, float `[texts, classes]`. The folder keeps the model's files. With more
  than one caller, it answers as many calls at once as there are cores, each by one thread.
- `predict(turns, path, rounds, ...)`: answers all texts of a file in each turn. It returns the peak
  of memory.
- `device_classifier(variant, folder, job)`: returns a function from the texts of one example to
  its scores, and the bytes of the files that an application would ship. Ours has several variants.
"""

import dataclasses
import importlib
import importlib.util

from benchmarks.harness.machine import why_not


@dataclasses.dataclass(frozen=True)
class Peer:
    """gpt1_keras or a peer, as one benchmark runs it.

    Attributes:
        label: its name in tables.
        module: name of a module of `benchmarks.peers`.
        precision: that of its products, such as `float32`.
        packages: names of packages that must be installed.
        mode: how Keras trains, `graph` or `XLA`; elsewhere None.
    """

    label: str
    module: str
    precision: str
    packages: tuple[str, ...] = ()
    mode: str | None = None

    def why_not(self):
        """Says why it is not measured here: a missing package, or the precision; None if it is."""
        missing = [name for name in self.packages if importlib.util.find_spec(name) is None]
        if missing:
            return f"{', '.join(missing)} is not installed"
        return why_not(self.precision) or self._why_not_export()

    def _why_not_export(self):
        """Says why an export with 8-bit products does not run here, or returns None."""
        if (self.module, self.precision) != ("ours", "int8"):
            return None
        from serving.export.decoder.int8 import check_this_machine

        try:
            check_this_machine()
        except ValueError as error:
            return str(error)
        return None


def add_peers(program, peers, default=None):
    """Adds the option --only, which chooses among peers, to a `Program`."""
    default = default or [*peers]
    what = "peers (default: all that this machine computes and has packages for)"
    program.add("--only", nargs="+", choices=peers, default=default, metavar="NAME", help=what)


def measured_here(names, peers):
    """Returns which of some names are measured here, and a note on the others.

    Returns:
        `(names, note)`; the note has a line for each name that is left out.
    """
    reasons = {name: peers[name].why_not() for name in names}
    lines = [f"- Left out: {name}: {why}" for name, why in reasons.items() if why]
    return [name for name, why in reasons.items() if not why], "\n".join(lines)


def run(module, function, *arguments, **named):
    """Calls a function of a module of `benchmarks.peers`."""
    return getattr(importlib.import_module(f"benchmarks.peers.{module}"), function)(
        *arguments, **named
    )
