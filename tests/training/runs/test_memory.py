"""Memory does not grow with the number of models that a process has trained."""

import contextlib
import gc

import pytest
from tensorflow.python.framework.func_graph import FuncGraph

import gpt1_keras
from training.runs.finetuning import memory_freed

pytestmark = pytest.mark.slow


@pytest.fixture
def count_new_graphs(tiny_tokenizer, tiny_backbone):
    """Counts the graphs that are left of a fine-tuning in a block."""

    def count_graphs():
        gc.collect()
        return sum(isinstance(item, FuncGraph) for item in gc.get_objects())

    def train():
        preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, sequence_length=16)
        classifier = gpt1_keras.GPT1TextClassifier(
            tiny_backbone, preprocessor=preprocessor, class_names=["bad", "good"]
        )
        classifier.fit(["a good film", "a bad film"], ["good", "bad"], verbose=0)

    def count_new_graphs(block):
        before = count_graphs()
        with block:
            train()
        return count_graphs() - before

    return count_new_graphs


@pytest.mark.parametrize("block", [memory_freed, contextlib.nullcontext])
def test_no_graph_is_left(count_new_graphs, block):
    """TensorFlow alone keeps those with custom gradients; see `gradients_held_by_graph`."""
    count_new_graphs(block())  # what is made once in a process
    assert count_new_graphs(block()) == 0


def test_it_frees_after_an_error(count_new_graphs):
    count_new_graphs(memory_freed())

    @contextlib.contextmanager
    def failing():
        with pytest.raises(RuntimeError), memory_freed():
            yield
            raise RuntimeError

    assert count_new_graphs(failing()) == 0
