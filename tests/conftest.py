"""One Spark session, and one Kafka broker, for all tests that need one; and how hard Hypothesis tries.

``HYPOTHESIS_PROFILE=thorough`` is for a long search; ``long`` is for `make soak`, ``quick`` for `make quick`.
In CI the examples are the same every time. Tests that need Spark or Kafka are marked by what they ask for.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings
from tests.effort import mark_repeats
from tests.short_sessions import COMPILED, INTERPRETED, short_session, use_home_without_archives

if TYPE_CHECKING:
    from scripts.kafka_broker import Broker

settings.register_profile("dev", max_examples=6, deadline=None)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.register_profile("long", settings.get_profile("dev"), max_examples=60)
settings.register_profile("thorough", settings.get_profile("dev"), max_examples=3000)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=3)
# Finds failures fast and does not make them smaller.
settings.register_profile("hunt", settings.get_profile("dev"), phases=[Phase.generate])
# The same examples every time, and no time spent on making a failure smaller: for `make mutants`.
settings.register_profile("mutants", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

# Little of what tests leave is in cycles: to look for it among all tests takes a quarter of their time.
gc.set_threshold(50_000, 20, 20)

# Spark keeps a catalog by its name.
_CATALOGS = count()

# A shell makes what it runs in the background ignore Ctrl-C; some tests raise it and wait for its effect.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use what is below: `-m "not spark and not kafka"` is all the others."""
    for item in items:
        for name, mark in (("spark", "spark"), ("broker", "kafka")):
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(mark)
    mark_repeats(items)
    # `scripts/test.sh` looks for tests on Spark in files that name it.
    for path in {item.path for item in items if item.get_closest_marker("spark") is not None}:
        if "spark" not in path.read_text(encoding="utf-8").lower():
            raise pytest.UsageError(
                f"{path} has tests on Spark: name Spark in it, or `make test` leaves them out"
            )


def pytest_collection_finish() -> None:
    """The tests themselves, and what they import, are no garbage."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """At the end they are: a package that counts what is left of it would complain."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with two shuffle partitions: enough to see what order and distribution do."""
    import recension as rc

    use_home_without_archives(tmp_path_factory.mktemp("home"))
    settings = short_session("2g", spark__sql__shuffle__partitions="2", **_connectors())
    session = rc.spark.session("local[2,4]", "recension tests", **settings)
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


def _connectors() -> dict[str, str]:
    """Jars and extensions can be given to a session only when it is made.

    Tests that need them use `broker`, `delta` or `iceberg` as well.
    """
    from scripts import kafka_jars, lake_jars

    from recension.runners.spark.lake import delta

    found: list[Any] = []
    settings: dict[str, str] = {}
    with suppress(kafka_jars.NoJarsError):
        found += kafka_jars.jars("connector")
    with suppress(lake_jars.NoJarsError):
        found += lake_jars.jars("delta")
        # Its own choices are for large tables, and start processes for every commit on a local disk.
        local = {"spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore"}
        settings |= delta.SETTINGS | local | {"spark.databricks.delta.snapshotPartitions": "1"}
    with suppress(lake_jars.NoJarsError):
        found += lake_jars.jars("iceberg")
    settings |= {"spark.jars": ",".join(map(str, found))} if found else {}
    return {name.replace(".", "__"): value for name, value in settings.items()}


@pytest.fixture
def delta(spark: Any) -> Any:
    """The session, if it has Delta. ``python -m scripts.lake_jars delta`` fetches its jars."""
    _require_jars("delta")
    return spark


@pytest.fixture
def iceberg(spark: Any) -> Any:
    """The session, if it has Iceberg. ``python -m scripts.lake_jars iceberg`` fetches its jar."""
    _require_jars("iceberg")
    return spark


def _require_jars(group: str) -> None:
    from scripts.lake_jars import NoJarsError, jars

    try:
        jars(group)
    except NoJarsError as why:
        pytest.skip(f"no {group.title()}: {why}")


@pytest.fixture
def lake(iceberg: Any, tmp_path: Path) -> str:
    """The name of a catalog of Iceberg's, with its tables in the test's folder."""
    name = f"lake{next(_CATALOGS)}"
    iceberg.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    iceberg.conf.set(f"spark.sql.catalog.{name}.type", "hadoop")
    iceberg.conf.set(f"spark.sql.catalog.{name}.warehouse", f"file:{tmp_path}/lake")
    return name


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker on loopback: ``broker.address``, ``broker.create_topic(name, partitions)``.

    Give each test topics of its own names. ``python -m scripts.kafka_jars`` fetches what it runs from.
    """
    from scripts.kafka_broker import NoBrokerError, running_broker
    from scripts.kafka_jars import NoJarsError, jars

    with ExitStack() as held:
        try:
            jars("connector")
            found = held.enter_context(running_broker(tmp_path_factory.mktemp("kafka")))
        except (NoBrokerError, NoJarsError) as why:
            pytest.skip(f"no Kafka broker: {why}")
        yield found
