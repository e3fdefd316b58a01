"""Work in an Apache Beam pipeline, on one machine or many."""

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gpt1_keras.files import read_json, remove_leftovers, write_json

_RESULT = ".result"  # what the name of an item's result ends with
_Item = TypeVar("_Item")


def run_in_beam(
    function: Callable[[_Item], dict[str, Any]],
    items: Sequence[_Item],
    folder: str | os.PathLike[str],
    runner: str,
    flags: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Calls a function for each item, and returns the results in the items' order.

    A runner may call it more than once for an item, as after a worker's death. So what it writes
    and returns has to depend on the item alone.

    Args:
        function: picklable, as the items are; it returns what JSON can hold.
        folder: path that all workers reach. Results are there meanwhile.
        runner: name of Beam's runner. `FnApiRunner` runs on this machine. (`DirectRunner` would
            first try to download another runner.)
        flags: options of Beam's.

    Raises:
        ImportError: Beam is not installed.
        OSError: the runner has left out items.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError:
        raise ImportError('A runner needs Apache Beam: pip install "gpt1-keras[beam]".') from None

    def keep(number: int, item: _Item) -> None:
        write_json(os.path.join(folder, f"{number}{_RESULT}"), function(item))

    with beam.Pipeline(options=PipelineOptions([f"--runner={runner}", *flags])) as pipeline:
        numbered = pipeline | beam.Create(list(enumerate(items))) | beam.Reshuffle()
        _ = numbered | "Work" >> beam.MapTuple(keep)
    remove_leftovers(folder)  # of workers that were killed
    paths = [pathlib.Path(folder, f"{number}{_RESULT}") for number in range(len(items))]
    if missing := sum(not path.is_file() for path in paths):
        raise OSError(f"{runner} has left out {missing} of {len(items)} parts of the work.")
    results = [read_json(path) for path in paths]
    for path in paths:
        path.unlink()
    return results
