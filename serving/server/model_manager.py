"""The models that are served: which versions, from where, and in what state they are."""

import contextlib
import logging
import os
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from grpc import StatusCode
from tensorflow_serving.apis.get_model_status_pb2 import (
    GetModelStatusResponse,
    ModelVersionStatus,
)
from tensorflow_serving.apis.model_management_pb2 import ReloadConfigRequest, ReloadConfigResponse
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.status_pb2 import StatusProto
from tensorflow_serving.config.model_server_config_pb2 import (
    TENSORFLOW,
    ModelConfig,
    ModelServerConfig,
)

from serving.server.inference import warm_up
from serving.server.servable import Servable, ServingError, invalid_argument

_PLATFORM = "tensorflow"


class ModelManager:
    """Loads and unloads versions as the configuration and the folders on disk want it.

    Requests are answered meanwhile: what they read is replaced whole, never changed. A version
    that is unloaded goes once the last request on it is answered.

    Args:
        label_unavailable: accept labels of versions that are not loaded yet, if the labels are
            not in use.
    """

    def __init__(self, label_unavailable: bool = False) -> None:
        self._label_unavailable = label_unavailable
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

    def configure(self, config: ModelServerConfig) -> None:
        """Serves the models in `config`, and only those, once all are loaded that can be.

        Raises:
            ServingError: `config` is not valid, and nothing has changed; or no version of a model
                could be loaded. That one is tried again when its files change.
        """
        with self._update:
            _check(config)
            configs = {each.name: each for each in config.model_config_list.config}
            for each in configs.values():
                self._check_labels(each)
            self._configs = configs
            self._failed.clear()
            errors = self._load_and_unload()
        for name, error in errors.items():
            if not self._servables.get(name):
                raise error
            logging.error(error)

    def poll(self) -> None:
        """Loads versions that are new on disk and unloads those that they take the place of."""
        with self._update:
            errors = self._load_and_unload()
            for name, error in errors.items():
                if error.message != self._reported.get(name):
                    logging.error(error)
            self._reported = {name: error.message for name, error in errors.items()}

    def find(self, spec: ModelSpec) -> Servable:
        """Returns the version that `spec` asks for by number or label, or the latest one.

        Raises:
            ServingError: it names no model, or none that is served.
        """
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
        """Tells the state of all versions of a model, or of the one that `spec` asks for.

        Raises:
            ServingError: there has been none.
        """
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

    def reload(self, request: ReloadConfigRequest) -> ReloadConfigResponse:
        """Configures as a client asks for; raises as `configure` does."""
        self.configure(request.config)
        return ReloadConfigResponse(status=StatusProto())

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
        """Refuses labels of versions that are not served; they would fail requests."""
        before = self._configs.get(config.name, ModelConfig()).version_labels
        for label, version in config.version_labels.items():
            allowed = self._label_unavailable and before.get(label, version) == version
            if not allowed and version not in self._servables.get(config.name, {}):
                raise ServingError(
                    StatusCode.FAILED_PRECONDITION,
                    f"Request to assign label to version {version} of model {config.name}, "
                    "which is not currently available for inference",
                )

    def _load_and_unload(self) -> dict[str, ServingError]:
        """Does what the configuration asks for; returns by name what it could not do."""
        errors = {}
        for name in self._servables.keys() - self._configs.keys():
            self._unload(name, set())
        for name, config in self._configs.items():
            try:
                self._load(name, _versions_on_disk(config))
            except ServingError as error:
                errors[name] = error
        return errors

    def _load(self, name: str, wanted: Mapping[int, Path]) -> None:
        """Loads versions, and then, if there is another to take their place, unloads old ones."""
        failure = None
        for version, path in sorted(wanted.items()):
            current = self._servables.get(name, {}).get(version)
            files = _files(path)
            if current and current.path == path or self._failed.get(path) == files:
                continue
            self._set_state(name, version, ModelVersionStatus.LOADING)
            try:
                servable = Servable(name, version, path)
                warm_up(servable, path)
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
        if not wanted or wanted.keys() & self._servables.get(name, {}).keys():
            self._unload(name, wanted.keys())
        if failure:
            raise failure
        if not wanted:
            raise ServingError(
                StatusCode.NOT_FOUND,
                f"No version of model {name} under base path {self._configs[name].base_path}: "
                "expected a folder named by a number, such as 1",
            )

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
        # Replaced, for a request may be reading it.
        self._states[name] = {**self._states.get(name, {}), version: status}


def _check(config: ModelServerConfig) -> None:
    """Refuses a configuration that is not a list of different models with absolute paths."""
    if config.WhichOneof("config") != "model_config_list":
        raise invalid_argument(
            "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
            "ModelConfigList is currently supported"
        )
    names = set()
    for each in config.model_config_list.config:
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
    """Returns the versions that a model's policy chooses from those under its base path.

    Raises:
        ServingError: there is no such folder.
    """
    base = Path(config.base_path)
    try:
        found = {int(child.name): child for child in base.iterdir() if _is_version(child)}
    except OSError as error:
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


def _is_version(path: Path) -> bool:
    digits = path.name.isascii() and path.name.isdecimal()
    return digits and int(path.name) < 2**63 and path.is_dir()


def _files(path: Path) -> frozenset[tuple[str, int, int]]:
    """Returns what changes when a file under a folder does: names, sizes and times."""
    found = set()
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):  # it may go at any time
                status = os.stat(os.path.join(folder, name))
                found.add((os.path.join(folder, name), status.st_size, status.st_mtime_ns))
    return frozenset(found)
