"""Messages of TensorFlow Serving's configuration files that tensorflow-serving-api lacks."""

import functools

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

_PACKAGE = "tensorflow.serving"
_MESSAGES: dict[str, dict[int, tuple[str, str]]] = {  # by number: a field's name and type
    "SSLConfig": {
        1: ("server_key", "TYPE_STRING"),
        2: ("server_cert", "TYPE_STRING"),
        3: ("custom_ca", "TYPE_STRING"),
        4: ("client_verify", "TYPE_BOOL"),
    },
    "PrometheusConfig": {1: ("enable", "TYPE_BOOL"), 2: ("path", "TYPE_STRING")},
    "MonitoringConfig": {1: ("prometheus_config", "PrometheusConfig")},
}


def new(name: str) -> Message:
    """Returns an empty message of one of these types: `SSLConfig`, `MonitoringConfig`."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))()


@functools.cache
def _pool() -> descriptor_pool.DescriptorPool:
    """Returns the messages' descriptors, in a pool separate from other libraries'."""
    file = descriptor_pb2.FileDescriptorProto(
        name="serving.proto", package=_PACKAGE, syntax="proto3"
    )
    for message, fields in _MESSAGES.items():
        message_type = file.message_type.add(name=message)
        for number, (field, kind) in fields.items():
            added = message_type.field.add(name=field, number=number, label="LABEL_OPTIONAL")
            if kind in _MESSAGES:
                added.type, added.type_name = "TYPE_MESSAGE", f".{_PACKAGE}.{kind}"
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool
