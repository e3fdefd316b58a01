"""Makes pairs that no model here was tuned to: does a sentence hold the answer of a question?

python docs/evidence/question_sentences/make_pairs.py DATA_DIR

From the questions of RACE-middle that end in "?": the sentence of the passage that alone has the
right answer word for word, and another sentence of it. The first 1,050 questions are learned from
(train.csv), the others, and those of the validation split, are scored (validation.csv).
"""

import csv
import random
import re
import sys
from collections.abc import Iterator

import tensorflow_datasets as tfds

LEARNED, LEAST_WORDS, LEAST_LETTERS = 2100, 4, 4


def pairs(split: str, data_dir: str, random_numbers: random.Random) -> Iterator[tuple[str, ...]]:
    """Yields two pairs of each question: a question, a sentence and its label."""
    builder = tfds.builder("race/middle", data_dir=data_dir)
    for example in tfds.as_numpy(builder.as_dataset(split)):
        sentences = [
            sentence.strip()
            for sentence in re.split(r"(?<=[.!?])\s+|\n+", example["article"].decode())
            if len(sentence.split()) >= LEAST_WORDS
        ]
        columns = example["questions"], example["answers"], example["options"].to_list()
        for question, letter, options in zip(*columns):
            question = question.decode().strip()
            answer = options["ABCD".index(letter.decode())].decode().strip().rstrip(".").lower()
            if not question.endswith("?") or len(answer) < LEAST_LETTERS:
                continue
            pattern = re.compile(rf"\b{re.escape(answer)}\b")
            right = [sentence for sentence in sentences if pattern.search(sentence.lower())]
            others = [sentence for sentence in sentences if sentence != right[0]] if right else []
            if len(right) == 1 and others:
                yield question, right[0], "answers"
                yield question, random_numbers.choice(others), "does not"


def main() -> None:
    """Writes both files to the working directory."""
    [data_dir] = sys.argv[1:]
    random_numbers = random.Random(0)
    first = list(pairs("train", data_dir, random_numbers))
    last = list(pairs("dev", data_dir, random_numbers))
    for name, rows in (("train", first[:LEARNED]), ("validation", first[LEARNED:] + last)):
        random_numbers.shuffle(rows)
        with open(f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("premise", "hypothesis", "label"), *rows])


if __name__ == "__main__":
    main()
