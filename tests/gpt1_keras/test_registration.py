"""Keras and KerasHub know our classes after `import gpt1_keras`, whichever was imported first."""

import pathlib
import subprocess
import sys

import pytest

SAVED = pathlib.Path(__file__).parent / "presets" / "saved_models"
CLASSIFIER, SIMILARITY = SAVED / "classifier", SAVED / "similarity.keras"
USE = f"""
import keras, keras_hub, sys

backbone = keras_hub.models.Backbone.from_preset({str(CLASSIFIER)!r})
assert type(backbone).__name__ == "GPT1Backbone", backbone
task = keras_hub.models.TextClassifier.from_preset({str(CLASSIFIER)!r})
assert type(task).__name__ == "GPT1TextClassifier", task
model = keras.saving.load_model({str(SIMILARITY)!r})
assert type(model).__name__ == "GPT1TextSimilarity", model
assert "gpt1_tiny_books" in keras_hub.models.Backbone.presets
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "imports",
    [
        "import gpt1_keras",
        "import keras, gpt1_keras",
        "import gpt1_keras, tensorflow",
        "import gpt1_keras.upstream",
        "from gpt1_keras.presets import load_task",
        "from gpt1_keras.optimization.objective import *",
    ],
)
def test_classes_are_known(imports):
    done = subprocess.run(
        [sys.executable, "-c", imports + USE], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr


def test_keras_is_imported_when_it_is_needed():
    script = """
import sys
import gpt1_keras
from gpt1_keras import cli, labelled_files
from gpt1_keras.presets import CONFIGURATIONS, PRESET_HELP

assert "keras" not in sys.modules and "numpy" not in sys.modules
assert "GPT1Backbone" in dir(gpt1_keras) and not hasattr(gpt1_keras, "GPT2Backbone")
assert "keras" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
