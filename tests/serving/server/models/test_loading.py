"""The folder of a version: what it may hold, how it may arrive, and what may be missing."""

import importlib
import os
import shutil

import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from serving.server.errors import ServingError
from serving.server.models import loading
from serving.server.models.loading import Loader
from serving.server.models.model_manager import ModelManager
from serving.server.models.servable import Servable
from serving.server.options import Options

INDEX = "variables/variables.index"
DATA = "variables/variables.data-00000-of-00001"


class Tripler(tf.Module):
    def __init__(self):
        super().__init__()
        self.factor = tf.Variable(3.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def times(self, x):
        return {"y": x * self.factor}


@pytest.fixture(scope="module")
def tripler(tmp_path_factory):
    """A SavedModel with a variable."""
    folder = tmp_path_factory.mktemp("tripler") / "1"
    model = Tripler()
    tf.saved_model.save(model, str(folder), signatures=model.times)
    return folder


def predict(servable, value=1.0):
    inputs = {"x": tf.make_tensor_proto([value])}
    return servable.predict("serving_default", inputs)["y"].tolist()


@pytest.fixture
def serving(tmp_path, tripler):
    """Models of which version 1 is served."""
    shutil.copytree(tripler, tmp_path / "1")
    models = ModelManager()
    text = f"name: 'tripler' base_path: '{tmp_path}' model_platform: 'tensorflow'"
    config = f"model_config_list {{ config {{ {text} }} }}"
    models.configure(text_format.Parse(config, ModelServerConfig()))
    return models


def served(models):
    return [servable.version for servable in models]


def test_a_version_that_is_copied_in_slowly(serving, tmp_path, tripler, caplog):
    """Whatever is there of it, it does not replace the version that answers."""
    whole = (tripler / DATA).read_bytes()
    (tmp_path / "2" / "variables").mkdir(parents=True)
    steps = [
        (lambda: (tmp_path / "2" / "saved_model.pb").touch(), ""),
        (lambda: shutil.copy(tripler / "saved_model.pb", tmp_path / "2"), f"Expected {INDEX}"),
        (lambda: shutil.copy(tripler / INDEX, tmp_path / "2" / INDEX), "No such file or directory"),
        (lambda: (tmp_path / "2" / DATA).write_bytes(whole[:-1]), "Read less bytes than requested"),
    ]
    for step, message in steps:
        step()
        for _ in range(2):
            serving.poll()
        assert served(serving) == [1]
        assert predict(serving.find(ModelSpec(name="tripler"))) == [3.0]
        assert message in caplog.messages[-1]
    assert len(caplog.messages) == len(steps)  # each fault once, not at every poll
    (tmp_path / "2" / DATA).write_bytes(whole)
    serving.poll()
    assert served(serving) == [2]
    assert predict(serving.find(ModelSpec(name="tripler"))) == [3.0]


def test_a_broken_version_is_tried_again_when_a_file_changes(serving, tmp_path, tripler):
    """Even if the file keeps its length and the time at which it was written."""
    shutil.copytree(tripler, tmp_path / "2.new")
    data = tmp_path / "2.new" / DATA
    whole, before = data.read_bytes(), data.stat()
    data.write_bytes(bytes(len(whole)))
    os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))
    (tmp_path / "2.new").rename(tmp_path / "2")
    serving.poll()
    assert served(serving) == [1]  # for ever, if nothing changes
    data = tmp_path / "2" / DATA
    data.write_bytes(whole)
    os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))
    serving.poll()
    assert served(serving) == [2]


@pytest.mark.parametrize("name", ["saved_model.pb", "batching_params.pbtxt", DATA])
def test_a_pipe_does_not_block_polling(serving, tmp_path, tripler, name):
    shutil.copytree(tripler, tmp_path / "2.new")
    (tmp_path / "2.new" / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / "2.new" / name)
    (tmp_path / "2.new").rename(tmp_path / "2")
    serving.poll()
    assert served(serving) == [1]
    [broken, _] = serving.status(ModelSpec(name="tripler")).model_version_status
    message = f"Expected only files and folders in {tmp_path / '2'}; {name} is neither"
    assert message in broken.status.error_message


def test_a_graph_that_initializes_its_variables_needs_no_files(tmp_path):
    """As TensorFlow 1 wrote it: local variables are in no checkpoint."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None], name="x")
        three = v1.get_local_variable("three", initializer=3.0, use_resource=True)
        y = x * three
        builder = v1.saved_model.Builder(str(tmp_path / "1"))
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"serving_default": signature},
            main_op=v1.local_variables_initializer(),
        )
        builder.save()
    assert not (tmp_path / "1" / INDEX).exists()
    assert predict(Servable("local", 1, tmp_path / "1")) == [3.0]


def test_the_tags_of_the_graph(tmp_path, tripler):
    shutil.copytree(tripler, tmp_path / "1")
    file = tmp_path / "1" / "saved_model.pb"
    model = SavedModel.FromString(file.read_bytes())
    model.meta_graphs[0].meta_info_def.tags.append("tpu")
    file.write_bytes(model.SerializeToString())
    with pytest.raises(ServingError, match="Could not find meta graph def matching supplied tags"):
        Servable("tripler", 1, tmp_path / "1")
    loader = Loader(Options(saved_model_tags="tpu,serve"))
    assert predict(Servable("tripler", 1, tmp_path / "1", loader=loader)) == [3.0]


def test_the_session_s_options(tmp_path, tripler, monkeypatch):
    file = tmp_path / "session.config"
    file.write_text("allow_soft_placement: true intra_op_parallelism_threads: 7")
    configs = []
    session = loading.Session
    monkeypatch.setattr(
        loading, "Session", lambda *arguments: configs.append(arguments[3]) or session(*arguments)
    )
    options = Options(
        tensorflow_session_config_file=str(file),
        tensorflow_inter_op_parallelism=2,
        per_process_gpu_memory_fraction=0.5,
        mixed_precision="bfloat16",
    )
    assert predict(Servable("tripler", 1, tripler, loader=Loader(options)), 2.0) == [6.0]
    assert text_format.Parse(
        "allow_soft_placement: true intra_op_parallelism_threads: 7 "
        "inter_op_parallelism_threads: 2 gpu_options { per_process_gpu_memory_fraction: 0.5 } "
        "graph_options { rewrite_options { auto_mixed_precision_onednn_bfloat16: ON } }",
        tf.compat.v1.ConfigProto(),
    ) == tf.compat.v1.ConfigProto.FromString(configs[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"tensorflow_session_parallelism": 1, "tensorflow_intra_op_parallelism": 1},
            "Expected --tensorflow_session_parallelism, or --tensorflow_intra_op_parallelism and",
        ),
        ({"mixed_precision": "float8"}, "Expected --mixed_precision=bfloat16, received 'float8'"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    with pytest.raises(ValueError, match=message):
        Loader(Options(**options))


def test_tensorflow_text_is_imported_when_a_graph_has_its_ops(tmp_path, tripler, monkeypatch):
    """What the package registers is there for the C++ session of the same process."""
    text = pytest.importorskip("tensorflow_text")
    model = tf.Module()
    fold = tf.function(text.case_fold_utf8)
    signature = fold.get_concrete_function(tf.TensorSpec([None], tf.string, name="text"))
    tf.saved_model.save(model, str(tmp_path / "1"), signatures=signature)
    # This process knows them already, from the import above.
    core = {op for op in loading._known_ops() if not op.startswith("CaseFold")}
    monkeypatch.setattr(loading, "_known_ops", lambda: core)
    imported, import_module = [], importlib.import_module
    monkeypatch.setattr(
        importlib, "import_module", lambda name: imported.append(name) or import_module(name)
    )
    Servable("tripler", 1, tripler)
    assert "tensorflow_text" not in imported
    servable = Servable("fold", 1, tmp_path / "1")
    assert "tensorflow_text" in imported
    inputs = {"text": tf.make_tensor_proto(["ABC"])}
    [folded] = servable.predict("serving_default", inputs).values()
    assert folded.tolist() == [b"abc"]
