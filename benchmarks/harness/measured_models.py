"""The models that are measured: their sizes, and classifiers and exports with random weights."""

import pathlib

LABELS = ["negative", "positive"]
# gpt1_paper, gpt1_tiny and gpt1_micro, each with its own vocabulary; written out, so that a process
# without TensorFlow can read them.
SIZES = {
    "paper": {
        "vocabulary_size": 40481,
        "num_layers": 12,
        "num_heads": 12,
        "hidden_dim": 768,
        "intermediate_dim": 3072,
        "max_sequence_length": 512,
    },
    "tiny": {
        "vocabulary_size": 8228,
        "num_layers": 4,
        "num_heads": 4,
        "hidden_dim": 256,
        "intermediate_dim": 1024,
        "max_sequence_length": 256,
    },
    "micro": {
        "vocabulary_size": 1000,
        "num_layers": 2,
        "num_heads": 4,
        "hidden_dim": 128,
        "intermediate_dim": 512,
        "max_sequence_length": 128,
    },
}
# Arguments of exports, by name. All exports except the last merge requests in the graph.
EXPORTS = {
    "float32": {},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"int8": True},
    "unmerged": {"batching": None},
}


def tokenizer_files(folder):
    """Returns the paths of the original vocabulary and merges in a folder."""
    return f"{folder}/encoder_bpe_40000.json", f"{folder}/vocab_40000.bpe"


def random_classifier(size, tokenizer):
    """Makes a classifier with random weights.

    Args:
        size: a name in `SIZES`; the vocabulary is the tokenizer's.
        tokenizer: folder of the original vocabulary and merges.
    """
    import keras

    import gpt1_keras

    tokenizer = gpt1_keras.GPT1Tokenizer(*tokenizer_files(tokenizer))
    keras.utils.set_random_seed(0)
    size = SIZES[size] | {"vocabulary_size": tokenizer.vocabulary_size()}
    return gpt1_keras.GPT1TextClassifier(
        gpt1_keras.GPT1Backbone(**size),
        class_names=LABELS,
        preprocessor=gpt1_keras.GPT1TextClassifierPreprocessor(tokenizer),
    )


def export_missing(names, size, tokenizer, folder, calibration=()):
    """Writes the exports that a folder does not hold yet.

    Args:
        names: keys of `EXPORTS`.
        size, tokenizer: as in `random_classifier`.
        folder: folder of the exports.
        calibration: list of str, for int8.

    Returns:
        The exports' base paths, by name.
    """
    paths = {name: pathlib.Path(folder) / name for name in names}
    if missing := [name for name, path in paths.items() if not path.exists()]:
        from serving.export import export
        from serving.export.export_options import Batching

        classifier = random_classifier(size, tokenizer)
        for name in missing:
            arguments = {"batching": Batching(), **EXPORTS[name]}
            if "int8" in arguments:
                arguments["calibration"] = [{"text": text} for text in calibration]
            export(classifier, paths[name], **arguments)
    return paths
