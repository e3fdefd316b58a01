"""Encodes data sets as token ids, for `fine_tune.py` on a machine without TensorFlow.

python docs/evidence/version_4/encode_tasks.py DATA_DIR tasks.npz
"""

import sys

import numpy as np

from gpt1_keras.presets import load_tokenizer
from gpt1_keras.tasks.batches import string_tensors
from training.datasets.data_options import DataOptions
from training.datasets.labelled_examples import load_examples
from training.datasets.paper_datasets import DATASETS
from training.evaluation.fine_tuned_models import MODELS

TASKS = ("sst2", "cola", "rte", "mrpc", "stsb", "snli_slice", "race_middle")
LENGTH, BATCH = 256, 512
DTYPES = {"token_ids": "uint16", "padding_mask": "bool"}  # the rest fits into int16


def main() -> None:
    data_dir, output = sys.argv[1:]
    tokenizer, arrays = load_tokenizer("gpt1_tiny_books"), {}
    for task in TASKS:
        dataset = DATASETS[task]
        # The scores are of pairs that were cut to half of the length each, as in version 3.
        preprocessor = MODELS[dataset.kind].preprocessor_cls(
            tokenizer, LENGTH, fields=tuple(dataset.fields), truncate="halves"
        )
        for role in ("train", "validation"):
            examples = load_examples(dataset, role, DataOptions(data_dir)).labelled()
            if (task, role) == ("race_middle", "train"):
                examples = examples.sample(6000, 0)
            texts = string_tensors(examples.texts)
            batches = []
            for start in range(0, len(examples), BATCH):
                batch = {field: text[start : start + BATCH] for field, text in texts.items()}
                batches.append(preprocessor(batch, pad_to="longest"))
            for name in batches[0]:
                parts = [batch[name].numpy() for batch in batches]
                width = max(part.shape[-1] for part in parts)
                fill = -1 if name == "branches" else 0
                padded = [
                    np.pad(
                        part,
                        [(0, 0)] * (part.ndim - 1) + [(0, width - part.shape[-1])],
                        constant_values=fill,
                    )
                    for part in parts
                ]
                key = f"{task}/{role}/{name}"
                arrays[key] = np.concatenate(padded).astype(DTYPES.get(name, "int16"))
            arrays[f"{task}/{role}/labels"] = examples.labels
    np.savez_compressed(output, **arrays)


if __name__ == "__main__":
    main()
