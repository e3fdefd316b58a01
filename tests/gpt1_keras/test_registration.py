"""Keras and KerasHub know our classes after `import gpt1_keras`, whichever was imported first."""

import pathlib
import subprocess
import sys

import pytest

SAVED = pathlib.Path(__file__).parent / "presets" / "saved_models"
CLASSIFIER, SIMILARITY = SAVED / "classifier", SAVED / "similarity.keras"
USE = f"""
import keras, keras_hub

backbone = keras_hub.models.Backbone.from_preset({str(CLASSIFIER)!r})
assert type(backbone).__name__ == "GPT1Backbone", backbone
task = keras_hub.models.TextClassifier.from_preset({str(CLASSIFIER)!r})
assert type(task).__name__ == "GPT1TextClassifier", task
model = keras.saving.load_model({str(SIMILARITY)!r})
assert type(model).__name__ == "GPT1TextSimilarity", model
assert "gpt1_tiny_books" in keras_hub.models.Backbone.presets
"""


OTHERS = ("keras", "keras_hub", "keras_nlp", "tensorflow", "transformers")
THREADS = """
import threading, time, traceback
import gpt1_keras

def wait_for(name):
    while name not in sys.modules:
        time.sleep(0.001)

def run(statement, failed):
    try:
        exec(statement, globals())
    except BaseException:
        failed.append(traceback.format_exc())

failed = []
statements = [
    "import keras",
    "wait_for('keras_hub'); import gpt1_keras.tasks.causal_lm",  # while that imports our classes
]
threads = [threading.Thread(target=run, args=(each, failed)) for each in statements]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "imports",
    [
        *(f"import gpt1_keras, {other}" for other in OTHERS),
        *(f"import {other}, gpt1_keras" for other in OTHERS),
        "import tensorflow, gpt1_keras, keras_hub",
        "import gpt1_keras, transformers, keras_nlp",
        "import gpt1_keras, keras, keras_hub",
        "import gpt1_keras.upstream",
        "from gpt1_keras.presets import load_task",
        "from gpt1_keras.optimization.objective import *",
        pytest.param(THREADS, id="threads"),
    ],
)
def test_classes_are_known(imports):
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{imports}\n{USE}"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


def test_keras_is_imported_when_it_is_needed():
    """And then KerasHub may be what imports it."""
    script = """
import sys
import gpt1_keras
from gpt1_keras import cli, labelled_files
from gpt1_keras.presets import CONFIGURATIONS, PRESET_HELP

assert "keras" not in sys.modules and "numpy" not in sys.modules
assert "GPT1Backbone" in dir(gpt1_keras) and not hasattr(gpt1_keras, "GPT2Backbone")
assert "keras" not in sys.modules

import keras_hub

known = keras_hub.src.utils.preset_utils.list_subclasses(keras_hub.models.Task)
assert "GPT1TextClassifier" in [each.__name__ for each in known]

convert = optimizer = presets = __version__ = "a user's"
from gpt1_keras import *

assert {convert, optimizer, presets, __version__} == {"a user's"}
assert GPT1Backbone is gpt1_keras.GPT1Backbone and gpt1_keras.optimizer.finetuning_optimizer
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)
