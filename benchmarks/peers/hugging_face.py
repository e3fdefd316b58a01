"""Hugging Face's torch model of GPT-1, its Trainer and its tokenizers."""

import csv
import pathlib
import tempfile

import numpy as np

from benchmarks.harness import training_turns
from benchmarks.harness.machine import cores
from benchmarks.harness.measured_models import LABELS, SIZES, tokenizer_files


def model_config(size, **settings):
    """Makes the `OpenAIGPTConfig` of a value of `SIZES`."""
    from transformers import OpenAIGPTConfig

    return OpenAIGPTConfig(
        vocab_size=size["vocabulary_size"],
        n_positions=size["max_sequence_length"],
        n_embd=size["hidden_dim"],
        n_layer=size["num_layers"],
        n_head=size["num_heads"],
        **settings,
    )


def load_tokenizer(folder):
    """Loads the original files into transformers' tokenizer, and gives it a padding token."""
    from transformers import OpenAIGPTTokenizer

    tokenizer = OpenAIGPTTokenizer(*tokenizer_files(folder))
    tokenizer.pad_token = tokenizer.unk_token
    return tokenizer


def fast_tokenizer(folder):
    """Loads the original files into the Rust tokenizer of `tokenizers`."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN

    files = tokenizer_files(folder)
    tokenizer = Tokenizer(
        models.BPE.from_file(*files, unk_token=UNKNOWN, end_of_word_suffix=END_OF_WORD)
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def train(turns, precision, mode, size, batch, length, steps):
    """Pre-trains a language model on random ids."""
    import torch
    from transformers import OpenAIGPTLMHeadModel

    torch.set_num_threads(cores())
    model = OpenAIGPTLMHeadModel(model_config(SIZES[size])).train()
    optimizer = pretraining_optimizer(model)
    batches = training_turns.random_ids(size, batch, length, steps)
    for ids in torch.tensor(batches, dtype=torch.int64):
        turns.begin()
        turns.end(loss=update(model, optimizer, ids, precision).item())
    return {"peak_memory": training_turns.peak_memory()}


def pretraining_optimizer(model):
    """Makes torch's AdamW, fused, as ours is set."""
    import torch

    return torch.optim.AdamW(
        model.parameters(),
        training_turns.PRETRAINING_RATE,
        weight_decay=training_turns.WEIGHT_DECAY,
        fused=True,
    )


def update(model, optimizer, ids, precision):
    """Takes a pre-training step on a batch of ids, on their device; returns the loss."""
    import torch

    is_bfloat16 = precision == "bfloat16"
    with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=is_bfloat16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), training_turns.CLIP_NORM)
    optimizer.step()
    optimizer.zero_grad()
    return loss


def fine_tune(turns, folder, data_dir, count, batches, coefficient):
    """Fine-tunes with the Trainer; returns the share of padding."""
    import torch
    from transformers import (
        OpenAIGPTForSequenceClassification,
        PrinterCallback,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    torch.set_num_threads(cores())
    folder = pathlib.Path(folder)
    batch_turns = training_turns.BatchTurns(turns, count, batches)
    data = np.load(folder / training_turns.IDS_FILE)
    pad = int(data["pad_token_id"])
    model = OpenAIGPTForSequenceClassification.from_pretrained(
        folder / training_turns.HUGGING_FACE, pad_token_id=pad
    )
    rows = np.split(data["ids"], np.cumsum(data["lengths"])[:-1])
    examples = [{"ids": ids, "labels": label} for ids, label in zip(rows, data["labels"])]
    tokens = padded = 0

    def collate(batch):
        """Pads as `DataCollatorWithPadding` does, without a tokenizer."""
        nonlocal tokens, padded
        lengths = torch.tensor([len(example["ids"]) for example in batch])
        ids = [torch.tensor(example["ids"], dtype=torch.int64) for example in batch]
        ids = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=pad)
        mask = torch.arange(ids.shape[1]) < lengths[:, None]
        tokens += int(lengths.sum())
        padded += ids.numel()
        labels = torch.tensor([int(example["labels"]) for example in batch])
        return {"input_ids": ids, "attention_mask": mask.long(), "labels": labels}

    class L3Trainer(Trainer):
        """Adds lambda L1; L1 is the mean over sequences of the mean over their tokens."""

        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            if not coefficient:
                return super().compute_loss(model, inputs, return_outputs, **kwargs)
            ids, mask = inputs["input_ids"], inputs["attention_mask"]
            states = model.transformer(ids, attention_mask=mask)[0]  # [batch, length, hidden_dim]
            last = states[torch.arange(len(ids)), mask.sum(1) - 1]
            cross_entropy = torch.nn.functional.cross_entropy
            logits = states[:, :-1] @ model.transformer.tokens_embed.weight.T
            targets = ids[:, 1:]
            losses = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
            losses = losses.view(targets.shape) * mask[:, 1:]  # [batch, length - 1]
            of_texts = losses.sum(1) / mask[:, 1:].sum(1).clamp(min=1)
            label_loss = cross_entropy(model.score(last), inputs["labels"])
            return label_loss + coefficient * of_texts.mean()

    class Reporter(TrainerCallback):
        def on_train_begin(self, *args, **kwargs):
            batch_turns.begin()

        def on_step_end(self, *args, **kwargs):
            batch_turns.batch_ended()

    with tempfile.TemporaryDirectory() as temporary:
        trainer = L3Trainer(
            model=model,
            args=TrainingArguments(
                temporary,
                per_device_train_batch_size=training_turns.FINETUNING_BATCH,
                max_steps=batch_turns.steps,
                learning_rate=training_turns.FINETUNING_RATE,
                weight_decay=training_turns.WEIGHT_DECAY,
                max_grad_norm=training_turns.CLIP_NORM,
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
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return {"padding": 1 - tokens / padded}


def _random_classifier(precision, size, tokenizer):
    import torch
    from transformers import OpenAIGPTForSequenceClassification

    torch.set_num_threads(cores())
    tokenizer = load_tokenizer(tokenizer)
    size = {**SIZES[size], "vocabulary_size": len(tokenizer)}
    config = model_config(size, num_labels=len(LABELS), pad_token_id=tokenizer.pad_token_id)
    model = OpenAIGPTForSequenceClassification(config).eval().to(getattr(torch, precision))
    return model, tokenizer


def predict(turns, size, tokenizer, path, batch_size, rounds):
    """Answers the texts of a file by the pipeline; returns the peak of memory."""
    from transformers import pipeline

    model, tokenizer = _random_classifier("float32", size, tokenizer)
    classify = pipeline("text-classification", model, tokenizer=tokenizer, device="cpu")
    limits = {"truncation": True, "max_length": SIZES[size]["max_sequence_length"]}
    with open(path, encoding="utf-8", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    for _ in range(rounds):
        turns.begin()
        classify(texts, batch_size=batch_size, **limits)
        turns.end()
    return {"peak_memory": training_turns.peak_memory()}


def classifier(precision, size, tokenizer, callers=1, **setting):
    """Makes a classifier in eager torch."""
    import torch

    model, tokenizer = _random_classifier(precision, size, tokenizer)
    if callers > 1:
        torch.set_num_threads(1)

    def scores_of(texts):
        inputs = tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=SIZES[size]["max_sequence_length"],
            return_tensors="pt",
        )
        with torch.inference_mode():
            return model(**inputs).logits.float().softmax(-1)

    return scores_of
