"""What `benchmarks.finetuning` compares, each run in a process of its own.

    python -m benchmarks.peers.finetuning ours|trainer --folder DIR --data-dir DIR --turns 5 \
        --batches 40 --coefficient 0.5

The folder is what `benchmarks.finetuning` prepares. The summary has the share of padding in all
tokens. Imports are inside the functions, so that no process pays for another's framework.
"""

import argparse
import pathlib
import tempfile
from typing import Any

import numpy as np

from benchmarks.common.setting import cores
from benchmarks.common.turns import Turns, summarize

BATCH_SIZE = 32
_LEARNING_RATE = 6.25e-5
_CLIP_NORM = 1.0
_WEIGHT_DECAY = 0.01


class _Counter:
    """Reports a turn after so many batches, and counts the tokens."""

    def __init__(self, batches: int) -> None:
        self.turns, self.batches, self.done = Turns(), batches, 0
        self.tokens = self.padded = 0

    def begin(self) -> None:
        self.turns.begin()

    def batch_ended(self, is_last: bool) -> None:
        self.done += 1
        if self.done % self.batches == 0:
            self.turns.end()
            if not is_last:
                self.turns.begin()


def _train_ours(options: argparse.Namespace) -> float:
    """As `training.finetune` trains; returns the share of padding."""
    import keras
    import tensorflow as tf

    from gpt1_keras.optimization.optimizer import finetuning_optimizer
    from training.datasets.data_options import DataOptions
    from training.datasets.labelled_examples import load_examples
    from training.datasets.length_batches import batch_order, make_batches
    from training.datasets.paper_datasets import DATASETS
    from training.evaluation.fine_tuned_models import load_model

    steps = options.turns * options.batches
    model, _ = load_model(options.folder / "preset")
    model.compile(finetuning_optimizer(_LEARNING_RATE, steps), lm_coefficient=options.coefficient)
    examples = load_examples(DATASETS["sst2"], "train", DataOptions(options.data_dir))
    lengths = np.load(options.folder / "ids.npz")["lengths"]
    order = batch_order(lengths, BATCH_SIZE, seed=0, epoch=0)[:steps]
    counter = _Counter(options.batches)

    def on_batch_end(batch: int, logs: Any = None) -> None:
        float(logs["loss"])
        counter.batch_ended(batch + 1 == steps)

    model.fit(
        make_batches(examples, order),
        verbose=0,
        callbacks=[
            keras.callbacks.LambdaCallback(
                on_train_begin=lambda logs: counter.begin(), on_train_batch_end=on_batch_end
            )
        ],
    )
    padded = sum(
        int(tf.size(model.preprocess_samples(texts)["token_ids"]))
        for texts, _ in make_batches(examples, order)
    )
    return 1 - sum(int(lengths[batch].sum()) for batch in order) / padded


def _train_by_trainer(options: argparse.Namespace) -> float:
    """As Hugging Face's Trainer does; returns the share of padding."""
    import torch
    from transformers import (
        OpenAIGPTForSequenceClassification,
        PrinterCallback,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    torch.set_num_threads(cores())
    data = np.load(options.folder / "ids.npz")
    steps, pad = options.turns * options.batches, int(data["pad_token_id"])
    model = OpenAIGPTForSequenceClassification.from_pretrained(
        options.folder / "hugging_face", pad_token_id=pad
    )
    rows = np.split(data["ids"], np.cumsum(data["lengths"])[:-1])
    examples = [{"ids": ids, "labels": label} for ids, label in zip(rows, data["labels"])]
    counter = _Counter(options.batches)

    def collate(batch: list[dict[str, Any]]) -> dict[str, Any]:
        """As `DataCollatorWithPadding`, without a tokenizer."""
        lengths = torch.tensor([len(example["ids"]) for example in batch])
        ids = [torch.tensor(example["ids"], dtype=torch.int64) for example in batch]
        ids = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=pad)
        mask = torch.arange(ids.shape[1]) < lengths[:, None]
        counter.tokens += int(lengths.sum())
        counter.padded += ids.numel()
        labels = torch.tensor([int(example["labels"]) for example in batch])
        return {"input_ids": ids, "attention_mask": mask.long(), "labels": labels}

    class L3Trainer(Trainer):  # type: ignore[misc]
        """Adds lambda L1, of the mean over sequences of the mean over their tokens."""

        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any
        ) -> Any:
            if not options.coefficient:
                return super().compute_loss(model, inputs, return_outputs, **kwargs)
            ids, mask = inputs["input_ids"], inputs["attention_mask"]
            states = model.transformer(ids, attention_mask=mask)[0]
            last = states[torch.arange(len(ids)), mask.sum(1) - 1]
            cross_entropy = torch.nn.functional.cross_entropy
            logits = states[:, :-1] @ model.transformer.tokens_embed.weight.T
            targets = ids[:, 1:]
            losses = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
            losses = losses.view(targets.shape) * mask[:, 1:]
            of_texts = losses.sum(1) / mask[:, 1:].sum(1).clamp(min=1)
            label_loss = cross_entropy(model.score(last), inputs["labels"])
            return label_loss + options.coefficient * of_texts.mean()

    class Reporter(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            counter.begin()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            counter.batch_ended(state.global_step == steps)

    with tempfile.TemporaryDirectory() as folder:
        trainer = L3Trainer(
            model=model,
            args=TrainingArguments(
                folder,
                per_device_train_batch_size=BATCH_SIZE,
                max_steps=steps,
                learning_rate=_LEARNING_RATE,
                weight_decay=_WEIGHT_DECAY,
                max_grad_norm=_CLIP_NORM,
                use_cpu=True,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
                remove_unused_columns=False,
            ),
            train_dataset=examples,
            data_collator=collate,
            callbacks=[Reporter()],
        )
        trainer.remove_callback(PrinterCallback)  # it prints where the turns are reported
        trainer.train()
    return 1 - counter.tokens / counter.padded


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.finetuning")
    ways = {"ours": _train_ours, "trainer": _train_by_trainer}
    parser.add_argument("way", choices=ways)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--turns", type=int, required=True)
    parser.add_argument("--batches", type=int, required=True)
    parser.add_argument("--coefficient", type=float, required=True)
    options = parser.parse_args()
    summarize(padding=ways[options.way](options))


if __name__ == "__main__":
    main()
