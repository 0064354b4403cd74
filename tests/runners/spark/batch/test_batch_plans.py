"""Every step of the random plans, and plans of several of them, as batch jobs against the oracle."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from tests.covering import covering
from tests.lineage.judge import Judge
from tests.properties.plans import STEPS, Plan, one_form_of_each
from tests.properties.step import StepKind
from tests.runners.spark.batch.jobs import answers, batch, frame

import recension as rc
from recension.core.events import Event
from recension.core.history import History
from recension.core.ticks import FOREVER
from recension.plan.nodes import walk
from recension.testing.assertions import assert_equivalent
from recension.testing.strategies import SCHEMA


def _steps() -> list[StepKind]:
    """Speculation is about when answers are shown, which a history does not tell: one variant of each."""
    found: dict[str, StepKind] = {}
    for step in STEPS:
        found.setdefault(step.name.replace("perfect", "eager").replace("ordered", "eager"), step)
    # Refused by name, see test_batch_refusals.
    return [step for name, step in found.items() if "advance_time" not in name]


def _history(rnd: random.Random) -> list[Event]:
    events = []
    for _ in range(rnd.randrange(1, 9)):
        vs = rnd.randrange(10)
        ve = rnd.choice([vs + rnd.randrange(1, 6)] * 5 + [FOREVER])
        payload = {"k": rnd.choice(["a", "b", "", None]), "v": rnd.choice([0, 1, -1, 5, None])}
        events += [Event(payload, vs, ve)] * rnd.choice([1, 1, 1, 2])
    return events


def _plans(seed: int, size: int) -> list[Plan]:
    rnd, steps = random.Random(seed), _steps()
    return [Plan(tuple(rnd.choices(steps, k=rnd.choice([2, 3])))) for _ in range(size)]


def _traits(step: StepKind) -> set[str]:
    """The words of its name, and the nodes that it makes."""
    s, t = (rc.source(name, SCHEMA) for name in ("s", "t"))
    nodes = {type(node).__name__ for node in walk(Plan((step,)).build(s, t).plan)}
    return nodes | set(re.findall(r"[a-z_]{3,}", step.name))


CHOSEN = covering(one_form_of_each(_steps()), _traits)
OTHERS = [step for step in _steps() if step not in CHOSEN]
SAMPLES = [
    pytest.param([Plan((step,)) for step in CHOSEN], 0, id="steps"),
    pytest.param(_plans(7, 6), 7, id="plans 7"),
    *(
        pytest.param([Plan((step,)) for step in OTHERS[at::3]], at, id=f"others {at}", marks=pytest.mark.soak)
        for at in range(3)
    ),
    *(
        pytest.param(_plans(seed, 12), seed, id=f"plans {seed}", marks=pytest.mark.soak)
        for seed in range(8, 12)
    ),
]


@pytest.mark.parametrize(("plans", "seed"), SAMPLES)
def test_plans(quick: Any, plans: list[Plan], seed: int) -> None:
    rnd = random.Random(seed)
    s, t = (rc.source(name, SCHEMA) for name in ("s", "t"))
    histories = {name: _history(rnd) for name in ("s", "t")}
    frames = {name: frame(quick, events, SCHEMA) for name, events in histories.items()}
    found = answers([batch(quick, plan.build(s, t), frames) for plan in plans])
    for number, (plan, events) in enumerate(zip(plans, found, strict=True)):
        try:
            assert_equivalent(events, plan.meaning(histories["s"], histories["t"]))
            if seed > 7 or number % 4 == 0:  # all of them in the long form
                _explain(plan, rnd, histories, events)
        except AssertionError as why:
            raise AssertionError(f"{plan.steps}\n{why}") from None


def _explain(plan: Plan, rnd: random.Random, inputs: dict[str, list[Event]], answers: list[Event]) -> None:
    """Why of one answer that Spark has given."""
    if answers:
        answer, query = rnd.choice(answers), plan.build(*(rc.source(name, SCHEMA) for name in inputs)).plan
        judge = Judge(query, lambda given: plan.meaning(list(given["s"]), list(given["t"])), inputs)
        feeds = {name: History.from_events(events, SCHEMA) for name, events in inputs.items()}
        judge.check(answer, judge.why(answer, feeds))


def test_a_plan_as_spark_would_run_it(as_users_run_it: Any) -> None:
    """Compiled, adaptive, on two partitions: with more rows, so that both hold some."""
    rnd, spark = random.Random(3), as_users_run_it
    s, t = (rc.source(name, SCHEMA) for name in ("s", "t"))
    histories = {name: [event for _ in range(20) for event in _history(rnd)] for name in ("s", "t")}
    frames = {name: frame(spark, events, SCHEMA).repartition(2) for name, events in histories.items()}
    by_name = {step.name: step for step in STEPS}
    chosen = ["sum eager by k", "join anti", "max eager by k", "clip", "distinct"]
    plans = [Plan((by_name[name],)) for name in chosen]
    found = answers([batch(spark, plan.build(s, t), frames) for plan in plans])
    for plan, events in zip(plans, found, strict=True):
        assert_equivalent(events, plan.meaning(histories["s"], histories["t"]))
