"""gpt1_keras, as the benchmarks run it beside its peers."""

import os
import pathlib

import numpy as np

from benchmarks.harness import training_turns
from benchmarks.harness.measured_models import SIZES


def train(turns, precision, mode, size, batch, length, steps):
    """Pre-trains a language model on random ids."""
    import gpt1_keras
    from gpt1_keras.optimization.optimizer import GPT1Adam

    training_turns.use_precision(precision)
    model = gpt1_keras.GPT1CausalLM(gpt1_keras.GPT1Backbone(**SIZES[size], dropout=0.1))
    optimizer = GPT1Adam(
        training_turns.PRETRAINING_RATE,
        weight_decay=training_turns.WEIGHT_DECAY,
        global_clipnorm=training_turns.CLIP_NORM,
    )
    model.compile(optimizer=optimizer, jit_compile=mode == "XLA")
    ids = training_turns.random_ids(size, batch, length + 1, steps)
    training_turns.fit_in_turns(turns, model, ids)
    return {"peak_memory": training_turns.peak_memory()}


def fine_tune(turns, folder, data_dir, count, batches, coefficient):
    """Fine-tunes as `training.finetune` does; returns the share of padding."""
    import keras
    import tensorflow as tf

    from gpt1_keras.optimization.optimizer import finetuning_optimizer
    from gpt1_keras.tasks.batches import string_tensors
    from training.datasets.data_options import DataOptions
    from training.datasets.labelled_examples import load_examples
    from training.datasets.length_batches import batch_order
    from training.datasets.paper_datasets import DATASETS
    from training.evaluation.fine_tuned_models import load_model

    folder = pathlib.Path(folder)
    batch_turns = training_turns.BatchTurns(turns, count, batches)
    model, _ = load_model(folder / training_turns.PRESET)
    optimizer = finetuning_optimizer(training_turns.FINETUNING_RATE, batch_turns.steps)
    model.compile(optimizer, lm_coefficient=coefficient)
    examples = load_examples(DATASETS["sst2"], "train", DataOptions(data_dir))
    lengths = np.load(folder / training_turns.IDS_FILE)["lengths"]
    order = batch_order(lengths, training_turns.FINETUNING_BATCH, seed=0, epoch=0)[
        : batch_turns.steps
    ]

    def on_batch_end(batch, logs):
        float(logs["loss"])  # waits for the step to end
        batch_turns.batch_ended()

    callback = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: batch_turns.begin(), on_train_batch_end=on_batch_end
    )
    model.fit(examples.in_batches(order), verbose=0, callbacks=[callback])
    batches = (string_tensors(examples.take(batch).texts) for batch in order)
    padded = sum(int(tf.size(model.preprocess_samples(texts)["token_ids"])) for texts in batches)
    return {"padding": 1 - sum(int(lengths[batch].sum()) for batch in order) / padded}


def classifier(export, folder, callers=1, **setting):
    """Loads an export into TensorFlow's C++ runtime, with the settings that its README names."""
    if export == "bfloat16":
        os.environ.setdefault("TF_ONEDNN_ASSUME_FROZEN_WEIGHTS", "1")
    import tensorflow as tf

    from serving.export_names import DEFAULT_SIGNATURE
    from serving.server.models.loading import Loader
    from serving.server.models.servable import Servable
    from serving.server.options import Options

    loader = Loader(Options(tensorflow_intra_op_parallelism=int(callers > 1)))
    servable = Servable("model", 1, pathlib.Path(folder, export, "1"), loader=loader)
    return lambda texts: servable.predict(DEFAULT_SIGNATURE, {"text": tf.make_tensor_proto(texts)})


def predict(turns, export, path, rounds):
    """Answers the rows of a file, as `serving.predict` does; returns the peak of memory."""
    from serving.engines import open_engine
    from serving.prediction.answers_file import Layout
    from serving.prediction.input_files import InputFiles
    from serving.prediction.predict_rows import predict

    path = pathlib.Path(path)
    engine = open_engine(export)
    files = InputFiles([path], {}, engine.fields)
    for _ in range(rounds):
        turns.begin()
        survey = files.survey()
        layout = Layout(survey.columns, survey.kinds, engine.columns, "")
        predict(engine, survey.files, layout, path.with_name("answers.csv"), survey.rows)
        turns.end()
    return {"peak_memory": training_turns.peak_memory()}


def predict_from_ids(turns, export, path, rounds):
    """Answers the ids of the texts in a file; returns the peak of memory."""
    from concurrent.futures import ThreadPoolExecutor

    import tensorflow as tf

    from gpt1_keras.labelled_files import read_rows
    from serving.export_names import TOKENIZE, TOKENS, find_export
    from serving.server.models.servable import Servable

    servable = Servable("model", 1, find_export(export))
    texts = sorted((str(row["text"]) for row in read_rows(path)), key=len)
    batches, total = [[]], 0
    for text in texts:
        if total + len(text) > 2**14:
            batches, total = [*batches, []], 0
        batches[-1].append(text)
        total += len(text)
    names, framed = ("token_ids", "padding_mask"), []
    for batch in batches:
        found = servable.predict(TOKENIZE, {"text": tf.make_tensor_proto(batch)})
        framed.append({name: tf.make_tensor_proto(found[name]) for name in names})
    for _ in range(rounds):
        turns.begin()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda batch: servable.predict(TOKENS, batch), framed))
        turns.end()
    return {"peak_memory": training_turns.peak_memory()}
