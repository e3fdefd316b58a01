"""Examples from real data sets and made-up ones."""

import dataclasses
import re

import numpy as np
import pytest
import tensorflow_datasets as tfds

from training.datasets.data_options import DataOptions
from training.datasets.labelled_examples import load_examples
from training.datasets.paper_datasets import DATASETS, TfdsDataset, find_dataset
from training.evaluation.fine_tuned_models import MODELS
from training.evaluation.metrics import METRICS


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, train, validation, class_names",
    [
        ("sst2", 67349, 872, ["negative", "positive"]),
        ("cola", 8551, 1043, ["unacceptable", "acceptable"]),
        ("mrpc", 3668, 408, ["not_equivalent", "equivalent"]),
        ("stsb", 5749, 1500, None),
        ("rte", 2490, 277, ["entailment", "not_entailment"]),
        ("race_middle", 25421, 1436, None),
        ("dprd", 1322, 564, None),
    ],
)
def test_real_data_sets_have_their_published_sizes(name, train, validation, class_names, tfds_dir):
    for role, count in ("train", train), ("validation", validation):
        examples = load_examples(DATASETS[name], role, DataOptions(tfds_dir))
        assert len(examples) == len(examples.labelled()) == count
        assert examples.class_names == class_names
        assert set(examples.texts) == set(DATASETS[name].fields)
        assert all(len(texts) == count for texts in examples.texts.values())


def test_texts_and_labels_are_those_of_the_data_set(tfds_dir):
    sst2 = load_examples(DATASETS["sst2"], "validation", DataOptions(tfds_dir))
    first = b"a valueless kiddie paean to pro basketball underwritten by the nba . "
    assert sst2.texts["text"][0] == first
    assert np.mean(sst2.labels) == pytest.approx(444 / 872)
    stsb = load_examples(DATASETS["stsb"], "validation", DataOptions(tfds_dir))
    assert stsb.labels.dtype == np.float32
    assert stsb.labels.min() == 0 and stsb.labels.max() == 5


@pytest.mark.parametrize("name, count", [("sst2", 1821), ("stsb", 1379)])
def test_glue_s_test_splits_have_no_labels(name, count, tfds_dir):
    test = load_examples(DATASETS[name], "test", DataOptions(tfds_dir))
    assert len(test) == count and not test.is_labelled.any()


def test_examples_without_a_label_are_left_out_on_request(made_up_tfds):
    rows = [{"premise": f"p {i}", "hypothesis": "h", "label": i % 4 - 1} for i in range(8)]
    snli = load_examples(
        DATASETS["snli"], "train", DataOptions(made_up_tfds("snli", {"train": rows}))
    )
    assert sorted(snli.labels) == [-1, -1, 0, 0, 1, 1, 2, 2]
    labelled = snli.labelled()
    numbers = [int(text.split()[1]) for text in labelled.texts["premise"]]
    assert [number % 4 - 1 for number in numbers] == labelled.labels.tolist()
    assert sorted(labelled.labels) == [0, 0, 1, 1, 2, 2]


def test_race_has_a_row_for_each_question(tfds_dir):
    race = load_examples(DATASETS["race_middle"], "validation", DataOptions(tfds_dir))
    assert [len(choices) for choices in race.texts["choices"]] == [4] * 1436
    assert set(race.labels) == {0, 1, 2, 3}
    passages, counts = np.unique(race.texts["context"], return_counts=True)
    assert len(passages) == 368 and (counts.min(), counts.max()) == (1, 6)


def of_classes(fields, count=3):
    return [
        {**{feature: f"{feature} {i}" for feature in fields}, "label": i % 2, "idx": i + 100}
        for i in range(count)
    ]


@pytest.mark.parametrize(
    "name, tfds_name, splits",
    [
        ("mnli_matched", "glue/mnli", ("train", "validation_matched", "test_matched")),
        ("mnli_mismatched", "glue/mnli", ("train", "validation_mismatched", "test_mismatched")),
        ("qnli", "glue/qnli", ("train", "validation", "test")),
        ("qqp", "glue/qqp", ("train", "validation", "test")),
        ("scitail", "sci_tail", ("train", "validation", "test")),
    ],
)
def test_builders_that_need_a_network(name, tfds_name, splits, made_up_tfds, tmp_path):
    dataset = DATASETS[name]
    rows = of_classes(dataset.fields.values())
    if tfds_name == "sci_tail":
        rows = [{key: value for key, value in row.items() if key != "idx"} for row in rows]
    every = ("validation_matched", "validation_mismatched", "test_matched", "test_mismatched")
    data_dir = made_up_tfds(
        tfds_name, dict.fromkeys({*splits, *(every if "mnli" in name else ())}, rows)
    )
    for role, split in zip(("train", "validation", "test"), splits, strict=True):
        assert dataset.split(role) == split
        examples = load_examples(dataset, role, DataOptions(data_dir))
        order = np.argsort(next(iter(examples.texts.values())))
        for field, feature in dataset.fields.items():
            assert list(examples.texts[field][order]) == [row[feature].encode() for row in rows]
        assert examples.labels[order].tolist() == [0, 1, 0]
        assert len(examples.class_names) == (3 if tfds_name == "glue/mnli" else 2)


def test_story_cloze_trains_on_most_of_its_validation_split(made_up_tfds):
    stories = [
        {"context": f"story {i}", "endings": [f"good {i}", f"bad {i}"], "label": 1 + i % 2}
        for i in range(10)
    ]
    data_dir = made_up_tfds("story_cloze/2016", {"validation": stories, "test": stories[:2]})
    parts = [
        load_examples(DATASETS["story_cloze"], role, DataOptions(data_dir))
        for role in ("train", "validation")
    ]
    assert [len(part) for part in parts] == [8, 2]
    for part in parts:
        for context, choices, label in zip(
            part.texts["context"], part.texts["choices"], part.labels
        ):
            number = int(context.split()[1])
            assert list(choices) == [b"good %d" % number, b"bad %d" % number]
            assert label == number % 2
    assert (
        len(load_examples(DATASETS["story_cloze"], "test", DataOptions(data_dir)).labelled()) == 2
    )


def test_race_of_both_levels(made_up_tfds):
    def passage(name):
        return {
            "article": f"{name} article",
            "questions": [f"{name} first", f"{name} second"],
            "answers": ["B", "C"],
            "options": [["a", "b", "c", "d"], ["e", "f", "g", "h"]],
            "example_id": name,
        }

    for level in "middle", "high":
        data_dir = made_up_tfds(f"race/{level}", {"dev": [passage(level)]})
    examples = load_examples(DATASETS["race"], "validation", DataOptions(data_dir))
    assert list(examples.texts["context"]) == [b"middle article"] * 2 + [b"high article"] * 2
    assert list(examples.texts["question"])[2:] == [b"high first", b"high second"]
    assert [list(choices) for choices in examples.texts["choices"]][1] == [b"e", b"f", b"g", b"h"]
    assert examples.labels.tolist() == [1, 2, 1, 2]


def test_refused(tfds_dir, tmp_path):
    without_feature = dataclasses.replace(DATASETS["sst2"], fields={"text": "phrase"})
    for dataset, role, data_dir, error, message in (
        (DATASETS["sst2"], "train", str(tmp_path), FileNotFoundError, "--data-dir.*--download"),
        (DATASETS["snli"], "train", tfds_dir, ValueError, r"\['test', 'validation'\]"),
        (without_feature, "validation", tfds_dir, ValueError, r"\['phrase'\]"),
    ):
        with pytest.raises(error, match=message):
            load_examples(dataset, role, DataOptions(data_dir))
    with pytest.raises(ValueError, match=r"'sst3'; expected one of \['cola', "):
        find_dataset("sst3")


def test_every_task_has_a_model_and_metrics():
    for dataset in DATASETS.values():
        assert isinstance(dataset, TfdsDataset)
        assert dataset.metrics and set(dataset.metrics) <= set(METRICS)
        assert dataset.kind in MODELS
    published = {
        name: dataset for name, dataset in DATASETS.items() if dataset.paper_score is not None
    }
    assert DATASETS.keys() - published.keys() == {"snli_slice", "dprd"}
    for dataset in published.values():
        assert 30 < dataset.previous_best < dataset.paper_score + 6 < 100


def test_pronouns_are_resolved_by_choosing(tfds_dir):
    """Context and choice are the data set's sentence, with a name in the pronoun's place."""
    builder = tfds.builder("definite_pronoun_resolution", data_dir=tfds_dir)
    examples = load_examples(DATASETS["dprd"], "validation", DataOptions(tfds_dir))
    rows = tfds.as_numpy(builder.as_dataset(split="test"))
    columns = (examples.texts["context"], examples.texts["choices"], examples.labels)
    for row, context, choices, label in zip(rows, *columns, strict=True):
        pronoun = re.compile(rf"\b{row['pronoun'].decode()}\b", re.IGNORECASE)
        sentence = row["sentence"].decode()
        for name, choice in zip(row["candidates"], choices, strict=True):
            expected = pronoun.sub(name.decode(), sentence, count=1)
            assert (context + choice).decode() == expected
            assert choice.startswith(name)
        assert label == row["label"]


def test_the_slice_of_snli(tfds_dir):
    """Its pairs without a label are left out, as in the paper's split."""
    train, validation = (
        load_examples(DATASETS["snli_slice"], role, DataOptions(tfds_dir)).labelled()
        for role in ("train", "validation")
    )
    assert (len(train), len(validation)) == (9824, 9842)
    assert train.class_names == ["entailment", "neutral", "contradiction"]
