"""What all tests share: paths of data, small models, and runs in the C++ runtime."""

import collections
import contextlib
import gc
import json
import os
import pathlib
import platform
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import settings

from tests.helpers.fuzzing import search

# Not keras nor gpt1_keras, whose import takes seconds: first the process that hands out the tests
# imports this file, and the others wait for it.

# Graphs are many small objects, and collecting garbage among them took an eighth of the time.
gc.set_threshold(100_000, 50, 1000)

settings.register_profile("project", search(100))
settings.load_profile("project")

# Real data sets, the original BPE files and the C++ runner are outside the repository.
SHARED = pathlib.Path(os.environ.get("GPT1_KERAS_SHARED", "../shared")).absolute()
DATA = SHARED / "data"


def pytest_collection_modifyitems(items):
    """Puts files with slow tests first: started last, one would leave a core idle at the end."""
    slow = collections.Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])  # stable: files stay whole, in order


def pytest_collection_finish():
    """Leaves what is imported to no collection, as those that Keras asks for go through it all."""
    gc.freeze()


def _require(path):
    if not path.exists():
        pytest.skip(f"{path} is not here; set GPT1_KERAS_SHARED to the folder that holds it")
    return path


@pytest.fixture(scope="session")
def original_files():
    """Paths of the original vocabulary and merges."""
    folder = _require(DATA / "gpt1_bpe")
    return str(folder / "encoder_bpe_40000.json"), str(folder / "vocab_40000.bpe")


@pytest.fixture(scope="session")
def tfds_dir():
    """The folder of prepared TensorFlow Datasets."""
    return str(_require(DATA / "tfds"))


@pytest.fixture(scope="session")
def books_dir():
    """The folder of books, with train/ and valid/."""
    return _require(DATA / "books")


@pytest.fixture(scope="session")
def original_tokenizer(original_files):
    import gpt1_keras

    return gpt1_keras.GPT1Tokenizer(*original_files)


@pytest.fixture(scope="session")
def tiny_tokenizer():
    """A tokenizer learned from a few sentences."""
    import gpt1_keras

    texts = ["a good film, and a lovely one", "a bad film, and a dull one", "the staff were kind"]
    return gpt1_keras.GPT1Tokenizer.learn(texts * 3, num_merges=60)


@pytest.fixture
def tiny_backbone(tiny_tokenizer):
    import keras

    import gpt1_keras

    keras.utils.set_random_seed(0)
    return gpt1_keras.GPT1Backbone(
        tiny_tokenizer.vocabulary_size(),
        num_layers=2,
        num_heads=2,
        hidden_dim=32,
        intermediate_dim=128,
        max_sequence_length=64,
    )


@pytest.fixture(scope="session")
def run_cpp():
    """Runs a signature in TensorFlow's C++ runtime, without Python TensorFlow."""
    tool = _require(SHARED / "tools" / "run_saved_model.py")

    def run(directory, signature, **inputs):
        command = [sys.executable, str(tool), str(directory), "--like-server"]
        command += ["--signature", signature]
        for name, value in inputs.items():
            command += ["--input", f"{name}={json.dumps(value)}"]
        process = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    return run


@pytest.fixture(scope="session")
def int8_products():
    """Skips tests of 8-bit products where TensorFlow has none."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("TensorFlow multiplies in 8 bits on Linux on x86-64 alone.")


@pytest.fixture(scope="session")
def free_ports():
    """A function that finds a number of free ports."""

    def find(count):
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
            for opened in sockets:
                opened.bind(("localhost", 0))
            return [opened.getsockname()[1] for opened in sockets]

    return find


@pytest.fixture(
    params=["xla"]
    if os.environ.get("KERAS_BACKEND") == "jax"
    else ["eager", "xla", "graph", "open"]
)
def mode(request):
    """How `value_and_gradients` runs a function: each way in turn."""
    return request.param


@pytest.fixture(scope="session")
def value_and_gradients():
    """A function's value, and its gradients by its first arguments, on either backend.

    The modes are `"eager"`, `"xla"` and, on TensorFlow, `"graph"` and `"open"`, a graph that does
    not know how long the `open_axes` of each argument are.
    """
    import keras

    def on_tensorflow(function, arguments, count, upstream, mode, open_axes):
        import tensorflow as tf

        def run(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors[:count])
                value = function(*tensors)
            return value, tape.gradient(value, tensors[:count], output_gradients=upstream)

        if mode != "eager":
            run = tf.function(run, jit_compile=mode == "xla", autograph=False)
        if mode == "open":
            shapes = [
                [None if axis in axes else size for axis, size in enumerate(tensor.shape)]
                for tensor, axes in zip(arguments, open_axes, strict=True)
            ]
            run = run.get_concrete_function(
                *[tf.TensorSpec(shape, tensor.dtype) for shape, tensor in zip(shapes, arguments)]
            )
        return run(*arguments)

    def on_jax(function, arguments, count, upstream, mode, open_axes):
        import jax

        def run(*arrays):
            value, pull = jax.vjp(lambda *first: function(*first, *arrays[count:]), *arrays[:count])
            return value, pull(jax.numpy.ones_like(value) if upstream is None else upstream)

        return (jax.jit(run) if mode == "xla" else run)(*arguments)

    def compute(function, arguments, count, upstream=None, mode="eager", open_axes=()):
        run = on_jax if keras.backend.backend() == "jax" else on_tensorflow
        arguments = [keras.ops.convert_to_tensor(argument) for argument in arguments]
        upstream = None if upstream is None else keras.ops.convert_to_tensor(upstream)
        value, gradients = run(function, arguments, count, upstream, mode, open_axes)
        for argument, gradient in zip(arguments, gradients):
            assert gradient.dtype == argument.dtype
        return [np.array(keras.ops.cast(x, "float32"), np.float64) for x in (value, *gradients)]

    return compute


@pytest.fixture
def time_limit():
    """Fails a test that does not end within half a minute."""

    def stop(*_):
        raise TimeoutError("The test did not end within 30 seconds.")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def calibrated_classifier():
    """A classifier whose answers have calibrated probabilities and `is_sure`."""
    from gpt1_keras.presets import load_task
    from gpt1_keras.tasks.heads import Calibration

    model = load_task(pathlib.Path(__file__).parent / "gpt1_keras/presets/saved_models/classifier")
    model.calibration = Calibration(temperature=0.1, sure_threshold=0.6)
    return model
