"""Nothing leans on what another package keeps to itself; completion shows what is meant for users."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

import recension as rc

SOURCE = Path(__file__).parents[2] / "src"


@cache
def parsed() -> list[tuple[Path, list[ast.AST]]]:
    """What the files of the library import, define and reach for."""
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Attribute)
    trees = ((file, ast.parse(file.read_text(encoding="utf-8"))) for file in sorted(SOURCE.rglob("*.py")))
    return [(file, [node for node in ast.walk(tree) if isinstance(node, kinds)]) for file, tree in trees]


def imported(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Every name a file imports, in full, with its line."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.lineno, f"{node.module}.{name.name}") for name in node.names)


def is_private(name: str) -> bool:
    """Has the path to it a part that begins with one underscore? (``__future__`` is public.)"""
    return any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def test_no_private_name_of_another_package_is_imported() -> None:
    assert is_private("narwhals._expression_parsing.ExprNode")
    assert not is_private("__future__.annotations")
    found = [
        f"{file.relative_to(SOURCE)}:{line} {name}"
        for file, nodes in parsed()
        for line, name in imported(nodes)
        if is_private(name) and not name.startswith("recension.")
    ]
    assert found == []


# PySpark has no other way to the file systems, the running queries and the frames of the JVM (Delta's own
# transactions take these), and to the connection of a task to its state; a namedtuple to its fields.
PRIVATE_ATTRIBUTES = {
    *("_jvm", "_jsc", "_jsparkSession", "_jdf", "_client_socket"),
    *("_asdict", "_field_defaults"),
}
# Public, whatever they look like: the errors of the Kafka client that its broker does not know.
KAFKA_ERRORS = {
    "_ALL_BROKERS_DOWN",
    "_AUTO_OFFSET_RESET",
    "_PARTITION_EOF",
    "_RESOLVE",
    "_TIMED_OUT",
    "_TRANSPORT",
    "_UNSUPPORTED_FEATURE",
}


def is_of_self(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Is it an attribute of ``self`` or ``cls``?"""
    is_attribute = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    return is_attribute and node.value.id in ("self", "cls")  # type: ignore[attr-defined]


def test_private_attributes_of_other_packages_are_the_known_ones() -> None:
    every = [(file, node) for file, nodes in parsed() for node in nodes]
    own = {node.name for _, node in every if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {node.attr for _, node in every if is_of_self(node) and isinstance(node.ctx, ast.Store)}
    own -= PRIVATE_ATTRIBUTES
    found = [
        (file, node)
        for file, node in every
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own
        if not is_of_self(node)
    ]
    of_kafka = {str(file.relative_to(SOURCE)) for file, node in found if node.attr in KAFKA_ERRORS}
    assert all(file.startswith("recension/runners/kafka/") for file in of_kafka)
    assert {node.attr for _, node in found} - KAFKA_ERRORS == PRIVATE_ATTRIBUTES
    at_jvm = {str(file.relative_to(SOURCE)) for file, node in found if node.attr.startswith("_j")}
    assert all(file.startswith("recension/runners/spark/") for file in at_jvm)


def test_completion_shows_what_is_meant_for_users() -> None:
    assert dir(rc) == sorted(rc.__all__)
    assert all(hasattr(rc, name) for name in rc.__all__ if name != "spark")
    for internal in ("Any", "TYPE_CHECKING", "import_module"):
        assert not hasattr(rc, internal)


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"recension has no 'sesion'; did you mean 'session'\?"):
        getattr(rc, "sesion")  # noqa: B009


def test_what_runs_on_spark_is_typed() -> None:
    """With PySpark's own types, in words: nothing of it is imported before it is used."""
    for function in (rc.spark.batch, rc.spark.stream):
        types = function.__annotations__
        assert (types["spark"], types["return"]) == ("SparkSession", "DataFrame")
        assert "DataFrame" in types["inputs"]
