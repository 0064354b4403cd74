"""Every case and policy, any witnesses, any interleaving and batching: valid and compatible at every step,
equivalent in the end, nothing left in state."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.lmerge.play import Play
from tests.lmerge.scripts import Script, examples, scripts

from recension.core.events import Cti
from recension.core.ticks import FOREVER
from recension.operators.lmerge.choice import make_merge
from recension.operators.lmerge.merge import CaseMismatchError, LogicalMerge
from recension.operators.lmerge.policies import make_policy
from recension.testing.assertions import assert_equivalent
from recension.testing.strategies import SCHEMA

Make = Callable[[int], LogicalMerge]


def _case(name: str) -> Make:
    return lambda ports: make_merge(name, SCHEMA, ports)


def _r3(lag: int, *policy: object) -> Make:
    return lambda ports: make_merge("R3", SCHEMA, ports, make_policy(*policy), lag)  # type: ignore[arg-type]


def _falling(name: str) -> Make:
    return lambda ports: make_merge(name, SCHEMA, ports, can_fall=True)


KINDS: dict[str, tuple[str, Make, bool]] = {
    **{name: (name, _case(name), True) for name in ("R0", "R1", "R2", "R3", "R3-", "R4")},
    "R4 of R3 streams": ("R3", _case("R4"), True),
    "R3 of R2 streams": ("R2", _case("R3"), True),
    "eager": ("R3", _r3(0, "eager"), False),
    "hf": ("R3", _r3(0, "hf"), True),
    "ff": ("R3", _r3(0, "ff"), True),
    "lead": ("R3", _r3(0, "lead"), False),
    "lead by starts": ("R3", _r3(0, "lead", "starts"), True),
    "lead by unfrozen": ("R3", _r3(0, "lead", "unfrozen"), True),
    "quorum": ("R3", _r3(0, "quorum", "stable", 0.6), True),
    "first, lag 2": ("R3", _r3(2, "first"), True),
    "eager, lag 2": ("R3", _r3(2, "eager"), False),
    "hf, lag 2": ("R3", _r3(2, "hf"), True),
    "ff, lag 2": ("R3", _r3(2, "ff"), True),
    "lead, lag 2": ("R3", _r3(2, "lead"), False),
    "quorum, lag 2": ("R3", _r3(2, "quorum", "stable", 1.0), True),
    **{f"{name} may fall": (name, _falling(name), True) for name in ("R0", "R1", "R2", "R3")},
}


def play_out(
    script: Script, make: Make, data: st.DataObject, case: str, *, keyed: bool, complete: bool = True
) -> Play:
    """Let everything happen, and judge after every step."""
    in_order = case in ("R0", "R1", "R2")
    play = Play(make, sum(w.since is None for w in script.witnesses), in_order=in_order)
    started = 0
    for witness in script.witnesses:
        if witness.since is None:
            witness.port, started = started, started + 1
    for turn in script.turns:
        witness = script.witnesses[turn]
        if witness.port is None:
            assert witness.since is not None
            witness.port = play.attach(witness.since)
        elif witness.batches:
            play.feed(witness.port, witness.batches.pop(0))
        else:
            play.detach(witness.port)
        if complete:
            play.judge.check()
        if keyed:
            play.judge.check_key()
        if data.draw(st.booleans()):
            play.restore_twin()
    return play


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
def test_the_merge_is_compatible_with_its_inputs(kind: str, data: st.DataObject) -> None:
    case, make, is_bounded = KINDS[kind]
    script = data.draw(scripts(case))
    fails = script.fails
    play = play_out(script, make, data, case, keyed=case in ("R2", "R3", "R3-"))
    note("\n".join(map(str, play.output)))
    assert_equivalent(play.judge.history(), script.history)
    assert play.judge.stable == FOREVER
    assert play.merge.state_rows() == 0
    assert play.merge.anomalies == 0
    if is_bounded:
        play.judge.check_bound(fails=fails)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "fall" not in kind])
@given(st.data())
@settings(max_examples=examples(10), deadline=None, suppress_health_check=list(HealthCheck))
def test_inputs_that_lose_elements_leave_a_valid_stream(kind: str, data: st.DataObject) -> None:
    """§V-C: whatever is missing, nothing that was settled is taken back, and the end is reached."""
    case, make, _ = KINDS[kind]
    script = data.draw(scripts(case))
    for witness in script.witnesses:
        kept = st.lists(st.booleans(), min_size=60, max_size=60)
        for batch in witness.batches:
            keep = data.draw(kept)
            batch[:] = [e for e, stays in zip(batch, keep, strict=False) if stays or isinstance(e, Cti)]
    keyed = case in ("R2", "R3", "R3-") and "R4" not in kind
    try:
        play = play_out(script, make, data, case, keyed=keyed, complete=False)
    except CaseMismatchError:
        return  # a removal was lost, and what was inserted after it breaks the case
    assert play.judge.stable == FOREVER
    assert play.merge.state_rows() == 0
