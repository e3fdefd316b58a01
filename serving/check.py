"""Checks that an export will run in TensorFlow Serving, before it is deployed.

    gpt1 check exports/sst2
    gpt1 check exports/sst2/1 --tf-dir OLDER/site-packages/tensorflow
    gpt1 check exports/sst2 --tune

It prints what the export is, and runs every signature in TensorFlow's C++ runtime, which is also
inside TensorFlow Serving. The process has no Python TensorFlow, and reads a copy in another folder.
With --tf-dir, the libraries of other versions run it too, and must return the same outputs. The
requests are the export's warm-up requests; a signature without one gets a made-up request. With
--tune, it also measures for a minute which settings of a server are fastest on this machine.
"""

import collections
import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from gpt1_keras.cli import option, program
from serving.export_names import METADATA_FILE, find_export


@dataclasses.dataclass(frozen=True)
class _CheckOptions:
    model: str = option(
        "folder of one version, or the one above it, for the newest version", name="model"
    )
    tf_dir: tuple[str, ...] | None = option(
        "folder of an installed tensorflow package whose libraries to run it in; may be given "
        "several times (default: that of this Python)",
        None,
        consume_multiple=False,
        metavar="DIR",
    )
    tune: bool = option(
        "also measure which settings of a server are fastest for it on this machine, in a minute",
        False,
    )


@program("serving.check")
def main(options: _CheckOptions) -> int:
    """Run every signature of an export in TensorFlow's C++ runtime, as TensorFlow Serving does, and
    print what the export is. The exit status is 1 if there are problems.
    """
    import tensorflow as tf

    from serving.export import check
    from serving.export.check import failures, requests_for, run_in, unfused
    from serving.export.server_settings import tuned
    from serving.server.errors import ServingError
    from serving.server.inference import read_warmup

    path = Path(options.model)
    try:
        path = find_export(path)
        graph = check.read_graph(path)
        requests = requests_for(graph, read_warmup(path))
        print("\n".join([str(path), *_description(path)]))
        problems = [*check.foreign_paths(graph), *check.composite_outputs(graph)]
        folders = options.tf_dir or (Path(tf.__file__).parent,)
        runs = [run_in(folder, path, requests) for folder in folders]
    except (OSError, ValueError, ServingError) as error:
        raise ValueError(f"Cannot check {path}: {error}") from error
    counts = collections.Counter(f"{each.signature}, requests {each.origin}" for each in requests)
    for run in runs:
        print(f"TensorFlow {run['version']}")
        if "error" not in run:
            for line, count in counts.items():
                print(f"  {line}: {count}")
            is_ours = (path / METADATA_FILE).exists()  # with biases in every block
            for note in unfused(requests, run) if is_ours else ():
                print(f"  {note}")
        found = [*failures(requests, run, runs[0]), *check.foreign_ops(graph, run["ops"])]
        problems += [f"TensorFlow {run['version']}: {problem}" for problem in found]
    if options.tune and not problems:
        for line in tuned(folders[0], path, requests):
            print(line)
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print(f"problems: {len(problems)}")
    return 1 if problems else 0


def _description(path: Path) -> Iterator[str]:
    file = path / METADATA_FILE
    if not file.exists():
        yield "  made by another program, which did not say how"
        return
    for name, value in json.loads(file.read_text()).items():
        if value is not None:
            yield f"  {name}: {', '.join(map(str, value)) if isinstance(value, list) else value}"


if __name__ == "__main__":
    sys.exit(main())
