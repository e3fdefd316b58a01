"""Fine-tunes from several weights, at several rates and with several seeds, all at once on a GPU.

KERAS_BACKEND=jax python docs/evidence/version_4/fine_tune.py tasks.npz scores.json \
    V3=weights_3.npz V4=weights_4.npz

It needs no TensorFlow. The runs of a task are one program (`jax.vmap`), so they cost little more
than one. The recipe is `training.finetune`'s: L3 = L2 + 0.5 L1, batches of 32, three epochs, the
paper's optimizer. It deviates in two ways: batches are random, not of similar length, and an
epoch's last, shorter batch is left out. `tasks.npz` is of `encode_tasks.py`; weights are arrays of
`backbone.get_weights()`, `arr_0`, `arr_1` and so on. A score is in hundredths, one for each epoch.
"""

import json
import sys

import jax
import jax.numpy as jnp
import keras
import numpy as np
from scipy import stats
from sklearn import metrics

import gpt1_keras
from gpt1_keras.optimization.objective import stateless_loss
from gpt1_keras.optimization.optimizer import finetuning_optimizer
from gpt1_keras.presets import build_backbone

VOCABULARY = 8228
RATES, SEEDS, EPOCHS, BATCH, SCORED_AT_ONCE = (2e-4, 5e-4), (0, 1, 2), 3, 32, 64
TASKS = {  # the model, its arguments, and how many examples each seed samples
    "stsb": (gpt1_keras.GPT1TextSimilarity, {"score_range": (0, 5)}, None),
    "mrpc": (gpt1_keras.GPT1TextSimilarity, {"num_classes": 2}, None),
    "rte": (gpt1_keras.GPT1TextClassifier, {"num_classes": 2}, None),
    "snli_slice": (gpt1_keras.GPT1TextClassifier, {"num_classes": 3}, None),
    "cola": (gpt1_keras.GPT1TextClassifier, {"num_classes": 2}, None),
    "race_middle": (gpt1_keras.GPT1MultipleChoice, {}, 1000),
    "sst2": (gpt1_keras.GPT1TextClassifier, {"num_classes": 2}, None),
}


def score(task, outputs, labels):
    """Returns the metric that the paper reports for a task, in hundredths."""
    if task == "stsb":
        expected = np.asarray(keras.ops.softmax(outputs)) @ np.arange(6)
        return 100 * stats.pearsonr(expected, labels)[0]
    answers = outputs.argmax(-1)
    named = {"cola": metrics.matthews_corrcoef, "mrpc": metrics.f1_score}
    return 100 * named.get(task, metrics.accuracy_score)(labels, answers)


def fine_tune(task, data, weights):
    """Returns the scores of each epoch by (name of the weights, rate, seed)."""
    cls, arguments, sampled = TASKS[task]
    keras.utils.set_random_seed(0)
    model = cls(build_backbone("gpt1_tiny", VOCABULARY, dropout=0.0), **arguments)
    (x, y), (scored_x, scored_y) = (read(data, task, role) for role in ("train", "validation"))
    size = sampled or len(y)
    steps = size // BATCH
    model.compile(finetuning_optimizer(1.0, steps * EPOCHS), lm_coefficient=0.5)
    optimizer = model.optimizer
    optimizer.build(model.trainable_variables)
    scored_x = {name: in_batches(array) for name, array in scored_x.items()}

    def epoch(trainable, non_trainable, state, rate, order):
        optimizer._learning_rate.peak = rate  # traced, so that runs differ in it

        def update(carried, indices):
            trainable, non_trainable, state = carried
            batch = ({name: array[indices] for name, array in x.items()}, y[indices], None)

            def loss(trainable):
                value, _, after = stateless_loss(model, trainable, non_trainable, batch)
                return value, after

            gradients, non_trainable = jax.grad(loss, has_aux=True)(trainable)
            trainable, state = optimizer.stateless_apply(state, gradients, trainable)
            return (trainable, non_trainable, state), None

        carried, _ = jax.lax.scan(update, (trainable, non_trainable, state), order)

        def answer(_, batch):
            return None, model.stateless_call(*carried[:2], batch, training=False)[0]

        return *carried, jax.lax.scan(answer, None, scored_x)[1]

    runs = [(name, rate, seed) for name in weights for rate in RATES for seed in SEEDS]
    starts = [start_of(model, weights[name], seed) for name, _, seed in runs]
    states = [jax.tree.map(lambda *each: jnp.stack(each), *part) for part in zip(*starts)]
    examples = [np.random.default_rng(seed).permutation(len(y))[:size] for _, _, seed in runs]
    randoms = [np.random.default_rng((seed, 7)) for _, _, seed in runs]
    rates, scores = jnp.asarray([rate for _, rate, _ in runs]), [[] for _ in runs]
    run_epoch = jax.jit(jax.vmap(epoch))
    for _ in range(EPOCHS):
        order = [
            each[random.permutation(size)[: steps * BATCH]].reshape(steps, BATCH)
            for each, random in zip(examples, randoms)
        ]
        *states, outputs = run_epoch(*states, rates, jnp.asarray(np.stack(order)))
        for found, answers in zip(scores, np.asarray(outputs)):
            answers = answers.reshape(-1, *answers.shape[2:])[: len(scored_y)]
            found.append(round(float(score(task, answers, scored_y)), 2))
    return dict(zip(runs, scores))


def read(data, task, role):
    """Returns a split's inputs, of a length that is a multiple of 16, and its labels."""
    prefix = f"{task}/{role}/"
    names = {key.removeprefix(prefix) for key in data.files if key.startswith(prefix)}
    x = {name: data[prefix + name] for name in names - {"labels"}}
    missing = -x["token_ids"].shape[-1] % 16
    for name in x.keys() - {"extract_indices"}:
        pads = [(0, 0)] * (x[name].ndim - 1) + [(0, missing)]
        x[name] = np.pad(x[name], pads, constant_values=-1 if name == "branches" else 0)
    x = {k: jnp.asarray(a if a.dtype == bool else a.astype("int32")) for k, a in x.items()}
    return x, jnp.asarray(data[prefix + "labels"])


def in_batches(array):
    """Returns [n, ...] as [batches, SCORED_AT_ONCE, ...]; the last example fills the last batch."""
    missing = -len(array) % SCORED_AT_ONCE
    array = jnp.concatenate([array, jnp.repeat(array[-1:], missing, axis=0)])
    return array.reshape(-1, SCORED_AT_ONCE, *array.shape[1:])


def start_of(model, weights, seed):
    """Returns values of the trainable, the other and the optimizer's variables at the start."""
    random = np.random.default_rng(seed)
    model.backbone.set_weights(weights)
    for variable in model.head.weights:
        is_matrix = len(variable.shape) > 1
        variable.assign(random.normal(0.0, 0.02 * is_matrix, variable.shape))
    seeds = [np.asarray(v) for v in model.non_trainable_variables]
    seeds = [v + np.asarray(1000 * seed, v.dtype) if v.dtype == "uint32" else v for v in seeds]
    trainable = [np.asarray(v) for v in model.trainable_variables]
    return trainable, seeds, [np.asarray(v) for v in model.optimizer.variables]


def main():
    tasks, output, *given = sys.argv[1:]
    data, weights = np.load(tasks), {}
    for name, path in (each.split("=") for each in given):
        with np.load(path) as file:
            weights[name] = [file[f"arr_{i}"].astype("float32") for i in range(len(file.files))]
    scores = []
    for task in TASKS:
        for (name, rate, seed), epochs in fine_tune(task, data, weights).items():
            run = {"task": task, "weights": name, "rate": rate, "seed": seed, "epochs": epochs}
            scores.append(run)
    with open(output, "w") as file:
        json.dump(scores, file, indent=1)


if __name__ == "__main__":
    main()
