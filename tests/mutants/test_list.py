"""The wrong changes that `make mutants` tries: each can still be made, and changes what runs."""

from __future__ import annotations

import ast
from collections.abc import Callable

from _pytest.mark.expression import Expression
from scripts.mutants import ROOT, mutants
from tests.properties.queries import queries


def test_each_can_be_made_in_one_place_only() -> None:
    for mutant in mutants():
        text = (ROOT / mutant.path).read_text(encoding="utf-8")
        assert text.count(mutant.old) == 1, f"{mutant.file}: {mutant.name}: {mutant.old!r}"
        changed = ast.parse(mutant.apply(text))
        assert ast.dump(changed) != ast.dump(ast.parse(text)), f"{mutant.file}: {mutant.name}"


def words_of(name: str) -> Callable[..., bool]:
    """As pytest's option ``-k``: is a word in the name?"""
    return lambda word, **_: word in name


def test_their_tests_are_there_and_no_two_are_the_same() -> None:
    found = mutants()
    assert len({(mutant.file, mutant.name) for mutant in found}) == len(found) > 100
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in found}) == len(found)
    for expression in {mutant.queries for mutant in found} - {None}:
        chosen = [q for q in queries() if Expression.compile(str(expression)).evaluate(words_of(repr(q)))]
        assert chosen, expression
    missing = [path for mutant in found for path in mutant.tests if not (ROOT / path).exists()]
    assert not missing
