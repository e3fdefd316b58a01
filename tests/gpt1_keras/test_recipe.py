"""What weights are fine-tuned with: kept by presets and files, used by `compile` and `fit`."""

import json
import pathlib

import keras
import pytest

import gpt1_keras
from gpt1_keras.recipe import FineTuningRecipe
from tests.helpers.eager import eagerly

OWN = {"learning_rate": 3e-4, "epochs": 1, "min_updates": 4}
TEXTS, LABELS = ["a good film", "a bad film", "a film"], ["good", "bad", "good"]


@pytest.fixture
def backbone(tiny_backbone):
    config = tiny_backbone.get_config()
    return gpt1_keras.GPT1Backbone.from_config({**config, "fine_tuning": OWN})


@pytest.fixture
def classifier(backbone, tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
    return gpt1_keras.GPT1TextClassifier(
        backbone, preprocessor=preprocessor, class_names=["bad", "good"]
    )


def peak(model):
    return model.optimizer.get_config()["learning_rate"]["config"]["peak"]


@pytest.mark.parametrize(
    ("updates", "epochs"), [(1, 200), (3, 67), (8, 25), (66, 4), (67, 3), (2105, 3)]
)
def test_three_epochs_or_as_many_as_make_200_updates(updates, epochs):
    assert FineTuningRecipe().epochs_for(updates) == epochs


def test_the_head_is_first_on_small_data():
    """Of which three epochs make less than 200 updates."""
    recipe = FineTuningRecipe(head_first=True)
    assert (recipe.fits_head_first(66), recipe.fits_head_first(67)) == (True, False)
    assert not FineTuningRecipe().fits_head_first(1)


def test_the_paper_s_data_sets_have_three_epochs():
    """Of section 4.1, except the Story Cloze Test; RTE is the next smallest, with 2,490 pairs."""
    assert FineTuningRecipe().epochs_for(-(-2490 // 32)) == 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rate": 1e-4}, r"fine_tuning.*'rate'"),
        ([1e-4], "fine_tuning"),
        ({"learning_rate": 0}, "learning_rate.* 0"),
        ({"learning_rate": float("nan")}, "learning_rate.* nan"),
        ({"learning_rate": "fast"}, "learning_rate.*'fast'"),
        ({"epochs": 2.5}, "epochs.* 2.5"),
        ({"min_updates": True}, "min_updates.* True"),
        ({"head_first": 1}, "head_first.* 1"),
    ],
)
def test_what_is_no_recipe(values, message):
    with pytest.raises(ValueError, match=message):
        gpt1_keras.LSTMBackbone(10, 4, 4, fine_tuning=values)


@pytest.mark.slow
def test_presets_and_files_keep_it(classifier, tmp_path):
    classifier.save_to_preset(str(tmp_path / "preset"))
    config = json.loads((tmp_path / "preset" / "config.json").read_text())
    assert config["config"]["fine_tuning"] == OWN
    classifier.save(str(tmp_path / "model.keras"))
    for loaded in (
        gpt1_keras.GPT1TextClassifier.from_preset(str(tmp_path / "preset")),
        gpt1_keras.GPT1TextSimilarity.from_preset(str(tmp_path / "preset"), num_classes=3),
        keras.saving.load_model(str(tmp_path / "model.keras")),
    ):
        assert loaded.backbone.recipe == FineTuningRecipe(3e-4, 1, 4)
        loaded.compile()
        assert peak(loaded) == 3e-4
    loaded.compile(gpt1_keras.optimizer.finetuning_optimizer(1e-3))
    assert peak(loaded) == 1e-3


def test_a_recipe_of_nothing_is_the_paper_s(tiny_backbone):
    assert tiny_backbone.recipe == FineTuningRecipe(6.25e-5, 3, 200)
    assert "fine_tuning" not in tiny_backbone.get_config()


def test_the_model_that_ships():
    backbone = gpt1_keras.GPT1Backbone.from_preset("gpt1_tiny_books", load_weights=False)
    assert backbone.recipe == FineTuningRecipe(learning_rate=2e-4, head_first=True)
    card = pathlib.Path(gpt1_keras.__file__).parent / "presets" / "gpt1_tiny_books" / "README.md"
    assert "2e-4" in card.read_text()


@pytest.mark.slow
def test_epochs_of_the_recipe(classifier):
    with eagerly():
        history = classifier.fit(TEXTS, LABELS, batch_size=2, epochs="auto", verbose=0)
        assert history.epoch == [0, 1]  # of two updates
        assert int(classifier.optimizer.iterations) == 4
        history = classifier.fit(TEXTS, LABELS, epochs="auto", initial_epoch=2, verbose=0)
        assert history.epoch == [2, 3, 4, 5]


def test_epochs_that_are_none(classifier):
    with pytest.raises(ValueError, match="epochs.*'all'"):
        classifier.fit(TEXTS, LABELS, epochs="all")
    batches = ((TEXTS, LABELS) for _ in range(2))
    with pytest.raises(ValueError, match="epochs='auto'"):
        classifier.fit(batches, epochs="auto")
