"""A server's options: TensorFlow Serving's flags that have an effect here, and some more."""

import dataclasses
import functools
import logging
import os
from typing import Any

from gpt1_keras.cli import option

_INT32 = 2**31 - 1  # gRPC's options, and most of TensorFlow Serving's flags, are 32-bit integers


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


def _flag(default: Any, help: str, least: int = 0, most: int = _INT32) -> Any:
    """Returns a field that is a flag; `least` and `most` bound numbers."""
    if isinstance(default, bool):
        return option(help, default)
    if isinstance(default, str):
        return option(help, default, parse=_text)
    parse = functools.partial(_number, type(default), least, most)
    return option(help, default, parse=parse)


def _text(text: str) -> str:
    """Returns a string after a check: gRPC and protocol buffers hold only UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"expected UTF-8, received {text!r}") from None
    return text


def _number(kind: type, least: int, most: int, text: str) -> Any:
    try:
        number = kind(text) if text.isascii() else None
    except ValueError:
        number = None
    if number is None or not least <= number <= most:
        word = "a whole number" if kind is int else "a number"
        raise ValueError(f"expected {word} from {least} to {most}, received {text!r}")
    return number


@dataclasses.dataclass(frozen=True)
class Options:
    """A server's options, by the names of TensorFlow Serving's flags and with their defaults.

    Only REST has its official image's default, port 8501: the program itself has none.

    Seconds may be fractions where a server is made from Python.
    """

    # What is served.
    model_name: str = _flag("default", "name to serve one model under")
    model_base_path: str = _flag(
        "", "folder of its versions, each a SavedModel in a folder named by a number"
    )
    model_config_file: str = _flag(
        "", "a ModelServerConfig in text format, instead of the two above"
    )
    model_config_file_poll_wait_seconds: float = _flag(
        0, "seconds between reads of that file; 0 to read it once", -_INT32
    )
    file_system_poll_wait_seconds: float = _flag(
        1, "seconds between searches for new versions; 0 to search once", -_INT32
    )
    allow_version_labels_for_unavailable_models: bool = _flag(
        False,
        "accept unused labels for versions that are not loaded yet, as when the server starts",
    )

    # How models are loaded and run.
    saved_model_tags: str = _flag("serve", "tags of the graph to load, separated by commas")
    prefer_tflite_model: bool = _flag(
        False, "run a version's model.tflite, if it has one, in LiteRT"
    )
    num_tflite_pools: int = _flag(
        os.cpu_count() or 1, "number of requests that such a model answers at once", 1
    )
    enable_model_warmup: bool = _flag(True, "answer the requests that come with a version first")
    num_request_iterations_for_warmup: int = _flag(0, "how often to answer them, if more than once")
    tensorflow_session_parallelism: int = _flag(
        0, "number of threads that run a graph, both kinds below; 0 for the number of cores"
    )
    tensorflow_intra_op_parallelism: int = _flag(0, "number of threads that share an op's work")
    tensorflow_inter_op_parallelism: int = _flag(0, "number of ops that run at once")
    tensorflow_session_config_file: str = _flag("", "a ConfigProto in text format")
    per_process_gpu_memory_fraction: float = _flag(
        0.0, "part of a GPU's memory to take; 0 to let TensorFlow choose", 0, 1
    )
    mixed_precision: str = _flag("", "bfloat16: compute in it where that is safe, on processors")

    # gRPC.
    host: str = _flag("localhost", "address to listen on; 0.0.0.0 also serves other machines")
    port: int = _flag(8500, "gRPC port; 0 for a free one", 0, 65535)
    grpc_socket_path: str = _flag("", "Unix socket for gRPC, besides the port")
    # TensorFlow Serving's is four times the cores. At least two batches of eight: fewer requests at
    # once would leave exports that merge requests little to merge.
    grpc_max_threads: int = _flag(
        max(16, 4 * (os.cpu_count() or 1)),
        "number of requests to run at once, over gRPC and REST; a run cannot be interrupted",
        1,
    )
    grpc_channel_arguments: str = _flag("", "gRPC's own options: NAME=VALUE,NAME=VALUE")
    enable_grpc_healthcheck_service: bool = _flag(False, "offer grpc.health.v1.Health")
    ssl_config_file: str = _flag(
        "", "an SSLConfig in text format; without it, gRPC is not encrypted"
    )
    use_alts_credentials: bool = _flag(False, "authenticate gRPC's clients with Google's ALTS")

    # REST.
    rest_api_port: int = _flag(8501, "REST port; 0 for no REST", 0, 65535)
    rest_api_timeout_in_ms: int = _flag(
        30_000, "milliseconds that the model may take to answer over REST; 0 for no limit"
    )
    rest_api_enable_cors_support: bool = _flag(
        False, "let pages of all other sites ask over REST, and read the answers"
    )
    rest_api_page: bool = _flag(True, "show browsers a page at / to try the models")
    monitoring_config_file: str = _flag(
        "", "a MonitoringConfig in text format, for metrics on the REST port"
    )

    # Limits of requests, over both.
    max_request_bytes: int = _flag(
        2**24,
        "length of the longest request to accept, also once it is expanded, and of an answer's "
        "outputs",
        1,
    )
    max_request_rows: int = _flag(256, "number of examples in the largest request to accept", 1)
    max_queued_requests: int = _flag(
        32, "number of requests that may wait; further ones are refused at once"
    )
