"""The flags of tensorflow_model_server: all are accepted; each works, or a message says so."""

import dataclasses
import pathlib
import re

import pytest
import tensorflow as tf

from serving.server import grpc_server
from serving.server.__main__ import _xla, main
from serving.server.errors import ServingError
from serving.server.models.servable import Servable
from serving.server.options import IgnoredFlags, Options, ProcessFlags

DOCS = pathlib.Path(__file__).parents[3] / "docs" / "server.md"
# All flags in TensorFlow Serving 2.20's main.cc, each with a value other than its default.
TENSORFLOW_SERVING = """
--port=1 --grpc_socket_path=x --rest_api_port=1 --rest_api_num_threads=3
--rest_api_timeout_in_ms=1 --rest_api_enable_cors_support --enable_batching
--allow_version_labels_for_unavailable_models --batching_parameters_file=x
--enable_per_model_batching_parameters --model_config_file=x
--model_config_file_poll_wait_seconds=1 --model_name=x --model_base_path=x --num_load_threads=1
--num_unload_threads=1 --max_num_load_retries=5 --load_retry_interval_micros=-1
--file_system_poll_wait_seconds=-1 --flush_filesystem_caches --tensorflow_session_parallelism=1
--tensorflow_session_config_file=x --tensorflow_intra_op_parallelism=1
--tensorflow_inter_op_parallelism=1 --use_alts_credentials --ssl_config_file=x
--platform_config_file=x --per_process_gpu_memory_fraction=0.5 --saved_model_tags=tpu,serve
--grpc_channel_arguments=grpc.max_connection_age_ms=2000 --grpc_max_threads=1
--enable_model_warmup=false --num_request_iterations_for_warmup=2 --version
--monitoring_config_file=x --remove_unused_fields_from_bundle_metagraph=false
--prefer_tflite_model --num_tflite_pools=1 --num_tflite_interpreters_per_pool=2
--enable_signature_method_name_check --xla_cpu_compilation_enabled --xla_gpu_compilation_enabled
--enable_profiler --thread_pool_factory_config_file=x --mixed_precision=bfloat16
--skip_initialize_tpu=false --enable_grpc_healthcheck_service
--enable_serialization_as_tensor_content
""".split()
NAMES = [argument[2:].partition("=")[0] for argument in TENSORFLOW_SERVING]
WITHOUT_EFFECT = sorted(
    set(NAMES)
    - {field.name for field in dataclasses.fields(Options)}
    - {"version", "xla_cpu_compilation_enabled", "xla_gpu_compilation_enabled"}
)


def read(*arguments):
    """The server's options, and whether XLA may compile graphs; warns as the program does."""
    values, _ = main.parse(arguments)
    options, process, ignored = (
        options_cls(**{field.name: values[field.name] for field in dataclasses.fields(options_cls)})
        for options_cls in (Options, ProcessFlags, IgnoredFlags)
    )
    ignored.warn()
    return options, process.xla_cpu_compilation_enabled or process.xla_gpu_compilation_enabled


def test_every_flag_has_an_effect_or_is_named_in_one_warning(caplog):
    options, xla = read(*TENSORFLOW_SERVING)
    changed = {
        field.name
        for field in dataclasses.fields(Options)
        if getattr(options, field.name) != field.default
    }
    assert xla
    [warning] = caplog.messages
    assert warning.startswith("Without effect here: --rest_api_num_threads (")
    named = re.findall(r"--(\w+) \(", warning)
    assert sorted(named) == WITHOUT_EFFECT
    ours = {"num_tflite_pools"} if Options.num_tflite_pools == 1 else set()
    assert changed == set(NAMES) & {field.name for field in dataclasses.fields(Options)} - ours


def test_no_warning_about_what_is_done_anyway(caplog):
    arguments = ["--enable_profiler=false", "--remove_unused_fields_from_bundle_metagraph"]
    assert read(*arguments, "--num_load_threads=0") == (Options(), False)
    assert caplog.messages == []


def test_the_page_names_the_flags_that_tensorflow_serving_lacks():
    [sentence] = re.findall(r"The server alone has ([^.]+)\.", DOCS.read_text())
    assert set(re.findall(r"`--(\w+)`", sentence)) == main.parse([])[0].keys() - set(NAMES)


def test_defaults_are_the_options():
    assert read() == (Options(), False)


@pytest.mark.parametrize(
    ("argument", "nearest"),
    [
        ("--rest_port=8501", "--rest_api_port"),
        ("--model_nam=x", "--model_name"),
        ("--noenable_batching", "--enable_batching"),
        ("--use_tflite_model=true", "--prefer_tflite_model"),
    ],
)
def test_an_unknown_flag(capsys, argument, nearest):
    with pytest.raises(SystemExit) as caught:
        main(["--model_base_path=x", argument])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    flag = argument.partition("=")[0]
    assert error.endswith(f"Unknown option: {flag}. Did you mean {nearest}?\n")


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("--grpc_max_threads=0", "a whole number from 1 to 2147483647, received '0'"),
        ("--max_request_bytes=99999999999", "a whole number from 1 to 2147483647, received '9"),
        ("--rest_api_timeout_in_ms=-1", "a whole number from 0 to 2147483647, received '-1'"),
        ("--per_process_gpu_memory_fraction=nan", "a number from 0 to 1, received 'nan'"),
        ("--model_base_path=models/\udcff", r"UTF-8, received 'models/\udcff'"),
    ],
)
def test_invalid_values(capsys, argument, expected):
    with pytest.raises(SystemExit) as caught:
        main(["--model_base_path=x", argument])
    assert caught.value.code == 2
    assert f"{argument.partition('=')[0]}: expected {expected}" in capsys.readouterr().err


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert re.fullmatch(
        r"gpt1_keras: [\d.]+\nTensorFlow Library: [\d.]+\n", capsys.readouterr().out
    )


def test_channel_arguments():
    text = "grpc.max_connection_age_ms=2000,grpc.lb_policy_name=grpclb,a=b=c,big=99999999999,n=-1"
    assert grpc_server.channel_arguments(text) == {
        "grpc.max_connection_age_ms": 2000,
        "grpc.lb_policy_name": "grpclb",
        "a": "b=c",
        "big": "99999999999",
        "n": -1,
    }
    assert grpc_server.channel_arguments("") == {}
    for wrong in ("grpc.max_connection_age_ms", "=1", "a=1,b"):
        with pytest.raises(ValueError, match="Expected --grpc_channel_arguments as NAME=VALUE,"):
            grpc_server.channel_arguments(wrong)


def test_help_says_what_has_no_effect(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert "--enable_profiler" in text.partition("that have no effect here")[2]


def test_a_boolean_is_true_or_false(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--model_base_path=x", "--enable_batching=maybe"])
    assert caught.value.code == 2
    assert '--enable_batching: unable to convert "maybe" into bool' in capsys.readouterr().err


def test_flags_are_not_abbreviated(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--model_base=x"])
    assert caught.value.code == 2
    assert "Unknown option: --model_base." in capsys.readouterr().err


def test_xla_is_off_unless_a_flag_allows_it(tmp_path):
    """A graph that needs it fails here as it would under TensorFlow Serving."""
    model = tf.Module()
    signature = [tf.TensorSpec([None], tf.float32, name="x")]
    double = tf.function(lambda x: {"y": x * 2}, input_signature=signature, jit_compile=True)
    tf.saved_model.save(model, str(tmp_path / "1"), signatures=double)
    servable = Servable("double", 1, tmp_path / "1")
    inputs = {"x": tf.make_tensor_proto([1.0])}
    with _xla(False), pytest.raises(ServingError, match="XLA compilation disabled"):
        servable.predict("serving_default", inputs)
    with _xla(True):
        assert servable.predict("serving_default", inputs)["y"].tolist() == [2.0]
