"""Loads a version: checks its folder, and makes the session that runs it, with its ConfigProto."""

import functools
import importlib
import importlib.util
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

import tensorflow as tf
from google.protobuf.message import DecodeError
from grpc import StatusCode
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.op_def_pb2 import OpList
from tensorflow.core.protobuf.config_pb2 import ConfigProto
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef, SignatureDef
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from serving.export_names import SAVED_MODEL_FILE
from serving.runtime import Runtime, Session, StatusError
from serving.server import config_files
from serving.server.errors import ServingError, runtime_refusal
from serving.server.options import Options

if TYPE_CHECKING:
    from serving.server.models.tflite_session import TfLiteSession

# A session, and its signatures by name.
_Loaded: TypeAlias = tuple[Union[Session, "TfLiteSession"], dict[str, SignatureDef]]

_TFLITE_FILE = "model.tflite"
_VARIABLES_FILE = "variables/variables.index"
_VARIABLE_OPS = {"VarHandleOp", "VariableV2", "Variable"}


class Loader:
    """Loads versions as a server's options say.

    Raises:
        OSError: a file that they name cannot be read.
        ValueError: a file does not hold what is expected there, or options contradict each other.
    """

    def __init__(self, options: Options | None = None) -> None:
        options = options or Options()
        self._tags = options.saved_model_tags.split(",")
        self._config = _session_config(options).SerializeToString()
        self._num_interpreters = options.num_tflite_pools if options.prefer_tflite_model else 0

    def load(self, path: Path) -> _Loaded:
        """Loads the version in a folder."""
        try:
            _check_files(path)
            tflite = path / _TFLITE_FILE
            if self._num_interpreters and tflite.exists():
                return self._load_tflite(tflite)
            return self._load_saved_model(path)
        except StatusError as error:
            raise runtime_refusal(error) from error
        except (OSError, ValueError, DecodeError) as error:
            raise ServingError(StatusCode.INTERNAL, str(error)) from error

    def _load_saved_model(self, path: Path) -> _Loaded:
        # Read first, so that the error says if the file is missing or broken.
        saved_model = SavedModel.FromString((path / SAVED_MODEL_FILE).read_bytes())
        tags = set(self._tags)
        graphs = [each for each in saved_model.meta_graphs if set(each.meta_info_def.tags) == tags]
        if graphs:
            ops = set(_ops(graphs[0].graph_def))
            if _restores_variables(graphs[0], ops) and not (path / _VARIABLES_FILE).exists():
                raise ServingError(
                    StatusCode.FAILED_PRECONDITION,
                    f"Expected {_VARIABLES_FILE} beside {SAVED_MODEL_FILE}, as the graph has "
                    "variables; there is none yet",
                )
            _register(ops - {each.signature.name for each in graphs[0].graph_def.library.function})
        session = Session(runtime(), path, self._tags, self._config)
        return session, dict(graphs[0].signature_def)

    def _load_tflite(self, path: Path) -> _Loaded:
        # Imported here, as few servers need it, and it imports the whole converter.
        from serving.server.models.tflite_session import TfLiteSession

        session = TfLiteSession(path, self._num_interpreters, runtime())
        return session, session.signature_defs


@functools.cache
def runtime() -> Runtime:
    """Returns the runtime of this process's TensorFlow, loaded once."""
    return Runtime(Path(tf.__file__).parent)


def _check_files(path: Path) -> None:
    """Refuses a folder with pipes, sockets or devices: reading one could wait for ever."""
    for child in path.rglob("*"):
        if child.exists() and not child.is_file() and not child.is_dir():
            raise ServingError(
                StatusCode.FAILED_PRECONDITION,
                f"Expected only files and folders in {path}; {child.relative_to(path)} is neither",
            )


def _ops(graph: GraphDef) -> Iterator[str]:
    for node in graph.node:
        yield node.op
    for function in graph.library.function:
        for node in function.node_def:
            yield node.op


def _restores_variables(graph: MetaGraphDef, ops: set[str]) -> bool:
    """Returns whether a graph reads its variables from files when it is loaded.

    Variables that the graph itself initializes need no files.
    """
    return bool(graph.saver_def.restore_op_name) and not ops.isdisjoint(_VARIABLE_OPS)


@functools.cache
def _known_ops() -> set[str]:
    return {op.name for op in OpList.FromString(runtime().op_list()).op}


def _register(ops: set[str]) -> None:
    """Registers tensorflow-text's ops, if the package is installed and some op is unknown."""
    if ops <= _known_ops() or importlib.util.find_spec("tensorflow_text") is None:
        return
    try:
        importlib.import_module("tensorflow_text")
    except (ImportError, tf.errors.NotFoundError) as error:
        logging.error("Cannot import tensorflow_text: %s", error)


def _session_config(options: Options) -> ConfigProto:
    """Returns the ConfigProto for the flags `--tensorflow_*` and two others.

    Raises:
        OSError: the file of `--tensorflow_session_config_file` cannot be read.
        ConfigError: it is not a ConfigProto in text format.
        ValueError: the flags contradict each other, or `--mixed_precision` is unknown.
    """
    file = options.tensorflow_session_config_file
    config = config_files.read_session_config(file) if file else ConfigProto()
    both = options.tensorflow_session_parallelism
    intra = options.tensorflow_intra_op_parallelism
    inter = options.tensorflow_inter_op_parallelism
    if both and (intra or inter):
        raise ValueError(
            "Expected --tensorflow_session_parallelism, or --tensorflow_intra_op_parallelism and "
            "--tensorflow_inter_op_parallelism; received both"
        )
    # 0 keeps the value in the file.
    if both or intra:
        config.intra_op_parallelism_threads = both or intra
    if both or inter:
        config.inter_op_parallelism_threads = both or inter
    if options.per_process_gpu_memory_fraction:
        fraction = options.per_process_gpu_memory_fraction
        config.gpu_options.per_process_gpu_memory_fraction = fraction
    if options.mixed_precision == "bfloat16":
        rewriting = config.graph_options.rewrite_options
        rewriting.auto_mixed_precision_onednn_bfloat16 = RewriterConfig.ON
    elif options.mixed_precision:
        raise ValueError(
            f"Expected --mixed_precision=bfloat16, received {options.mixed_precision!r}"
        )
    return config
