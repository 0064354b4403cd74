"""What `make test` leaves to `make soak` of tests with many combinations of parameters."""

from __future__ import annotations

from itertools import combinations, product

from tests.effort import choose_pairs


def test_every_two_values_meet_in_few_cases() -> None:
    names, values = ("n", "by", "grouped", "what"), ((1, 2, 3, 7), ("start", "end"), (False, True), "abcd")
    cases = [tuple(zip(names, case, strict=True)) for case in product(*values)]
    chosen = [cases[number] for number in choose_pairs(cases)]
    met = {pair for case in chosen for pair in combinations(case, 2)}
    assert met == {pair for case in cases for pair in combinations(case, 2)}
    assert len(chosen) <= 20 < len(cases) == 64


def test_parameters_that_go_together_are_left_together() -> None:
    cases = [(("seed", n), ("n", 10 * n)) for n in range(4)]
    assert choose_pairs(cases) == {0, 1, 2, 3}
    assert choose_pairs([(("only", n),) for n in range(3)]) == {0, 1, 2}
