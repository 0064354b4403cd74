"""What is counted is what was said; and who is where at the end of the day."""

from __future__ import annotations

from recension.core.batch import CTI, INSERT, RETRACT, concat
from recension.core.difference import difference
from recension.core.reconstitution import reconstitute
from recension.core.ticks import FOREVER
from recension.core.validity import Checker
from recension.demo.figures import ctis_over_time
from recension.demo.late_lease import HOURS_BY_NOON, NOON, REPLICA
from recension.demo.leases import as_history, clock
from recension.demo.script import World
from recension.demo.trace import MERGED, Trace, last_cti
from recension.demo.verdict import Verdict


def test_the_numbers_are_those_of_the_streams(played: tuple[Trace, Verdict]) -> None:
    trace, verdict = played
    for witness in [*verdict.inputs, verdict.output]:
        whole = concat([said.batch for said in trace.outputs_of(witness.name)])
        assert witness.revisions == int((whole.kind == RETRACT).sum())
        found = difference(reconstitute([whole], whole.schema), verdict.truth)
        assert (witness.missed, witness.wrong) == (len(found.missing), len(found.unexpected))
        assert witness.final_up_to == last_cti(trace.outputs_of(witness.name))


def test_each_input_misses_something_or_comes_too_late(played: tuple[Trace, Verdict]) -> None:
    _, verdict = played
    by_name = {witness.name: witness for witness in verdict.inputs}
    assert list(by_name) == ["north", "south", "west", "south-2"]
    for name in ("north", "south"):
        assert by_name[name].final_up_to < FOREVER, "it was gone before the end"
        assert by_name[name].missed > 0
    assert by_name["west"].missed > 0, "it was not there in the morning"
    assert verdict.output.missed == verdict.output.wrong == 0
    assert verdict.output.revisions > 0, "it did not wait"


def test_the_merged_stream_is_valid_and_as_far_as_the_furthest(played: tuple[Trace, Verdict]) -> None:
    trace, _ = played
    checker = Checker("raise")
    for said in trace.outputs_of(MERGED):
        checker.check(said.batch)
    for at, t in ctis_over_time(trace.outputs_of(MERGED)):
        furthest = max(last_cti(s for s in trace.outputs_of(name) if s.at <= at) for name in trace.streams)
        assert t <= furthest
    assert last_cti(trace.outputs_of(MERGED)) == FOREVER


def test_answers_are_speculative_for_a_while(played: tuple[Trace, Verdict]) -> None:
    trace, verdict = played
    assert 0 < len(verdict.speculative) <= len(verdict.merged)
    assert 0 < min(verdict.speculative) <= verdict.usual_wait <= verdict.longest_wait <= trace.end()


def test_one_late_lease_put_right_what_was_wrong_at_noon(played: tuple[Trace, Verdict]) -> None:
    trace, verdict = played
    late, world = verdict.late_lease, World(700, 1)
    assert late is not None
    said, answer, lease = late.said.payload, late.answer.payload, late.lease
    site, at = answer["site"], late.at
    assert at < NOON
    outputs = [one.batch for one in trace.outputs_of(REPLICA) if one.at < trace.hours[HOURS_BY_NOON]]
    by_noon = reconstitute(outputs, verdict.truth.schema).at(at).to_events()
    assert [event.payload for event in by_noon if event.payload["site"] == site] == [said]
    alive = [one for one in world.leases if one.payload["site"] == site and one.vs <= at < one.ve]
    assert answer["devices"] == len(alive) == said["devices"] + 1
    assert lease in alive
    assert late.answer in verdict.truth.to_events()
    parts = world.feeds[REPLICA]
    known = reconstitute(parts[:HOURS_BY_NOON], as_history(world.leases).schema).to_events()
    assert lease.payload not in [one.payload for one in known], "nobody knew of it at noon"
    told = concat(parts).slice(late.row - 1, late.row)
    assert (told.kind[0], told.vs[0]) == (INSERT, lease.vs)
    assert told.payload["device"].to_pylist() == [lease.payload["device"]]
    assert sum(map(len, parts[: late.came])) < late.row <= sum(map(len, parts[: late.came + 1]))
    assert late.final_by is not None
    assert late.final_by > late.answer.ve
    assert late.final_came is not None
    assert late.final_came >= late.came
    sent = parts[late.final_came]
    assert late.final_by in sent.vs[sent.kind == CTI]
    words = " ".join(late.tell())
    assert (
        f"the {site} had {said['devices']} devices online at {clock(at)}; it had {answer['devices']}."
        in words
    )
    assert f"the lease of {lease.payload['device']}, [{clock(lease.vs)}, {clock(lease.ve)})" in words
    assert f"final by the CTI at {clock(late.final_by)}" in words
