"""Runs the benchmarks, one after the other, and writes what they find into docs/benchmarks.md.

    python -m benchmarks                         # all: hours
    python -m benchmarks packing --batches 4     # one, with options of its own

Each prints one line a figure. The page keeps what was found on each machine, by its processor and
flags, and of each machine a picture. What needs data that is not in the folder `--shared` is left
out, and so is what the machine cannot compute, with a line that says so. Nothing else may run.

Not among them: how good answers are (`benchmarks.embeddings`, `.explanations`,
`.original_agreement`), how soon a decoder learns to copy (`.copying`), half an hour of faults
(`.soak`), and where time goes (`.kernels`).
"""

import argparse
import os
import pathlib
import re
import string
import subprocess
import sys

from benchmarks.common.page import read_reports, tables_of, write_reports
from benchmarks.common.setting import machine
from gpt1_keras.files import atomic_path

PAGE = pathlib.Path(__file__).parents[1] / "docs/benchmarks.md"
_TOKENIZER = "--tokenizer {tokenizer}"
_TEXTS = "--data-dir {data_sets} --tokenizer {tokenizer}"
# Of training, what a CPU trains with: XLA's step would take an hour more.
_TRAINING = "ours_graph,plain_graph,hugging_face,keras_hub_graph"
_TRAINING_BFLOAT16 = "ours_graph_bfloat16,hugging_face_bfloat16,keras_hub_graph_bfloat16"
PROGRAMS = {
    "import_time": "",
    "tokenizer": "--vocabulary {vocabulary} --merges {merges} --text {book}",
    "short_texts": "--vocabulary {vocabulary} --merges {merges} --data-dir {data}",
    "original_tokenizer": "--vocabulary {vocabulary} --merges {merges} --data-dir {data}",
    "training_step": f"--only {_TRAINING},{_TRAINING_BFLOAT16} --steps 3",
    "finetuning": "--data-dir {data_sets}",
    "generation": "",
    "multiple_choice": _TEXTS,
    "packing": f"{_TEXTS} --exports {{exports}}/packing",
    "costs": f"{_TOKENIZER} --exports {{exports}}/precisions",
    "int8_serving": f"{_TEXTS} --exports {{exports}}/precisions",
    "serving": _TEXTS,
    "language_model_serving": "",
    "warmup": _TEXTS,
    "overload": _TOKENIZER,
    "on_device": "--model {classifier} --task sst2 --data-dir {data_sets}",
}
_PLOTTED = ("costs", "int8_serving")


def main():
    options = _parser().parse_args()
    chosen = [options.program] if options.program else list(PROGRAMS)
    values = _values(options)
    failed = []
    for name in chosen:
        fields = [field for _, field, _, _ in string.Formatter().parse(PROGRAMS[name]) if field]
        if missing := [field for field in fields if values[field] is None]:
            print(f"{name}: left out, as it needs {' and '.join(missing)}; see --help", flush=True)
            continue
        arguments = PROGRAMS[name].format(**values).split() + options.more
        command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if run.returncode:
            failed.append(f"{name}: exit status {run.returncode}")
            print(failed[-1], flush=True)
            continue
        for rows in tables_of(run.stdout):
            for labels, figures in rows:
                for column, figure in filter(all, figures.items()):
                    print(f"{name}: {', '.join(labels)}: {column}: {figure}", flush=True)
        _write(name, run.stdout.replace(values["shared"], "$GPT1_KERAS_SHARED"), options.page)
    if failed:
        raise SystemExit("\n".join(failed))


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Runs the benchmarks and writes their tables into docs/benchmarks.md.",
    )
    shared = os.environ.get("GPT1_KERAS_SHARED", "../shared")
    parser.add_argument(
        "--shared",
        type=pathlib.Path,
        default=shared,
        help="folder of data/: the original vocabulary, books, data sets (default: %(default)s, "
        "from GPT1_KERAS_SHARED)",
    )
    parser.add_argument(
        "--exports", default="build/benchmarks", help="folder to keep models in (%(default)s)"
    )
    parser.add_argument("--classifier", help="a fine-tuned preset of SST-2, for on_device")
    parser.add_argument("--page", type=pathlib.Path, default=PAGE, help="default: %(default)s")
    parser.add_argument("program", nargs="?", choices=PROGRAMS, help="the only one to run")
    parser.add_argument("more", nargs=argparse.REMAINDER, help="options of that program")
    return parser


def _values(options):
    """What the programs' arguments are made of; None for what is not here."""
    data = options.shared.absolute() / "data"
    tokenizer, books = data / "gpt1_bpe", data / "books/valid"
    longest = max(
        books.glob("*.txt"), key=lambda path: path.stat().st_size, default=books / "book.txt"
    )
    paths = {
        "data": data,
        "data_sets": data / "tfds",
        "tokenizer": tokenizer,
        "vocabulary": tokenizer / "encoder_bpe_40000.json",
        "merges": tokenizer / "vocab_40000.bpe",
        "book": longest,
    }
    found = {name: str(path) if path.exists() else None for name, path in paths.items()}
    return found | {
        "shared": str(options.shared.absolute()),
        "exports": options.exports,
        "classifier": options.classifier,
    }


def _write(name, report, page):
    """Puts a report into the page, and draws the picture again if it has figures of it."""
    text = page.read_text(encoding="utf-8")
    reports = read_reports(text)
    here = reports.setdefault(machine(), {})
    here[name] = report.strip()
    if name in _PLOTTED and "costs" in here:
        from benchmarks.plot_costs import plot_costs

        slug = re.sub(r"\W+", "_", machine().lower()).strip("_")
        picture = page.with_name(f"costs_{slug}.svg")
        plot_costs(machine(), here, picture)
        link = f"![What an answer costs each peer]({picture.name})"
        if link not in here["costs"]:
            here["costs"] += f"\n\n{link}"
    with atomic_path(page) as temporary:
        pathlib.Path(temporary).write_text(write_reports(text, reports), encoding="utf-8")


if __name__ == "__main__":
    main()
