"""What the signature `explain` costs: the export's size, time and memory, beside one without it.

    python -m benchmarks.explanation_costs --tokenizer DIR --exports DIR

A classifier with random weights is exported without `explain` and with each of its methods; what is
in the folder `--exports` already is measured as it is. Each export is run in a process of its own,
in TensorFlow's C++ runtime, without a server: one text of 20 words. The machine must be idle.
"""

import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

from benchmarks.common.setting import SIZES, describe, table

_PLAIN = "none"
_WORDS = 20
_ROUNDS = 5
_PER_ROUND = {"serving_default": 4, "explain": 1}  # in turns, as a machine's speed changes


def main():
    options = _parser().parse_args()
    if options.one:
        print(json.dumps(_measure(pathlib.Path(options.one))))
        return
    folder = pathlib.Path(options.exports)
    names = _export(options, folder)
    if options.only_export:
        return
    rows = []
    for name in names:
        command = [
            sys.executable,
            "-m",
            "benchmarks.explanation_costs",
            "--one",
            folder / name / "1",
        ]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = json.loads(output.splitlines()[-1])
        print(name, found, file=sys.stderr, flush=True)
        columns = ("graph", "file", "serving_default", "explain", "before", "after")
        rows.append([name, *(_cell(found.get(column)) for column in columns)])
    header = ["--explain", "graph, MB", "file, MB", "serving_default, ms", "explain, ms"]
    header += ["memory before, MB", "and after, MB"]
    command = shlex.join(["python", "-m", "benchmarks.explanation_costs", *sys.argv[1:]])
    print(f"{describe()}. Medians; a text of {_WORDS} words. `{command}`\n\n{table(header, rows)}")


def _export(options, folder):
    """Writes the exports that are missing; returns the names of all."""
    # Imported where it is needed, so that the other process starts sooner.
    import gpt1_keras
    from serving.export import export
    from serving.export.export_options import METHODS, Explanation

    explanations = {_PLAIN: None, **{name: Explanation(name) for name in METHODS}}
    if missing := [name for name in explanations if not (folder / name / "1").exists()]:
        tokenizer = gpt1_keras.GPT1Tokenizer(
            f"{options.tokenizer}/encoder_bpe_40000.json", f"{options.tokenizer}/vocab_40000.bpe"
        )
        classifier = gpt1_keras.GPT1TextClassifier(
            gpt1_keras.GPT1Backbone(**SIZES[options.size]),
            class_names=["negative", "positive"],
            preprocessor=gpt1_keras.GPT1TextClassifierPreprocessor(tokenizer),
        )
        for name in missing:
            export(classifier, folder / name, explanation=explanations[name])
    return list(explanations)


def _measure(path):
    """Sizes in MB, medians in milliseconds, and the memory in MB before and after explanations."""
    import tensorflow as tf

    from serving.server.models.servable import Servable

    files = [file.stat().st_size / 1e6 for file in path.rglob("*") if file.is_file()]
    found = {"graph": (path / "saved_model.pb").stat().st_size / 1e6, "file": sum(files)}
    servable = Servable("model", 1, path)
    texts = {"text": tf.make_tensor_proto(["the film was good " * (_WORDS // 4)])}
    signatures = [name for name in _PER_ROUND if name in servable.signature_defs]
    for signature, moment in zip(signatures, ("before", "after")):
        servable.predict(signature, texts)  # the first optimizes the graph
        found[moment] = _most_memory()
    seconds = {signature: [] for signature in signatures}
    for signature in signatures * _ROUNDS:
        for _ in range(_PER_ROUND[signature]):
            started = time.perf_counter()
            servable.predict(signature, texts)
            seconds[signature].append(time.perf_counter() - started)
    return found | {name: 1000 * statistics.median(each) for name, each in seconds.items()}


def _most_memory():
    """The most memory that this process has had, in MB."""
    [line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1e3


def _cell(value):
    return "" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.explanation_costs",
        description="What the signature `explain` costs: size, time and memory.",
    )
    parser.add_argument("--tokenizer", help="folder of the original vocabulary and merges")
    parser.add_argument("--exports", help="folder of the exports, written where they are missing")
    parser.add_argument("--size", choices=SIZES, default="paper")
    parser.add_argument("--only-export", action="store_true", help="measure nothing")
    parser.add_argument("--one", metavar="PATH", help="measure one export, and print JSON")
    return parser


if __name__ == "__main__":
    main()
