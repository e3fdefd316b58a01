"""Publishing a preset: its model card, and its way to a hub."""

import contextlib
import dataclasses
import json
import math
import numbers
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import huggingface_hub
import keras_hub
import yaml

from gpt1_keras.files import atomic_path, read_json, write_text
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.preset_files import CARD_FILE, HANDLES, is_transformers_config, one_line
from gpt1_keras.presets.loading import find_preset, load_task
from gpt1_keras.upstream import CONFIG_FILE, METADATA_FILE, TASK_CONFIG_FILE

# The hub's names for what tasks do.
_PIPELINES = {
    "GPT1CausalLM": "text-generation",
    "GPT1TextClassifier": "text-classification",
    "GPT1TextSimilarity": "sentence-similarity",
    "GPT1MultipleChoice": "multiple-choice",
}
_NOT_RECORDED = "Not recorded."
_MARKDOWN = re.compile(r"[|<*`\[~&$]|\b_|_\b")  # besides what JSON escapes


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """The facts that a run records about its model. The card says "Not recorded." for empty parts.

    Attributes:
        name: the model's name, such as `"sst2"`.
        data, settings: facts about the data, and settings of the training, by name.
        scores: one dict for each epoch or checkpoint: first `"epoch"` or `"step"`, then the scores
            on the validation data by metric: numbers of any library, or None.
        best: the epoch or step whose weights the preset holds.
        baselines: scores on the same data by the first metric, such as the majority class's.
        base: the preset that training started from, as the user named it.
        licence: the licence of that preset, as `licence_of` returns it.
    """

    name: str = ""
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    scores: Sequence[Mapping[str, Any]] = ()
    best: int | None = None
    baselines: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    base: str | None = None
    licence: str | None = None


def write_card(folder: str | os.PathLike[str], facts: RunFacts = RunFacts()) -> None:
    """Writes README.md into a preset's folder, with facts about the run that made it.

    It replaces an existing one. Its head is in YAML, as model hubs read it; scores that are NaN or
    infinite stand in the table alone.

    Raises:
        FileNotFoundError: there is no preset.
        ValueError: a score is no number; a file of the preset is damaged, or it is a checkpoint of
            `transformers`.
    """
    folder = find_preset(pathlib.Path(folder))
    write_text(folder / CARD_FILE, _card(folder, facts))


def update_card(folder: str | os.PathLike[str]) -> None:
    """Writes the facts of a preset's own files into its card anew, as after a calibration.

    Without a card, or in one without a table of the model, nothing is changed.
    """
    path = pathlib.Path(folder, CARD_FILE)
    if path.is_file():
        table = "\n".join(_table(_model_facts(pathlib.Path(folder), _task(folder))))
        found = r"(?<=\n## Model\n\n)(\|.*\n)+"
        text = path.read_text(encoding="utf-8")
        write_text(path, re.sub(found, lambda _: f"{table}\n", text, count=1))


def licence_of(preset: str | os.PathLike[str]) -> str | None:
    """Returns the licence that a preset's card states, or None; see `find_preset`."""
    path = find_preset(preset, weights=False) / CARD_FILE
    if not path.is_file():
        return None
    try:
        content = huggingface_hub.ModelCard(path.read_text(encoding="utf-8")).data.get("license")
    except (ValueError, yaml.YAMLError):
        return None
    return content if isinstance(content, str) else None


def _card(folder: pathlib.Path, facts: RunFacts) -> str:
    config = read_json(folder / CONFIG_FILE)
    if is_transformers_config(config):
        raise ValueError(f"{folder} is of transformers; a card is for what `save_to_preset` wrote.")
    facts = _in_plain_numbers(facts)
    task = _task(folder)
    task_name = task.get("class_name", config["class_name"])
    name = facts.name or task_name
    trained = "pre-trained" if task_name == "GPT1CausalLM" else "fine-tuned"
    started = f"It was {trained} from `{facts.base}`." if facts.base else ""
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
            *(f"# {markdown_text(name)}", ""),
            f"A `{task_name}` of gpt1_keras, GPT-1 for TensorFlow and Keras. {started}".rstrip(),
            *("", "```python", "import gpt1_keras", ""),
            f'model = gpt1_keras.{task_name}.from_preset("path or handle of this preset")',
            *_predicting(task_name, task),
            *("```", "", "## Model", "", *_table(_model_facts(folder, task))),
            *("", "## Data", "", *_table(facts.data)),
            *("", "## Training", "", *_table(facts.settings)),
            *("", "## Scores", "", *_scores(facts), *_baselines(facts)),
            *("", "## Limits", ""),
            "It was scored on the data above alone. It reads texts as the table of the model says, "
            "and cuts longer ones. It repeats what its training texts say of people and the world.",
            *("", "## Licence", "", licence, ""),
        ]
    )


def _metadata(name: str, task_name: str, facts: RunFacts) -> str:
    """Returns the YAML at the head of the card, without the `---` lines."""
    base = facts.base or ""
    best = next((each for each in facts.scores if next(iter(each.values())) == facts.best), {})
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
        for metric, value in [*best.items()][1:]
        if value is not None and math.isfinite(value)
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


def _task(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the description of a preset's task; an empty dict for a backbone alone."""
    path = pathlib.Path(folder, TASK_CONFIG_FILE)
    return read_json(path) if path.is_file() else {}


def _predicting(task_name: str, task: Mapping[str, Any]) -> list[str]:
    if task_name == "GPT1CausalLM":
        return ['model.generate("The road was long, and")']
    preprocessor = (task.get("config", {}).get("preprocessor") or {}).get("config", {})
    if not (fields := preprocessor.get("fields")):
        return []
    texts = [f'["a {field}"]' for field in fields]
    if task_name == "GPT1MultipleChoice":
        texts[-1] = '[["a choice", "another"]]'
    arguments = texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
    return [f"model.classify({arguments})"]


def _model_facts(folder: pathlib.Path, task: Mapping[str, Any]) -> dict[str, Any]:
    backbone = read_json(folder / CONFIG_FILE)
    metadata = folder / METADATA_FILE
    facts = {"backbone": backbone["class_name"]}
    if metadata.is_file():
        facts["parameters"] = f"{read_json(metadata)['parameter_count']:,}"
    names = ("vocabulary_size", "num_layers", "num_heads", "hidden_dim", "max_sequence_length")
    facts |= {name: backbone["config"].get(name) for name in names}
    config = task.get("config", {})
    preprocessor = (config.get("preprocessor") or {}).get("config", {})
    tokenizer = (preprocessor.get("tokenizer") or {}).get("config", {})
    of_head = ("class_names", "score_range", "temperature", "sure_threshold")
    facts |= {name: config.get(name) for name in of_head}
    facts |= {name: preprocessor.get(name) for name in ("fields", "sequence_length")}
    recipe = backbone["config"].get("fine_tuning") or {}
    facts["fine_tune_with"] = [f"{name}={value}" for name, value in recipe.items()]
    return facts | {"normalization": tokenizer.get("normalization")}


def _in_plain_numbers(facts: RunFacts) -> RunFacts:
    """Returns the facts with scores as Python's numbers, which YAML can hold."""
    scores = [
        {key: _number(key, value) for key, value in of_epoch.items()} for of_epoch in facts.scores
    ]
    baselines = {name: _number(name, value) for name, value in facts.baselines.items()}
    return dataclasses.replace(facts, scores=scores, baselines=baselines)


def _number(name: str, value: Any) -> int | float | None:
    """Returns a number of any library as Python's, with the digits that it shows; None for None.

    Raises ValueError for anything else.
    """
    if value is None or isinstance(value, numbers.Integral):
        return value if value is None else int(value)
    try:
        return float(str(value.numpy() if hasattr(value, "numpy") else value))
    except ValueError:
        raise ValueError(f"The score {name!r} must be a number. Received: {value!r}.") from None


def _scores(facts: RunFacts) -> list[str]:
    if not facts.scores:
        return [_NOT_RECORDED]
    first, *metrics = _names(facts.scores)
    rows = [
        [
            f"{each[first]}{' (this preset)' if each[first] == facts.best else ''}",
            *(_score(each.get(metric)) for metric in metrics),
        ]
        for each in facts.scores
    ]
    return _rows([first, *metrics], rows)


def _baselines(facts: RunFacts) -> list[str]:
    if not facts.baselines:
        return []
    metric = [*_names(facts.scores)[1:], "score"][0]
    known = {name: value for name, value in facts.baselines.items() if value is not None}
    ranked = sorted(known.items(), key=lambda item: item[1], reverse=True)
    rows = [[name, _score(value)] for name, value in ranked]
    return ["", "Simple baselines, on the same data:", "", *_rows(["baseline", metric], rows)]


def _names(scores: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for each in scores for name in each))


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _table(content: Mapping[str, Any]) -> list[str]:
    known = {name: value for name, value in content.items() if markdown_text(value)}
    rows = [[name.replace("_", " "), value] for name, value in known.items()]
    return _rows(["", ""], rows) if rows else [_NOT_RECORDED]


def _rows(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    cells = [list(map(markdown_text, row)) for row in (header, *rows)]
    return [f"| {' | '.join(row)} |" for row in (cells[0], ["---"] * len(header), *cells[1:])]


def markdown_text(value: Any) -> str:
    """Returns a value as Markdown shows it, on one line; line ends in it are as in JSON."""
    if isinstance(value, Mapping):
        value = [f"{name}={each}" for name, each in value.items()]
    is_array = getattr(value, "shape", ()) != ()
    if isinstance(value, (list, tuple)) or is_array:
        value = ", ".join(map(str, value))
    text = "" if value is None else json.dumps(str(value), ensure_ascii=False)[1:-1]
    return _MARKDOWN.sub(r"\\\g<0>", text)


def upload_preset(uri: str, preset: str | os.PathLike[str]) -> None:
    """Publishes a preset with its model card; otherwise like `keras_hub.upload_preset`.

    KerasHub replaces the preset's card by an empty one, and then deletes both. This function
    publishes the card, and writes one from the preset's files if there is none. It does not publish
    a preset that cannot be loaded.

    Args:
        uri: `hf://[ORG/]NAME` or `kaggle://ORG/MODEL/keras/VARIANT`, for which the hub's client
            must be logged in; or the path of a folder, which is written whole or not at all, and
            replaces an existing one.
        preset: a name, a folder or a handle, as in `find_preset`.

    Raises:
        FileNotFoundError: there is no preset.
        ValueError: the preset is damaged, or the handle is malformed.
        OSError: the hub cannot be reached, or refuses the preset.
    """
    folder = find_preset(preset)
    scheme = next((each for each in HANDLES if uri.startswith(each)), None)
    if scheme == "modelscope://" or (scheme is None and "://" in uri):
        raise ValueError(f"A preset goes to hf://, kaggle:// or a folder. Received: {uri}.")
    if (folder / TASK_CONFIG_FILE).is_file():
        load_task(folder)
    else:
        CausalBackbone.from_preset(os.fspath(folder))
    with _with_card(folder) as whole:
        if scheme is None:
            with atomic_path(uri) as temporary:
                shutil.copytree(whole, temporary)
            return
        try:
            if scheme == "kaggle://":
                keras_hub.upload_preset(uri, os.fspath(whole))
            else:
                repository = huggingface_hub.create_repo(uri.removeprefix(scheme), exist_ok=True)
                huggingface_hub.upload_folder(repo_id=repository.repo_id, folder_path=whole)
        except (ValueError, ImportError):
            raise
        except Exception as error:  # each client has its own classes
            raise OSError(f"Could not publish {preset} as {uri}: {one_line(error)}") from error


@contextlib.contextmanager
def _with_card(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the folder if it has a card, and otherwise a copy with a card."""
    if (folder / CARD_FILE).is_file():
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        copy = pathlib.Path(temporary, folder.name)
        shutil.copytree(folder, copy)
        write_card(copy)
        yield copy
