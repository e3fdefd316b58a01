"""The flags of TensorFlow Serving 2.20 that are not options of a `Server`."""

import dataclasses
import logging
from typing import Any

from gpt1_keras.cli import option


def _ignored(anyway: Any, why: str) -> Any:
    """Returns a flag that has no effect here; its default is the value that always applies."""
    return option(why, anyway, group="flags of TensorFlow Serving that have no effect here")


@dataclasses.dataclass(frozen=True)
class ProcessFlags:
    """Flags of the whole process, such as XLA's."""

    xla_cpu_compilation_enabled: bool = option("compile with XLA where a graph asks for it", False)
    xla_gpu_compilation_enabled: bool = option(
        "the same; TensorFlow has one switch for both", False
    )
    version: bool = option("print the versions, and end", False)


@dataclasses.dataclass(frozen=True)
class IgnoredFlags:
    """Flags that have no effect here, each with the reason."""

    rest_api_num_threads: int | None = _ignored(None, "connections have threads of their own")
    rest_api_enable_cors_support: bool = _ignored(False, "a proxy can add the headers")
    num_load_threads: int = _ignored(0, "versions are loaded one after the other")
    num_unload_threads: int = _ignored(0, "versions are unloaded after their last request")
    max_num_load_retries: int = _ignored(0, "a version is tried again when its files change")
    load_retry_interval_micros: int | None = _ignored(
        None, "a version is tried again when its files change"
    )
    flush_filesystem_caches: bool = _ignored(False, "the system frees them when it needs memory")
    platform_config_file: str = _ignored("", "there is one platform, TensorFlow")
    remove_unused_fields_from_bundle_metagraph: bool = _ignored(True, "only signatures are kept")
    num_tflite_interpreters_per_pool: int = _ignored(
        1, "--num_tflite_pools says how many there are"
    )
    enable_signature_method_name_check: bool = _ignored(
        False, "TensorFlow 2 does not set the names"
    )
    enable_profiler: bool = _ignored(False, "there is no profiler")
    thread_pool_factory_config_file: str = _ignored("", "all models share TensorFlow's threads")
    skip_initialize_tpu: bool = _ignored(True, "there is no TPU")
    enable_serialization_as_tensor_content: bool = _ignored(False, "values are in typed fields")
    enable_batching: bool = _ignored(
        False, "exports made with --batching merge requests in the graph"
    )
    batching_parameters_file: str = _ignored("", "exports made with --batching have their own")
    enable_per_model_batching_parameters: bool = _ignored(
        False, "an export's parameters are its own"
    )

    def warn(self) -> None:
        """Warns once, and names all flags whose value differs from the one that applies."""
        asked = [
            f"--{field.name} ({field.metadata['settings']['help']})"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]
        if asked:
            logging.warning("Without effect here: %s", ", ".join(asked))
