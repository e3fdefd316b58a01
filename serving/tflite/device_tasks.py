"""The tasks that run on devices, and each one's graph."""

from collections.abc import Callable

from gpt1_keras import GPT1CausalLM, GPT1MultipleChoice, GPT1TextClassifier, GPT1TextSimilarity
from gpt1_keras.tasks.base import RawTextTask
from serving.registry import TaskEntry, find_task
from serving.tflite.choice_graph import choice_graph
from serving.tflite.class_or_score_graph import class_or_score_graph, similarity_graph
from serving.tflite.device_graph import DeviceGraph, DeviceSpec
from serving.tflite.language_model_graph import next_token_graph

_TASKS = {
    GPT1TextClassifier: TaskEntry(device_graph=class_or_score_graph),
    GPT1TextSimilarity: TaskEntry(device_graph=similarity_graph),
    GPT1MultipleChoice: TaskEntry(device_graph=choice_graph),
    GPT1CausalLM: TaskEntry(device_graph=next_token_graph),
}


def find_graph(model: RawTextTask) -> Callable[[DeviceSpec], DeviceGraph]:
    """Returns what makes a task's graph.

    Raises:
        ValueError: the model has no preprocessor, or is not a task with such a graph.
    """
    make_graph = find_task(model, _TASKS).device_graph
    if make_graph is None:
        raise ValueError(
            f"A {type(model).__name__} cannot run on a device: its serving.registry.TaskEntry has "
            "no device_graph."
        )
    return make_graph
