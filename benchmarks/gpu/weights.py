"""Takes a pre-training's weights home: half precision there, a preset here.

    KERAS_BACKEND=jax python -m benchmarks.gpu.weights take RUN CORPUS weights.npz
    python -m benchmarks.gpu.weights keep weights.npz CORPUS PRESET

`take` reads the run's newest checkpoint, whose optimizer stays behind: float16 arrays of the
backbone, and the run's options. `keep` needs TensorFlow, for the tokenizer.
"""

import argparse
import json
import pathlib

import numpy as np

from gpt1_keras.files import atomic_path
from training.corpus.corpus_format import Corpus
from training.runs.checkpoints import Checkpoints
from training.runs.pretrain_options import PretrainOptions
from training.runs.pretraining import build_model, make_preset
from training.runs.run_folder import recorded_options


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.weights")
    commands = parser.add_subparsers(required=True)
    for function, names in (
        (take, ("run", "corpus", "weights")),
        (keep, ("weights", "corpus", "preset")),
    ):
        command = commands.add_parser(function.__name__)
        for name in names:
            command.add_argument(name, type=pathlib.Path)
        command.set_defaults(function=function)
    options = vars(parser.parse_args())
    options.pop("function")(**options)


def take(run, corpus, weights):
    recorded = recorded_options(run)
    if not recorded:
        raise SystemExit(f"{run} has no run: its pre-training ended before it began.")
    if (run / "preset").exists():  # with TensorFlow; its last checkpoint is before the rate's decay
        raise SystemExit(f"{run} has ended, and {run / 'preset'} is its model: take that.")
    model = _model(recorded, Corpus(corpus))
    step = Checkpoints(run / "checkpoints", {}).restore(model)
    if not step:
        raise SystemExit(f"{run} has no checkpoint: its pre-training ended before the first.")
    arrays = [np.asarray(array, np.float16) for array in model.backbone.get_weights()]
    with atomic_path(weights) as temporary:
        np.savez(temporary, *arrays, options=np.array(json.dumps(recorded)))
    print(f"{weights}: the weights after {step:,} updates")


def keep(weights, corpus, preset):
    data = Corpus(corpus)
    with np.load(weights, allow_pickle=False) as found:
        recorded = json.loads(str(found["options"]))
        arrays = [found[f"arr_{number}"] for number in range(len(found.files) - 1)]
    recorded["dtype"] = "float32"  # of the preset; products in 16 bits are for the other machine
    model = _model(recorded, data)
    model.backbone.set_weights(arrays)
    kept = make_preset(model.backbone, data.tokenizer_folder, _options(recorded))
    kept.save_to_preset(str(preset))


def _options(recorded):
    fields = PretrainOptions.__dataclass_fields__
    return PretrainOptions(**{name: recorded[name] for name in fields if name in recorded})


def _model(recorded, data):
    return build_model(_options(recorded), data.vocabulary_size)


if __name__ == "__main__":
    main()
