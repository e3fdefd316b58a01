"""Checks models' configurations, and finds the versions on disk that they choose."""

import contextlib
import errno
import os
from pathlib import Path

from grpc import StatusCode
from tensorflow_serving.config.model_server_config_pb2 import (
    TENSORFLOW,
    ModelConfig,
    ModelServerConfig,
)

from serving.export_names import is_version
from serving.server.errors import ServingError, invalid_argument

_PLATFORM = "tensorflow"
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


def check_config(config: ModelServerConfig) -> None:
    """Refuses a configuration unless it is a list of different models with absolute paths."""
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


def versions_on_disk(config: ModelConfig) -> dict[int, Path]:
    """Returns the versions that a model's policy chooses from those under its base path."""
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


def files_of(path: Path) -> frozenset[tuple[str, int, int, int]]:
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
