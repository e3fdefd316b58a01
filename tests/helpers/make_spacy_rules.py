"""Writes spacy_rules.json: spaCy 2.0.18's rules for the Python pipeline.

    python -m tests.helpers.make_spacy_rules WHEELS

WHEELS holds spaCy's wheel; `tests.helpers.make_original_tables` says how to get it.
"""

import argparse
import dataclasses
import json
import pathlib

from benchmarks.peers.python_pipeline import RULES_FILE
from gpt1_keras.files import atomic_path
from tests.helpers.make_original_tables import find_wheels
from tests.helpers.spacy_rules import read_spacy_rules


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.helpers.make_spacy_rules")
    parser.add_argument("wheels", help="folder with spaCy's and ftfy's published wheels")
    rules = dataclasses.asdict(read_spacy_rules(find_wheels(parser.parse_args().wheels)[0]))
    with atomic_path(RULES_FILE) as temporary:
        text = json.dumps(rules, ensure_ascii=False, indent=0)
        pathlib.Path(temporary).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
