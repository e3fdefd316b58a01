"""The tasks that run on devices, with their graphs."""

from gpt1_keras import GPT1CausalLM, GPT1MultipleChoice, GPT1TextClassifier, GPT1TextSimilarity
from serving.registry import TaskEntry
from serving.tflite.choice_graph import choice_graph
from serving.tflite.class_or_score_graph import class_or_score_graph, similarity_graph
from serving.tflite.language_model_graph import next_token_graph

DEVICE_TASKS = {
    GPT1TextClassifier: TaskEntry(device_graph=class_or_score_graph),
    GPT1TextSimilarity: TaskEntry(device_graph=similarity_graph),
    GPT1MultipleChoice: TaskEntry(device_graph=choice_graph),
    GPT1CausalLM: TaskEntry(device_graph=next_token_graph),
}
