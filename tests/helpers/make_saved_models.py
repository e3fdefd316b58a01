"""Makes the models in `tests/gpt1_keras/presets/saved_models`, and their predictions.

They were made at git revision cc02369, to show that later code loads what earlier code saved:

    git worktree add ../before cc02369
    PYTHONPATH=../before python tests/helpers/make_saved_models.py FOLDER
"""

import json
import pathlib
import sys

import keras
import numpy as np

import gpt1_keras

TEXT = ["a good film", "bad"]
PRESETS = ("classifier", "chooser")  # the others are .keras files
INPUTS = {
    "classifier": TEXT,
    "similarity": (TEXT, TEXT[::-1]),
    "chooser": {"context": ["a film"], "question": ["good"], "choices": [["bad", "film a"]]},
    "lm": {
        "token_ids": np.array([[3, 4, 5], [6, 7, 0]]),
        "padding_mask": np.array([[1, 1, 1], [1, 1, 0]]),
    },
    "lstm": TEXT,
}


def main(folder: pathlib.Path) -> None:
    keras.utils.set_random_seed(1)
    tokenizer = gpt1_keras.GPT1Tokenizer.learn(["a good film", "a bad film"] * 3, num_merges=8)
    size = tokenizer.vocabulary_size()
    blocks = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
    backbone = gpt1_keras.GPT1Backbone(size, max_sequence_length=16, **blocks)
    lstm = gpt1_keras.LSTMBackbone(size, hidden_dim=8, units=8, max_sequence_length=16)
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tokenizer, 16)
    tasks = {
        "classifier": gpt1_keras.GPT1TextClassifier(
            backbone,
            class_names=["bad", "good"],
            activation="softmax",
            preprocessor=preprocessor,
            dropout=0.2,
        ),
        "similarity": gpt1_keras.GPT1TextSimilarity(
            backbone,
            score_range=(0, 5),
            preprocessor=gpt1_keras.GPT1TextSimilarityPreprocessor(tokenizer, 16),
        ),
        "chooser": gpt1_keras.GPT1MultipleChoice(
            backbone, gpt1_keras.GPT1MultipleChoicePreprocessor(tokenizer, 16), temperature=1.5
        ),
        "lm": gpt1_keras.GPT1CausalLM(backbone),
        "lstm": gpt1_keras.GPT1TextClassifier(lstm, num_classes=3, preprocessor=preprocessor),
    }
    random = np.random.default_rng(4)
    expected = {}
    for task in tasks.values():
        for variable in task.trainable_variables:
            variable.assign(variable + random.normal(0.0, 0.1, variable.shape))
    for name, task in tasks.items():
        if name in PRESETS:
            task.save_to_preset(str(folder / name))
        else:
            task.save(folder / f"{name}.keras")
        expected[name] = np.asarray(task.predict(INPUTS[name], verbose=0)).tolist()
    (folder / "predictions.json").write_text(json.dumps(expected, indent=2) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
