"""Texts that do not look like English: German workbooks, and English of many kinds."""

import pathlib

import pytest

from gpt1_keras.labelled_files import open_table
from gpt1_keras.presets import load_tokenizer
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from training.datasets.data_options import DataOptions
from training.datasets.labelled_examples import load_examples
from training.datasets.language import count_unlike_english
from training.datasets.paper_datasets import DATASETS

OTHERS = [
    "Je n'ai toujours pas reçu mon colis, pouvez-vous me rembourser ?",
    "Il prodotto è arrivato rotto e vorrei cambiarlo.",
    "Het product wat ik kocht werkt niet, en ik wil het ruilen.",
    "Produkt przyszedł uszkodzony i chcę go wymienić.",
    "Я до сих пор не получил посылку.",
    "我还没有收到包裹。",
    "Спасибо!",
]
ENGLISH = [
    "Where is my parcel? It was sent a week ago.",
    "Thx, great service 👍",
    "Refund asap!!",
    "",
    "4711 12,50 €",
    "COVID-19 vaccination certificate upload fails when I click on it.",
    "déjà vu",
]


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer("gpt1_tiny_books")


def test_other_languages(tokenizer):
    assert count_unlike_english(OTHERS, tokenizer) == len(OTHERS)
    assert count_unlike_english(ENGLISH, tokenizer) == 0
    assert count_unlike_english([], tokenizer) == 0


def test_german_workbooks(tokenizer, tfds_dir):
    folder = pathlib.Path(tfds_dir).parent / "sheets"
    if not folder.exists():
        pytest.skip("the workbooks are not here")
    for name in ("juni_klein.xlsx", "two_labels.xlsx", "cp1252.csv"):
        table = open_table(folder / name, {"text": "Nachricht"}, [("text",)])
        texts = [str(row["text"]) for row in table]
        assert count_unlike_english(texts, tokenizer) > 0.8 * len(texts)


@pytest.mark.parametrize("name", ["sst2", "cola", "mrpc", "rte", "stsb", "race_middle"])
def test_english_data_sets(name, tokenizer, tfds_dir):
    examples = load_examples(DATASETS[name], "validation", DataOptions(tfds_dir)).sample(300, 0)
    texts = list(examples.all_texts())
    assert count_unlike_english(texts, tokenizer) < 0.15 * len(texts)


def test_a_tokenizer_of_another_language_says_nothing():
    tokenizer = GPT1Tokenizer.learn([text for text in OTHERS for _ in range(9)], 100)
    assert count_unlike_english([*OTHERS, *ENGLISH], tokenizer) == 0
