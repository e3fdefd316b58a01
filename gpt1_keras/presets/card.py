"""The model card of a preset, README.md: facts from the preset and from the run that made it."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import huggingface_hub
import yaml

from gpt1_keras.files import atomic_path, read_json
from gpt1_keras.handles import CARD_FILE, is_transformers_config
from gpt1_keras.presets.pretrained import find_preset
from gpt1_keras.recipe import FineTuningRecipe

# The hub's names for what tasks do.
_PIPELINES = {
    "GPT1CausalLM": "text-generation",
    "GPT1TextClassifier": "text-classification",
    "GPT1TextSimilarity": "sentence-similarity",
    "GPT1MultipleChoice": "multiple-choice",
}
_NOT_RECORDED = "Not recorded."


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """What a run knows of the model that it made. The card says "Not recorded." for empty parts.

    Attributes:
        name: the model's name, such as `"sst2"`.
        data: facts about the data that it was trained and scored on, by name.
        settings: settings of the training, by name.
        scores: one dict for each epoch, by metric and `"epoch"`, on the validation data.
        best_epoch: the epoch whose weights the preset holds.
        base: the preset that training started from, as the user named it.
        licence: the licence of that preset, as `licence_of` returns it.
    """

    name: str = ""
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    scores: Sequence[Mapping[str, Any]] = ()
    best_epoch: int | None = None
    base: str | None = None
    licence: str | None = None


def write_card(folder: str | os.PathLike[str], facts: RunFacts = RunFacts()) -> None:
    """Writes README.md into a preset's folder. It replaces an existing one.

    Its head is in YAML, as model hubs read it.

    Args:
        folder: path of a preset that `save_to_preset` wrote.
        facts: facts about the run that made it.

    Raises:
        FileNotFoundError: there is no preset.
        ValueError: a file of the preset is damaged, or it is a checkpoint of `transformers`.
    """
    folder = find_preset(pathlib.Path(folder))
    with atomic_path(folder / CARD_FILE) as temporary:
        pathlib.Path(temporary).write_text(_card(folder, facts), encoding="utf-8")


def licence_of(preset: str | os.PathLike[str]) -> str | None:
    """Returns the licence that a preset's card states, such as `"apache-2.0"`, or None.

    Args:
        preset: as in `find_preset`, whose errors it raises.
    """
    path = find_preset(preset, weights=False) / CARD_FILE
    if not path.is_file():
        return None
    try:
        content = huggingface_hub.ModelCard(path.read_text(encoding="utf-8")).data.get("license")
    except (ValueError, yaml.YAMLError):
        return None
    return content if isinstance(content, str) else None


def _card(folder: pathlib.Path, facts: RunFacts) -> str:
    config = read_json(folder / "config.json")
    if is_transformers_config(config):
        raise ValueError(f"{folder} is of transformers; a card is for what `save_to_preset` wrote.")
    task = read_json(folder / "task.json") if (folder / "task.json").is_file() else {}
    task_name = task.get("class_name", config["class_name"])
    name = facts.name or task_name
    started = f"It was fine-tuned from `{facts.base}`." if facts.base else ""
    licence = (
        f"The weights that training started from are under {facts.licence}, and so are these, as "
        "far as the licence of the data allows."
        if facts.licence
        else "Not stated: whoever trained the model decides, as far as the licence of the data "
        "allows."
    )
    return "\n".join(
        [
            *("---", _metadata(name, task_name, facts), "---", ""),
            *(f"# {name}", ""),
            f"A `{task_name}` of gpt1_keras, GPT-1 for TensorFlow and Keras. {started}".rstrip(),
            *("", "```python", "import gpt1_keras", ""),
            f'model = gpt1_keras.{task_name}.from_preset("path or handle of this preset")',
            *("```", "", "## Model", "", *_table(_model_facts(folder, task))),
            *("", "## Data", "", *_table(facts.data)),
            *("", "## Training", "", *_table(facts.settings)),
            *("", "## Scores", "", *_scores(facts)),
            *("", "## Limits", ""),
            "It was scored on the data above alone. It reads texts as the table of the model says, "
            "and cuts longer ones. It repeats what its training texts say of people and the world.",
            *("", "## Licence", "", licence, ""),
        ]
    )


def _metadata(name: str, task_name: str, facts: RunFacts) -> str:
    """Returns the YAML at the head of the card, without the `---` lines."""
    base = facts.base or ""
    best = next((each for each in facts.scores if each["epoch"] == facts.best_epoch), {})
    pipeline = _PIPELINES.get(task_name, "other")
    results = [
        huggingface_hub.EvalResult(
            task_type=pipeline,
            dataset_type=name,
            dataset_name=name,
            dataset_split="validation",
            metric_type=metric,
            metric_value=value,
        )
        for metric, value in best.items()
        if metric != "epoch"
    ]
    data = huggingface_hub.ModelCardData(
        license=facts.licence,
        library_name="keras-hub",
        pipeline_tag=pipeline if pipeline != "other" else None,
        tags=["gpt1_keras", "openai-gpt"],
        # The hub links to its own models alone.
        base_model=base.removeprefix("hf://") if base.startswith("hf://") else None,
        model_name=name,
        eval_results=results or None,
    )
    return data.to_yaml().strip()


def _model_facts(folder: pathlib.Path, task: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the facts in the preset's own files."""
    backbone = read_json(folder / "config.json")
    metadata = folder / "metadata.json"
    facts = {"backbone": backbone["class_name"]}
    if metadata.is_file():
        facts["parameters"] = f"{read_json(metadata)['parameter_count']:,}"
    names = ("vocabulary_size", "num_layers", "num_heads", "hidden_dim", "max_sequence_length")
    facts |= {name: backbone["config"].get(name) for name in names}
    config = task.get("config", {})
    preprocessor = (config.get("preprocessor") or {}).get("config", {})
    tokenizer = (preprocessor.get("tokenizer") or {}).get("config", {})
    facts |= {name: config.get(name) for name in ("class_names", "score_range")}
    facts |= {name: preprocessor.get(name) for name in ("fields", "sequence_length")}
    recipe = FineTuningRecipe.of(backbone["config"].get("fine_tuning"))
    return facts | {"normalization": tokenizer.get("normalization"), "fine_tuning": recipe}


def _scores(facts: RunFacts) -> list[str]:
    """Returns the table of the epochs' scores."""
    if not facts.scores:
        return [_NOT_RECORDED]
    metrics = [name for name in facts.scores[0] if name != "epoch"]
    rows = [
        [
            f"{each['epoch']}{' (this preset)' if each['epoch'] == facts.best_epoch else ''}",
            *(f"{each[metric]:.4f}" for metric in metrics),
        ]
        for each in facts.scores
    ]
    return _rows(["epoch", *metrics], rows)


def _table(content: Mapping[str, Any]) -> list[str]:
    """Returns a table of the facts that have a value."""
    rows = [[name.replace("_", " "), _cell(value)] for name, value in content.items()]
    rows = [row for row in rows if row[1]]
    return _rows(["", ""], rows) if rows else [_NOT_RECORDED]


def _rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]


def _cell(value: Any) -> str:
    """Returns a value for a cell: a bar or a line break in it would end the cell."""
    if value is None or value == "":
        return ""
    if isinstance(value, (list, tuple)):
        value = ", ".join(map(str, value))
    return json.dumps(str(value), ensure_ascii=False)[1:-1].replace("|", "\\|")
