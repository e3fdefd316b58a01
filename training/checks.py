"""Checks that the programs' options share."""


def check_counts(options, *names):
    """Raises ValueError if one of the named attributes is given and below 1."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1. Received: {value}.")
