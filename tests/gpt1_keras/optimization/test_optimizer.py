"""Adam and the schedules against the paper's formulas in NumPy."""

import keras
import numpy as np
import pytest

from gpt1_keras.optimization.optimizer import (
    FinetuningSchedule,
    GPT1Adam,
    PretrainingSchedule,
    WarmupStableDecaySchedule,
    finetuning_optimizer,
    pretraining_optimizer,
    stretch_schedule,
    warn_of_no_rate,
)
from gpt1_keras.upstream import schedule_of

SHAPES = {"embedding": (7, 4), "kernel": (4, 5), "bias": (5,), "gamma": (4,)}


def finetuning_rate(update, total, peak=6.25e-5):
    x = update / total
    return peak * (x / 0.002 if x < 0.002 else 1.0) * (1.0 - x)


def pretraining_rate(update, total, peak=2.5e-4, warmup=2000):
    if update < warmup:
        return peak * update / warmup
    return peak * 0.5 * (1.0 + np.cos(np.pi * (update - warmup) / (total - warmup)))


def adam(values, gradients, rate, clip=None):
    """The values after all steps, one list of gradients a step; `rate(t)` from t = 0 on."""
    values = [value.astype(np.float64) for value in values]
    means = [np.zeros_like(value) for value in values]
    squares = [np.zeros_like(value) for value in values]
    for step, batch in enumerate(gradients):
        if clip is not None:
            norm = np.sqrt(sum(np.sum(gradient**2) for gradient in batch))
            batch = [gradient * min(1.0, clip / norm) for gradient in batch]
        t = step + 1
        corrected = rate(step) * np.sqrt(1.0 - 0.999**t) / (1.0 - 0.9**t)
        for i, gradient in enumerate(batch):
            means[i] = 0.9 * means[i] + 0.1 * gradient
            squares[i] = 0.999 * squares[i] + 0.001 * gradient**2
            decay = 0.01 * values[i] if values[i].ndim > 1 else 0.0
            update = means[i] / (np.sqrt(squares[i]) + 1e-8) + decay
            values[i] = values[i] - corrected * update
    return values


@pytest.fixture
def problem():
    """Start values, and gradients of 20 steps whose sizes differ widely."""
    random = np.random.default_rng(0)
    values = [random.normal(0.0, 1.0, shape) for shape in SHAPES.values()]
    gradients = [
        [random.normal(0.0, 10.0 ** random.uniform(-3, 1), shape) for shape in SHAPES.values()]
        for _ in range(20)
    ]
    return values, gradients


def minimize(optimizer, values, gradients):
    variables = [keras.Variable(value, dtype="float32") for value in values]
    optimizer.build(variables)
    for batch in gradients:
        optimizer.apply_gradients(
            [(keras.ops.cast(gradient, "float32"), v) for gradient, v in zip(batch, variables)]
        )
    return [keras.ops.convert_to_numpy(variable) for variable in variables]


def assert_all_close(found, expected):
    for name, value, wanted in zip(SHAPES, found, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-5, err_msg=name)


def test_twenty_steps_at_a_constant_rate(problem):
    values, gradients = problem
    expected = adam(values, gradients, lambda step: 0.05)
    assert_all_close(minimize(GPT1Adam(0.05), values, gradients), expected)
    moved = np.abs(expected[0] - adam(values, gradients, lambda step: 0.0)[0])
    assert moved.max() > 0.1


def test_twenty_steps_of_fine_tuning_are_clipped(problem):
    values, gradients = problem
    optimizer = finetuning_optimizer(0.05, total_steps=25)
    expected = adam(values, gradients, lambda t: finetuning_rate(t, 25, 0.05), clip=1.0)
    assert_all_close(minimize(optimizer, values, gradients), expected)


def test_twenty_steps_of_pre_training_are_not_clipped(problem):
    values, gradients = problem
    optimizer = pretraining_optimizer(0.05, total_steps=30, warmup_steps=6)
    expected = adam(values, gradients, lambda t: pretraining_rate(t, 30, 0.05, 6))
    assert_all_close(minimize(optimizer, values, gradients), expected)


def test_clipping_uses_the_norm_of_all_gradients(problem):
    values, _ = problem
    gradients = [np.full(shape, 100.0) for shape in SHAPES.values()]
    norm = 100.0 * np.sqrt(sum(gradient.size for gradient in gradients))
    clipped = finetuning_optimizer().clip_gradients(gradients)
    for gradient in clipped:
        np.testing.assert_allclose(gradient, 100.0 / norm, rtol=1e-6)


def test_decay_falls_on_matrices_only(problem):
    values, gradients = problem
    zeros = [[np.zeros_like(gradient) for gradient in batch] for batch in gradients]
    found = minimize(GPT1Adam(0.05), values, zeros)
    assert_all_close(found, adam(values, zeros, lambda step: 0.05))
    for before, after in zip(values, found):
        is_decayed = bool(np.all(np.abs(after) < np.abs(before) - 1e-5))
        assert is_decayed == (before.ndim > 1)


def test_no_decay(problem):
    values, gradients = problem
    found = minimize(GPT1Adam(0.05, weight_decay=0.0), values, gradients)
    plain = keras.optimizers.Adam(0.05, epsilon=1e-8)
    assert_all_close(found, minimize(plain, values, gradients))


@pytest.mark.parametrize("total", [100, 1000, 44_000])
def test_finetuning_schedule(total):
    schedule = FinetuningSchedule(total_steps=total)
    # At 0.2 % of the updates, rounding decides which side of the kink x is on; both are equal.
    for update in [0, 1, 2, 3, total // 500, total // 500 + 1, total // 2, total - 1, total]:
        rate = float(schedule(update))
        assert rate == pytest.approx(finetuning_rate(update, total), rel=1e-4, abs=1e-11), update
    assert float(schedule(total + 5)) == 0.0


@pytest.mark.parametrize(("total", "warmup"), [(100_000, 2000), (2500, 2000), (50, 2000), (50, 1)])
def test_pretraining_schedule(total, warmup):
    schedule = PretrainingSchedule(total_steps=total, warmup_steps=warmup)
    for update in {0, 1, warmup // 2, warmup, warmup + 1, total // 2, total - 1, total}:
        if update > total:
            continue
        expected = pretraining_rate(update, total, warmup=warmup)
        assert float(schedule(update)) == pytest.approx(expected, rel=1e-3, abs=1e-10), update
    assert float(schedule(total + 5)) == float(schedule(total))


@pytest.mark.parametrize(
    ("total", "warmup", "decay"), [(100_000, 2000, 10_000), (9, 0, 9), (5, 4, 4)]
)
def test_warm_up_a_constant_rate_and_a_decay(total, warmup, decay):
    schedule = WarmupStableDecaySchedule(1e-3, total, warmup, decay)
    for update in {0, 1, warmup // 2, warmup, total - decay, total - decay + 1, total - 1, total}:
        if 0 <= update <= total:
            shares = [update / warmup if warmup else np.sign(update), (total - update) / decay, 1]
            expected = 1e-3 * min(shares)
            assert float(schedule(update)) == pytest.approx(expected, rel=1e-5, abs=1e-10), update
    assert float(schedule(total + 5)) == 0.0


def test_before_its_decay_a_rate_does_not_depend_on_the_end():
    schedules = [WarmupStableDecaySchedule(1e-3, total, 5, 10) for total in (40, 77)]
    for update in range(31):
        short, long = (float(schedule(update)) for schedule in schedules)
        assert short == long
    assert float(schedules[0](31)) < float(schedules[1](31))


def test_the_defaults_are_the_papers():
    finetuning, pretraining = finetuning_optimizer(), pretraining_optimizer()
    for optimizer in (finetuning, pretraining):
        assert optimizer.beta_1 == 0.9
        assert optimizer.beta_2 == 0.999
        assert optimizer.epsilon == 1e-8
        assert optimizer.get_config()["weight_decay"] == 0.01
    assert (finetuning.global_clipnorm, pretraining.global_clipnorm) == (1.0, None)
    settings = finetuning.get_config()["learning_rate"]["config"]
    assert settings == {"peak": 6.25e-5, "total_steps": None, "warmup": 0.002}
    settings = pretraining.get_config()["learning_rate"]["config"]
    assert settings == {"peak": 2.5e-4, "total_steps": None, "warmup_steps": 2000}


def test_rates_decay_from_the_head_down(problem):
    """Each variable moves as in the formula, with a rate of its own."""
    values, gradients = problem
    depths = {"embedding": 3, "block_0": 2, "block_1": 1, "head": 0}
    variables = []
    for name, value in zip(depths, values, strict=True):
        with keras.name_scope(name):
            variables.append(keras.Variable(value, dtype="float32", name="kernel"))
    optimizer = GPT1Adam(0.05, layer_decay=0.5)
    optimizer.build(variables)
    for batch in gradients:
        optimizer.apply_gradients(
            [(keras.ops.cast(g, "float32"), v) for g, v in zip(batch, variables)]
        )
    for i, (variable, depth) in enumerate(zip(variables, depths.values())):
        rate = 0.05 * 0.5**depth
        [expected] = adam([values[i]], [[batch[i]] for batch in gradients], lambda t, r=rate: r)
        np.testing.assert_allclose(variable, expected, rtol=1e-5, atol=1e-5)


def test_rates_of_a_model_without_blocks():
    variables = [keras.Variable([1.0], name="kernel")]
    with pytest.raises(ValueError, match="layer_decay=0.5"):
        finetuning_optimizer(layer_decay=0.5).build(variables)
    with pytest.raises(ValueError, match="layer_decay.* 1.5"):
        GPT1Adam(layer_decay=1.5)


@pytest.mark.parametrize("make", [finetuning_optimizer, pretraining_optimizer])
def test_a_schedule_without_an_end_says_what_to_do(problem, make):
    with pytest.raises(ValueError, match="steps_per_epoch"):
        minimize(make(), *problem)


@pytest.mark.parametrize(
    "optimizer",
    [
        finetuning_optimizer(0.05, total_steps=25),
        pretraining_optimizer(0.05, total_steps=30, warmup_steps=6),
        pretraining_optimizer(0.05, 30, warmup_steps=6, decay_steps=9, clip_norm=2.0),
        GPT1Adam(0.05, weight_decay=0.3, beta_1=0.8),
    ],
)
def test_config_round_trip(problem, optimizer):
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(copy) is type(optimizer)
    assert copy.get_config() == optimizer.get_config()
    assert_all_close(minimize(copy, *problem), minimize(optimizer, *problem))


@pytest.mark.parametrize("make", [finetuning_optimizer, pretraining_optimizer])
def test_an_open_schedule_stays_open(make):
    optimizer = make(0.05)
    schedule_of(optimizer).total_steps = 40  # as `fit` sets it
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert schedule_of(copy).is_open
    assert schedule_of(copy).total_steps is None


def test_updates_from_several_batches(problem):
    """As Keras's Adam, which counts batches where it asks the schedule, and updates elsewhere."""
    values, gradients = problem
    means = [[(a + b) / 2 for a, b in zip(*two)] for two in zip(gradients[::2], gradients[1::2])]
    optimizer = GPT1Adam(FinetuningSchedule(0.05), gradient_accumulation_steps=2)
    variables = [keras.Variable(value, dtype="float32") for value in values]
    optimizer.build(variables)
    for batches in (gradients[:12], gradients[12:]):  # as two calls of `fit`
        stretch_schedule(optimizer, len(batches), 1)
        for batch in batches:
            optimizer.apply([keras.ops.cast(g, "float32") for g in batch], variables)
    assert schedule_of(optimizer).total_steps == 20

    def rate(update):
        batch = 2 * update + 1
        return finetuning_rate(batch, 12 if batch < 12 else 20, 0.05)

    assert_all_close([keras.ops.convert_to_numpy(v) for v in variables], adam(values, means, rate))


@pytest.mark.parametrize(
    ("make", "decayed"),
    # GPT1Adam's decay is scaled by the corrected rate.
    [(GPT1Adam, 1 - 0.05 * np.sqrt(0.001) / 0.1), (keras.optimizers.AdamW, 0.95)],
)
@pytest.mark.parametrize("excluded", ["var_list", "var_names"])
def test_what_does_not_decay(make, decayed, excluded):
    variables = [keras.Variable(np.ones((2, 2)), name=name) for name in ("kernel", "table")]
    optimizer = make(0.5, weight_decay=0.1)
    named = {"var_list": variables[1:], "var_names": ["tab"]}
    optimizer.exclude_from_weight_decay(**{excluded: named[excluded]})
    optimizer.apply([np.zeros((2, 2), "float32")] * 2, variables)
    np.testing.assert_allclose(variables[0], decayed, rtol=1e-5)
    np.testing.assert_array_equal(variables[1], 1.0)


@pytest.mark.parametrize(
    ("done", "steps", "total", "is_idle"),
    [
        *((0, 1, None, True), (0, 2, None, False), (1, 1, None, False)),
        *((4, 3, 4, True), (4, -1, 4, True), (3, 5, 4, False), (0, -1, 4, False)),
    ],
)
def test_a_training_without_a_rate(done, steps, total, is_idle, recwarn):
    for schedule, warmup in (
        (FinetuningSchedule, 0.002),
        (PretrainingSchedule, 1),
        (WarmupStableDecaySchedule, 2000),
    ):
        optimizer = GPT1Adam(schedule(1e-3, total, warmup))
        optimizer._iterations.assign(done)
        stretch_schedule(optimizer, steps, 1)
        warn_of_no_rate(optimizer, steps)
        assert len(recwarn) == is_idle
        if is_idle:
            message = str(recwarn.pop(UserWarning).message)
            assert schedule.__name__ in message and f"from step {done} on" in message


def test_a_constant_rate_is_no_matter(recwarn):
    warn_of_no_rate(GPT1Adam(1e-3), 1)
    warn_of_no_rate(keras.optimizers.SGD(0.0), 1)
    assert not recwarn
