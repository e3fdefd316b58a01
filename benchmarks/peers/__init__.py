"""What ours is compared with: a file for each peer, with the functions that benchmarks call.

Ours has the same functions, in `ours.py`; `fastapi_app.py` serves any of the classifiers. Imports
of frameworks are inside the functions, so that no process pays for another's.

- `train(turns, precision, mode, size, batch, length, steps)`: a step of pre-training a turn. It
  returns the bytes of memory after the imports, and at the peak.
- `fine_tune(turns, folder, data_dir, count, batches, coefficient)`: batches of SST-2 a turn.
- `classifier(precision, size, tokenizer, folder, calibration)`: returns a function from texts to
  their scores, float `[texts, classes]`. Files of the model are kept in the folder.
- `device_classifier(variant, folder, job)`: returns a function from the texts of one example to
  its scores, and the bytes of the files that an application would ship. Ours has several variants.
"""

import dataclasses
import importlib
import importlib.util

from benchmarks.harness.machine import why_not


@dataclasses.dataclass(frozen=True)
class Peer:
    """Ours or another, as one benchmark runs it.

    Attributes:
        label: its name in tables.
        module: of `benchmarks.peers`.
        precision: of its products, such as `float32`.
        packages: what must be installed.
        mode: of Keras's training, `graph` or `XLA`; elsewhere None.
    """

    label: str
    module: str
    precision: str
    packages: tuple[str, ...] = ()
    mode: str | None = None

    def why_not(self):
        """Why it is not measured here: a missing package, or the precision; None if it is."""
        missing = [name for name in self.packages if importlib.util.find_spec(name) is None]
        if missing:
            return f"{', '.join(missing)} is not installed"
        return why_not(self.precision) or self._why_not_export()

    def _why_not_export(self):
        """Why an export with 8-bit products does not run here, or None."""
        if (self.module, self.precision) != ("ours", "int8"):
            return None
        from serving.export.decoder.int8_support import check_this_machine

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
    """Of some names, those that are measured here, and a note on the others.

    Args:
        names: list of str.
        peers: `Peer` by name.

    Returns:
        `(names, note)`, where the note has a line for each that is left out.
    """
    reasons = {name: peers[name].why_not() for name in names}
    lines = [f"- Left out: {name}: {why}" for name, why in reasons.items() if why]
    return [name for name, why in reasons.items() if not why], "\n".join(lines)


def run(module, function, *arguments, **named):
    """Calls a function of a module of `benchmarks.peers`."""
    return getattr(importlib.import_module(f"benchmarks.peers.{module}"), function)(
        *arguments, **named
    )
