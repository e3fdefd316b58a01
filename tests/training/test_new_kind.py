"""A kind of task defined outside the package: step 3 of "Adding a head" in CONTRIBUTING.md."""

import json

import keras
import keras_hub
import pytest

import gpt1_keras
from gpt1_keras.tasks.heads import last_token_index, sequence_inputs
from gpt1_keras.tasks.label_heads import make_label_head
from gpt1_keras.tasks.task import Task
from serving import registry
from serving.export import export
from serving.export.class_or_score_signatures import class_or_score_signatures
from serving.registry import TaskEntry, register_task
from tests.helpers.eager import eagerly
from training import evaluate, finetune
from training.datasets import user_files
from training.evaluation import fine_tuned_models
from training.evaluation.fine_tuned_models import load_model

STANCE = "stance"
EXAMPLES = [("cats", "i love cats", "for"), ("dogs", "dogs are dull", "against")] * 4


@keras.saving.register_keras_serializable(package="test_new_kind")
class StanceClassifier(Task, keras_hub.models.Task):
    """Says whether a text is for or against a target."""

    backbone_cls = gpt1_keras.GPT1Backbone
    preprocessor_cls = gpt1_keras.GPT1TextClassifierPreprocessor
    label_arguments = ("class_names",)

    def __init__(
        self,
        backbone,
        class_names,
        preprocessor=None,
        score_range=None,
        activation=None,
        dropout=0.1,
        temperature=1.0,
        sure_threshold=None,
        **kwargs,
    ):
        labels = (None, class_names, score_range, activation)
        head = make_label_head(*labels, dropout, temperature, sure_threshold, backbone.dtype_policy)
        self.attach(backbone, preprocessor, head)
        inputs = sequence_inputs(None)
        super().__init__(inputs=inputs, outputs=head(self.last_states(**inputs)), **kwargs)

    def predict_outputs(self, inputs, states_at=None):
        last = last_token_index(inputs["padding_mask"])
        states = (states_at or self.backbone.states_at)(inputs["token_ids"], last)
        return self.task_head.outputs(states[:, 0])


class Tagger(StanceClassifier):
    """Its labels are of a form that `gpt1 finetune` does not know."""

    label_arguments = ("tags",)


@pytest.fixture
def files(tmp_path):
    """A file of examples, as options of the program."""
    path = tmp_path / "stances.jsonl"
    rows = [dict(zip(("target", "tweet", "label"), example)) for example in EXAMPLES]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture
def arguments(files, tmp_path):
    return [
        *("--train", str(files), "--validation", str(files), "--config", "gpt1_micro"),
        *("--num-merges", "10", "--epochs", "1", "--output", str(tmp_path / "run")),
    ]


@pytest.fixture
def add_kind(monkeypatch):
    """What step 3 says, for a class."""

    def add_kind(cls):
        monkeypatch.setitem(user_files._KINDS, ("target", "tweet"), STANCE)
        monkeypatch.setitem(fine_tuned_models.MODELS, STANCE, cls)

    return add_kind


@pytest.mark.slow
def test_step_3_to_the_end(add_kind, arguments, files, monkeypatch, tmp_path):
    add_kind(StanceClassifier)
    with eagerly():
        assert finetune.main(arguments) == 0
        best = tmp_path / "run" / "best"
        model, kind = load_model(best)
        assert (type(model), kind) == (StanceClassifier, STANCE)
        assert model.preprocessor.fields == ("target", "tweet")
        assert model.class_names == ["against", "for"]
        found = ["--model", str(best), "--file", str(files), "--output", str(tmp_path / "out")]
        assert evaluate.main(found) == 0
    scores = json.loads((tmp_path / "out" / "result.json").read_text())["metrics"]
    assert scores["accuracy"] == json.loads((tmp_path / "run/result.json").read_text())["score"]
    monkeypatch.setattr(registry, "_registered", {})
    register_task(StanceClassifier, TaskEntry(class_or_score_signatures))
    export(model, tmp_path / "export")


def test_labels_of_another_form_are_refused_before_training(add_kind, arguments, capsys):
    add_kind(Tagger)
    assert finetune.main(arguments) == 1
    message = "gpt1 finetune gives a model class_names. Received: Tagger, whose labels are tags"
    assert message in capsys.readouterr().err
