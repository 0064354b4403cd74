"""One Spark session for all tests that need one; and how hard Hypothesis tries.

``HYPOTHESIS_PROFILE=thorough`` is for a long search, ``quick`` for `make quick`; in CI the examples are the
same every time. Tests that need Spark are marked so, by what they ask for.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import Phase, settings

settings.register_profile("dev", max_examples=25, deadline=None)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.register_profile("thorough", settings.get_profile("dev"), max_examples=3000)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=3)
# Finds failures fast and does not make them smaller.
settings.register_profile("hunt", settings.get_profile("dev"), phases=[Phase.generate])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

# A shell makes what it runs in the background ignore Ctrl-C; some tests raise it and wait for its effect.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the session below: `-m "not spark"` is all the others."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


# A test runs each plan once, on a few rows: to compile it, and what runs it, costs more than it saves. The
# programs that tests start (`tests.runners.spark.stream.driver`) and `as_users_run_it` have Spark's settings.
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session with two shuffle partitions: enough to see what order and distribution do."""
    import recension as rc

    session = rc.spark.session(
        "local[2,4]",
        "recension tests",
        spark__sql__shuffle__partitions="2",
        spark__driver__memory="2g",
        spark__driver__extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **{name.replace(".", "__"): value for name, value in INTERPRETED.items()},
    )
    yield session
    session.stop()


@pytest.fixture
def as_users_run_it(spark: Any) -> Iterator[Any]:
    """The session with plans compiled, as Spark does unless it is told otherwise."""
    for name, value in COMPILED.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)
