"""The addresses that a server listens on."""

import socket


def of_host(host: str) -> list[str]:
    """Returns the addresses to listen on for a host: both loopback ones for `localhost`.

    Clients use either address for `localhost`, and not all of them then try the other.
    """
    if host != "localhost":
        return [host]
    return ["127.0.0.1", "::1"] if _has_ipv6_loopback() else ["127.0.0.1"]


def with_port(address: str, port: int) -> str:
    """Returns an address and a port as gRPC takes them."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def check_free(protocol: str, flag: str, host: str, port: int) -> None:
    """Raises OSError if a port is in use or the host is not an address of this machine.

    Args:
        protocol: what the port is for, for the message.
        flag: the flag that chooses it.
        host: where to listen, as `of_host` takes it.
        port: the port; 0 is not checked.
    """
    for address in of_host(host) if port else []:
        try:
            family, *_, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                # A connection that was closed a moment ago does not keep a server from listening.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
        except OSError as error:
            raise OSError(
                f"Cannot listen for {protocol} on {with_port(address, port)}: {error.strerror}. "
                f"Choose by --{flag} and --host."
            ) from error


def _has_ipv6_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
