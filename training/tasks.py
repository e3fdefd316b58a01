"""The paper's data sets as data: where each lies, and how it becomes a task."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Task:
    """A data set of TensorFlow Datasets as a classification task.

    Attributes:
        dataset: str, its name in TensorFlow Datasets.
        fields: dict from the model's text fields to the data set's features: one text, or a pair.
        metric: str, the metric that the paper reports; a key of `training.metrics.METRICS`.
        validation: str, the split that selects the best epoch.
    """

    dataset: str
    fields: dict[str, str]
    metric: str = "accuracy"
    validation: str = "validation"


def _pair(dataset, premise="premise", hypothesis="hypothesis", **kwargs):
    return Task(dataset, {"premise": premise, "hypothesis": hypothesis}, **kwargs)


TASKS = {
    "sst2": Task("glue/sst2", {"text": "sentence"}),
    "cola": Task("glue/cola", {"text": "sentence"}, metric="matthews_correlation"),
    "rte": _pair("glue/rte", "sentence1", "sentence2"),
    "qnli": _pair("glue/qnli", "question", "sentence"),
    "mnli_matched": _pair("glue/mnli", validation="validation_matched"),
    "mnli_mismatched": _pair("glue/mnli", validation="validation_mismatched"),
    "snli": _pair("snli"),
}


def find_task(name):
    """The task of that name. Raises ValueError, naming those there are."""
    if name not in TASKS:
        raise ValueError(f"Unknown task {name!r}; expected one of {sorted(TASKS)}.")
    return TASKS[name]
