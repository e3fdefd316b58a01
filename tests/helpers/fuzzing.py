"""Property-based tests: how long they search, and how they damage what they start from.

In `make test`, each test tries a few examples, the same every time. `make fuzz` tries a hundred
times as many, which differ from run to run.
"""

import os

import hypothesis
from hypothesis import strategies as st

_TIMES = int(os.environ.get("FUZZ", "1"))


def search(examples: int) -> hypothesis.settings:
    """Returns how a test searches; `examples` is how many it tries in `make test`."""
    return hypothesis.settings(
        max_examples=examples * _TIMES,
        derandomize=_TIMES == 1,
        database=None,
        deadline=None,
        # An example of a preset takes half a second, so show the first failure, not the smallest.
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Returns the content with up to three parts cut out, repeated, replaced or shortened."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        stop = draw(st.integers(start, min(len(content), start + 40)))
        before, part, after = content[:start], content[start:stop], content[stop:]
        content = draw(
            st.sampled_from(
                [before + after, before + 2 * part + after, before, after + part + before]
            )
            | st.binary(max_size=8).map(lambda new, b=before, a=after: b + new + a)
        )
    return content
