"""A classifier of random weights in each precision that this machine computes, ours and peers'."""

import pathlib
import subprocess
import sys

from benchmarks.common.setting import SIZES, why_not

PRECISIONS = {
    "float32": {},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"int8": True},
}


def export_missing(precisions, folder, size, tokenizer, calibration):
    """Writes the exports, with batching in the graph, that a folder does not hold yet.

    Args:
        precisions: names in `PRECISIONS`.
        folder: `pathlib.Path`.
        size: a name in `SIZES`.
        tokenizer: folder of both files of the original.
        calibration: list of str, for int8.

    Returns:
        The exports' base paths, by precision.
    """
    paths = {name: pathlib.Path(folder) / name for name in precisions}
    if missing := [name for name, path in paths.items() if not path.exists()]:
        # Imported where it is needed, as TensorFlow takes seconds.
        import keras

        import gpt1_keras
        from serving.export import export
        from serving.export.export_options import Batching

        tokenizer = gpt1_keras.GPT1Tokenizer(
            f"{tokenizer}/encoder_bpe_40000.json", f"{tokenizer}/vocab_40000.bpe"
        )
        keras.utils.set_random_seed(0)
        classifier = gpt1_keras.GPT1TextClassifier(
            gpt1_keras.GPT1Backbone(
                **SIZES[size] | {"vocabulary_size": tokenizer.vocabulary_size()}
            ),
            class_names=["negative", "positive"],
            preprocessor=gpt1_keras.GPT1TextClassifierPreprocessor(tokenizer),
        )
        for name in missing:
            arguments = dict(PRECISIONS[name])
            if "int8" in arguments:
                arguments["calibration"] = [{"text": text} for text in calibration]
            export(classifier, paths[name], batching=Batching(), **arguments)
    return paths


def make_peers(peers, folder, size, tokenizer, calibration):
    """Makes the files of peers' models that a folder does not hold yet, each in a process.

    Args:
        peers: names of `benchmarks.peers.classifiers`.
        folder, size, tokenizer, calibration: as in `export_missing`.

    Returns:
        The arguments of `python -m` that serve each peer, without its port; lists by name.
    """
    folder = pathlib.Path(folder) / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    texts = folder / "calibration.txt"
    texts.write_text("\n".join(" ".join(text.split()) for text in calibration), encoding="utf-8")
    common = [f"--size={size}", f"--tokenizer={tokenizer}", f"--folder={folder}"]
    common.append(f"--calibration={texts}")
    commands = {name: ["benchmarks.peers.fastapi_app", name, *common] for name in peers}
    for name, command in commands.items():
        if not name.startswith("torch"):  # which has no files
            subprocess.run([sys.executable, "-m", *command], check=True, stdout=subprocess.DEVNULL)
    return commands


def why_not_ours(precision):
    """Why an export in a precision is not measured on this machine; None if it is."""
    if precision == "int8" and not why_not(precision):
        from serving.export.decoder.int8_support import check_this_machine

        try:
            check_this_machine()
        except ValueError as error:
            return str(error)
    return why_not(precision)


def measured_here(names, reason=why_not_ours):
    """Of some names, those that are measured on this machine, and a line on each of the others.

    Args:
        names: list of str.
        reason: function from a name to why it is left out, or None.

    Returns:
        `(names, lines)`.
    """
    reasons = {name: reason(name) for name in names}
    lines = [f"- Left out: {name}: {why}" for name, why in reasons.items() if why]
    return [name for name, why in reasons.items() if not why], lines
