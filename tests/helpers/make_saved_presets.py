"""Makes the presets of `tests/gpt1_keras/tasks/saved_presets`, and what they predict.

They were written at git revision b9235c8, to prove that later code loads what earlier code saved:

    git worktree add ../before b9235c8
    PYTHONPATH=../before python tests/helpers/make_saved_presets.py FOLDER
"""

import json
import pathlib
import sys

import keras
import numpy as np

import gpt1_keras

INPUTS = {
    "classifier": ["a good film", "bad"],
    "chooser": {"context": ["a film"], "question": ["good"], "choices": [["bad", "film a"]]},
}


def main(folder: pathlib.Path) -> None:
    keras.utils.set_random_seed(1)
    tokenizer = gpt1_keras.GPT1Tokenizer.learn(["a good film", "a bad film"] * 3, num_merges=8)
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
    backbone = gpt1_keras.GPT1Backbone(tokenizer.vocabulary_size(), max_sequence_length=16, **sizes)
    tasks = {
        "classifier": gpt1_keras.GPT1TextClassifier(
            backbone,
            class_names=["bad", "good"],
            activation="softmax",
            preprocessor=gpt1_keras.GPT1TextClassifierPreprocessor(tokenizer, 16),
            dropout=0.2,
        ),
        "chooser": gpt1_keras.GPT1MultipleChoice(
            backbone, gpt1_keras.GPT1MultipleChoicePreprocessor(tokenizer, 16)
        ),
    }
    random = np.random.default_rng(4)
    expected = {}
    for name, task in tasks.items():
        for variable in (task.head.kernel, task.head.bias):
            variable.assign(variable + random.normal(0.0, 0.3, variable.shape))
        task.save_to_preset(str(folder / name))
        outputs = task.predict(INPUTS[name], verbose=0).tolist()
        expected[name] = {"inputs": INPUTS[name], "outputs": outputs}
    (folder / "predictions.json").write_text(json.dumps(expected, indent=2) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
