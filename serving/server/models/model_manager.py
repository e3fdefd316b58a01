"""ModelManager: checks models' configurations, and finds, loads and unloads their versions."""

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from grpc import StatusCode
from tensorflow_serving.apis.get_model_status_pb2 import (
    GetModelStatusResponse,
    ModelVersionStatus,
)
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.config.model_server_config_pb2 import (
    TENSORFLOW,
    ModelConfig,
    ModelServerConfig,
)

from serving.export_names import is_version
from serving.server.errors import ServingError, invalid_argument
from serving.server.models.loading import Loader
from serving.server.models.servable import Servable
from serving.server.options import Options
from serving.server.prometheus_metrics import Metrics

_PLATFORM = "tensorflow"
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


class ModelManager:
    """Loads and unloads versions as the configuration and the folders on disk say.

    Requests are answered meanwhile: the mappings that they read are replaced as a whole, and never
        changed. A version that is unloaded is freed once the last request to it is answered.

    Args:
        metrics: times the models' runs; None if no page shows metrics.
        prepare: called with each version before it is available. If it raises a ServingError, the
            version counts as not loaded.

    Raises:
        OSError: a file that the options name cannot be read.
        ValueError: such a file does not hold what is expected there, or options contradict each
            other.
    """

    def __init__(
        self,
        options: Options | None = None,
        metrics: Metrics | None = None,
        prepare: Callable[[Servable], None] = lambda servable: None,
    ) -> None:
        options = options or Options()
        self._label_unavailable = options.allow_version_labels_for_unavailable_models
        self._prepare = prepare
        self._loader = Loader(options)
        self._metrics = metrics
        self._update = threading.Lock()
        self._configs: Mapping[str, ModelConfig] = {}
        self._servables: Mapping[str, Mapping[int, Servable]] = {}
        self._states: dict[str, dict[int, ModelVersionStatus]] = {}
        self._failed: dict[Path, object] = {}  # the files of versions that did not load
        self._reported: dict[str, str] = {}

    def __iter__(self) -> Iterator[Servable]:
        for versions in self._servables.values():
            yield from versions.values()

    def __contains__(self, name: str) -> bool:
        return name in self._configs

    def names(self) -> list[str]:
        """Returns the names of all models, including those without a loaded version."""
        return list(self._configs)

    def configure(self, config: ModelServerConfig) -> None:
        """Serves the models in `config` and no others, once each serves a version that it asks for.

        Until then, nothing is unloaded. TensorFlow Serving unloads first, and then waits for the
        models alone that are new.

        Raises:
            ServingError: `config` is not valid, and nothing has changed; or no version of a model
                could be loaded. All that was served before goes on, and so do the other models. A
                model that was not served is tried again when its files change.
        """
        with self._update:
            _check_config(config)
            configs = {each.name: each for each in config.model_config_list.config}
            for each in configs.values():
                self._check_labels(each)
            self._failed.clear()
            wanted, errors = self._load(configs)
            missing = {
                name: error
                for name, error in errors.items()
                if not self._serves(name, wanted.get(name, {}))
                # One that stays as it is may go on with what it has.
                and not (self._servables.get(name) and configs[name] == self._configs.get(name))
            }
            if missing:
                for name in missing:
                    wanted.pop(name, None)
                    if self._servables.get(name):
                        del configs[name]
                configs = {**self._configs, **configs}
            self._configs = configs
            self._unload_others(wanted)
        for error in missing.values():
            raise error
        for error in errors.values():
            logging.error(error)

    def poll(self) -> None:
        """Loads versions that are new on disk, and unloads those that they replace."""
        with self._update:
            wanted, errors = self._load(self._configs)
            self._unload_others(wanted)
            for name, error in errors.items():
                if error.message != self._reported.get(name):
                    logging.error(error)
            self._reported = {name: error.message for name, error in errors.items()}

    def find(self, spec: ModelSpec) -> Servable:
        """Returns the version that `spec` names by number or label, or the latest one."""
        if not spec.name:
            raise invalid_argument("ModelSpec has no name specified.")
        version = self._version(spec)
        servables = self._servables.get(spec.name, {})
        servable = servables.get(max(servables, default=0) if version is None else version)
        if servable is not None:
            return servable
        asked = f"Latest({spec.name})" if version is None else f"Specific({spec.name}, {version})"
        raise ServingError(StatusCode.NOT_FOUND, f"Servable not found for request: {asked}")

    def status(self, spec: ModelSpec) -> GetModelStatusResponse:
        """Returns the state of all versions of a model, or of the one that `spec` names."""
        version = self._version(spec)
        states = self._states.get(spec.name, {})
        missing = f"Could not find any versions of model {spec.name}"
        if version is not None:
            states = {version: states[version]} if version in states else {}
            missing = f"Could not find version {version} of model {spec.name}"
        if not states:
            raise ServingError(StatusCode.NOT_FOUND, missing)
        latest_first = [states[number] for number in sorted(states, reverse=True)]
        return GetModelStatusResponse(model_version_status=latest_first)

    def cancel(self) -> None:
        """Ends the runs in flight, and refuses further ones."""
        for servable in self:
            servable.cancel()

    def _version(self, spec: ModelSpec) -> int | None:
        choice = spec.WhichOneof("version_choice")
        if choice == "version":
            return spec.version.value
        if choice == "version_label":
            config = self._configs.get(spec.name)
            if config is None or spec.version_label not in config.version_labels:
                raise invalid_argument(f"Unrecognized servable version label: {spec.version_label}")
            return config.version_labels[spec.version_label]
        return None

    def _check_labels(self, config: ModelConfig) -> None:
        """Refuses labels of versions that are not served, as requests to them would fail."""
        before = self._configs.get(config.name, ModelConfig()).version_labels
        for label, version in config.version_labels.items():
            allowed = self._label_unavailable and before.get(label, version) == version
            if not allowed and version not in self._servables.get(config.name, {}):
                raise ServingError(
                    StatusCode.FAILED_PRECONDITION,
                    f"Request to assign label to version {version} of model {config.name}, "
                    "which is not currently available for inference",
                )

    def _load(
        self, configs: Mapping[str, ModelConfig]
    ) -> tuple[dict[str, Mapping[int, Path]], dict[str, ServingError]]:
        """Loads the configured versions, and unloads nothing.

        Returns:
            The versions that each model should have, without models whose base path cannot be read;
            and the failed models' errors, both by name.
        """
        wanted: dict[str, Mapping[int, Path]] = {}
        errors = {}
        for name, config in configs.items():
            try:
                wanted[name] = _versions_on_disk(config)
                self._load_versions(config, wanted[name])
            except ServingError as error:
                errors[name] = error
        return wanted, errors

    def _load_versions(self, config: ModelConfig, wanted: Mapping[int, Path]) -> None:
        name, failure = config.name, None
        for version, path in sorted(wanted.items()):
            files = _files_of(path)
            if self._serves(name, {version: path}) or self._failed.get(path) == files:
                continue
            self._set_state(name, version, ModelVersionStatus.LOADING)
            try:
                servable = Servable(name, version, path, self._metrics, self._loader)
                self._prepare(servable)
            except ServingError as error:
                self._failed[path] = files
                text = f"Cannot load version {version} of model {name}: {error.message}"
                failure = ServingError(error.code, text)
                self._set_state(name, version, ModelVersionStatus.END, failure)
            else:
                self._failed.pop(path, None)
                served = {**self._servables.get(name, {}), version: servable}
                self._servables = {**self._servables, name: served}
                self._set_state(name, version, ModelVersionStatus.AVAILABLE)
                logging.info("Loaded version %d of model %s", version, name)
        if failure:
            raise failure
        if not wanted:
            specific = config.model_version_policy.specific.versions
            raise ServingError(
                StatusCode.NOT_FOUND,
                f"No version of model {name} under base path {config.base_path}: expected a folder "
                f"named {' or '.join(map(str, specific)) or 'by a number, such as 1'}",
            )

    def _serves(self, name: str, versions: Mapping[int, Path]) -> bool:
        served = self._servables.get(name, {})
        return any(served[each].path == path for each, path in versions.items() if each in served)

    def _unload_others(self, wanted: Mapping[str, Mapping[int, Path]]) -> None:
        """Unloads unwanted versions, but a model's only once a wanted one is served."""
        for name in self._servables:
            versions = wanted.get(name)
            if name not in self._configs or versions == {}:
                self._unload(name, set())
            elif versions and self._serves(name, versions):
                self._unload(name, versions.keys())

    def _unload(self, name: str, wanted: Collection[int]) -> None:
        served = self._servables.get(name, {})
        for version in served.keys() - set(wanted):
            self._set_state(name, version, ModelVersionStatus.END)
            logging.info("Unloaded version %d of model %s", version, name)
        kept = {version: each for version, each in served.items() if version in wanted}
        self._servables = {**self._servables, name: kept}

    def _set_state(
        self, name: str, version: int, state: Any, error: ServingError | None = None
    ) -> None:
        status = ModelVersionStatus(version=version, state=state)
        status.status.error_code = error.code.value[0] if error else 0
        status.status.error_message = error.message if error else ""
        # A new dict, as a request may be reading the old one.
        self._states[name] = {**self._states.get(name, {}), version: status}


def _check_config(config: ModelServerConfig) -> None:
    if config.WhichOneof("config") != "model_config_list":
        raise invalid_argument(
            "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
            "ModelConfigList is currently supported"
        )
    names = set()
    for each in config.model_config_list.config:
        if not each.name:
            raise invalid_argument("Expected a name of every model; received an empty one")
        if each.name in names:
            raise invalid_argument(
                f"Illegal to list model {each.name} multiple times in config list"
            )
        names.add(each.name)
        if not each.base_path.startswith("/"):
            raise invalid_argument(
                f"Expected model {each.name} to have an absolute path or URI; "
                f"got base_path()={each.base_path}"
            )
        platform = _PLATFORM if each.model_type == TENSORFLOW else each.model_platform
        if not platform:
            raise invalid_argument(
                "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
                "ModelServerConfig::model_platform."
            )
        if platform != _PLATFORM:
            raise invalid_argument(
                f"Model {each.name} requests unsupported platform {each.model_platform}"
            )


def _versions_on_disk(config: ModelConfig) -> dict[int, Path]:
    base = Path(config.base_path)
    try:
        found = {int(child.name): child for child in base.iterdir() if is_version(child)}
    except (OSError, ValueError) as error:  # ValueError for a NUL in the path
        if isinstance(error, OSError) and error.errno not in _NO_FOLDER:  # no descriptor, no right
            raise ServingError(
                StatusCode.UNAVAILABLE,
                f"Cannot read base path {base} of model {config.name}: {error.strerror}",
            ) from error
        raise ServingError(
            StatusCode.NOT_FOUND,
            f"Base path {base} of model {config.name} is not a folder",
        ) from error
    policy = config.model_version_policy
    match policy.WhichOneof("policy_choice"):
        case "all":
            chosen = set(found)
        case "specific":
            chosen = found.keys() & set(policy.specific.versions)
        case _:
            chosen = set(sorted(found)[-max(1, policy.latest.num_versions) :])
    return {version: found[version] for version in chosen}


def _files_of(path: Path) -> frozenset[tuple[str, int, int, int]]:
    """Returns a value that changes when a file under a folder changes.

    It uses the time of the last change of status: copies may keep the time of writing.
    """
    found = set()
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):  # a file may vanish at any time
                file = os.path.join(folder, name)
                status = os.stat(file)
                found.add((file, status.st_ino, status.st_size, status.st_ctime_ns))
    return frozenset(found)
