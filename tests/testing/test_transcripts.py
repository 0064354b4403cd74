"""Reading transcripts: the notation, the file, its errors; running them: exact, net, refused, broken."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

import pyarrow as pa
import pytest
from tests.transcripts.reconstitution import PlainReconstitution

from recension.core.events import Cti, Element, Event, ExternalCti, Insert, Retract
from recension.core.ticks import BEGINNING, FOREVER
from recension.testing.model import Close, Open, Written, reconstitute
from recension.testing.notation import NotationError, parse_elements, parse_history, parse_time, render
from recension.testing.runners import Case, Outcome, cases
from recension.testing.transcripts import Transcript, TranscriptError, load_transcripts

P = pa.schema([("p", pa.string())])
WIDE = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("b", pa.bool_())])
LISTS = pa.schema([("l", pa.list_(pa.int64())), ("s", pa.struct([("a", pa.int64()), ("b", pa.string())]))])


@pytest.mark.parametrize(
    ("text", "element"),
    [
        ("I(1, inf, P1)", Insert({"p": "P1"}, 1, FOREVER)),
        ("I(-3,∞,'a b, c')", Insert({"p": "a b, c"}, -3, FOREVER)),
        ("I(-inf, 4, null)", Insert({"p": None}, BEGINNING, 4)),
        ('I(1, 4, "null")', Insert({"p": "null"}, 1, 4)),
        ("I(1, 4, true)", Insert({"p": "true"}, 1, 4)),
        ("I(1, 4, {p: x})", Insert({"p": "x"}, 1, 4)),
        ("R(1,inf->10,P1)", Retract({"p": "P1"}, 1, FOREVER, 10)),
        ("R(1, 5 -> inf, P1)", Retract({"p": "P1"}, 1, 5, FOREVER)),
        ("C(10)", Cti(10)),
        ("C(inf)", Cti(FOREVER)),
        ("E(0, 8, #4)", ExternalCti(0, 8, 4)),
        ("E(0, 8, 4)", ExternalCti(0, 8, 4)),
        ("open(A, 1)", Open({"p": "A"}, 1)),
        ("close({p: A}, 4)", Close({"p": "A"}, 4)),
    ],
)
def test_elements_are_read(text: str, element: Written) -> None:
    assert parse_elements(text, {"in": P}) == [("in", element)]


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ("I(1, 2, a, 3, 1.5, true)", {"k": "a", "n": 3, "x": 1.5, "b": True}),
        ("I(1, 2, 7, -3, 2, false)", {"k": "7", "n": -3, "x": 2.0, "b": False}),
        ("I(1, 2, null, null, null, null)", {"k": None, "n": None, "x": None, "b": None}),
        ("I(1, 2, {n: 3, k: a})", {"k": "a", "n": 3, "x": None, "b": None}),
        ("I(1, 2, {})", {"k": None, "n": None, "x": None, "b": None}),
    ],
)
def test_payloads_are_positional_or_named(text: str, payload: dict[str, object]) -> None:
    assert parse_elements(text, {"in": WIDE}) == [("in", Insert(payload, 1, 2))]


def test_payloads_may_be_nested_or_empty() -> None:
    [(_, nested)] = parse_elements("I(1, 2, [1, null, 3], {b: y, a: 1})", {"in": LISTS})
    assert nested == Insert({"l": [1, None, 3], "s": {"a": 1, "b": "y"}}, 1, 2)
    assert parse_elements("I(1, 2)", {"in": pa.schema([])}) == [("in", Insert({}, 1, 2))]


def test_elements_of_several_inputs_are_tagged() -> None:
    tagged = parse_elements("S1:I(0, 2, A) S2:C(1) S1:C(3)", {"S1": P, "S2": P})
    assert tagged == [("S1", Insert({"p": "A"}, 0, 2)), ("S2", Cti(1)), ("S1", Cti(3))]


def test_history_rows_may_be_repeated() -> None:
    rows = parse_history("(1, 5, P1) (8, inf, P2) x2", P)
    assert rows == [Event({"p": "P1"}, 1, 5), Event({"p": "P2"}, 8), Event({"p": "P2"}, 8)]
    assert parse_history("  ", P) == []


@pytest.mark.parametrize(
    ("text", "reason", "at"),
    [
        ("I(1, 2, A) X(3)", "'X' is not an element", 11),
        ("I(1, 2 A)", "expected ',', found 'A'", 7),
        ("I(1, soon, A)", "'soon' is not a time", 5),
        ("I(1, 2, A", "expected ')', found 'the end'", 9),
        ("I(1, 2, {q: 3})", "no column 'q'", 9),
        ("R(1, 2, A)", "expected '->', found ','", 6),
        ("E(1, 2, #x)", "'x' is not a count", 9),
        ("I(1, 2, 'A)", "a quote that is not closed", 7),
        ("I(1, 2, )", "expected a value of type string, found ')'", 8),
        ("C", "expected '(', found 'the end'", 1),
        ("T:C(1)", "there are in", 2),
    ],
)
def test_errors_in_the_notation_say_what_and_where(text: str, reason: str, at: int) -> None:
    with pytest.raises(NotationError) as caught:
        parse_elements(text, {"in": P})
    assert reason in caught.value.reason
    assert caught.value.at == at


def test_values_must_fit_their_column() -> None:
    with pytest.raises(NotationError, match="'a' is not a value of type int64"):
        parse_elements("I(1, 2, k, a, 1, true)", {"in": WIDE})
    with pytest.raises(NotationError, match="'5x' is not a time"):
        parse_time("5x")


def test_elements_are_rendered_as_they_are_written() -> None:
    text = "I(1, inf, P1) R(1, inf -> 10, P1) R(-inf, 3 -> inf, null) C(10) E(0, 8, #4)"
    written = [e for _, e in parse_elements(text, {"in": P})]
    assert " ".join(render(e) for e in written if not isinstance(e, Open | Close)) == text


def load(tmp_path: Path, text: str) -> list[Transcript]:
    file = tmp_path / "t.yaml"
    file.write_text(dedent(text), encoding="utf-8")
    return load_transcripts([tmp_path])


def test_a_transcript_is_read_whole(tmp_path: Path) -> None:
    [transcript] = load(
        tmp_path,
        """
        - name: a join
          source: somewhere
          inputs: {L: {k: string}, R: {k: string, n: int64}}
          query: L.join(R, on="k")
          output: {k: string, n: int64, all: list<int64>}
          steps:
            - input: L:I(1, 5, a) R:I(2, 4, a, 7)
              cti: 3
              expect: [ "I(2, 4, a, 7, [7])" ]
              history: (2, 4, a, 7, [7])
            - input: {R: [C(4), "I(5, 6, b, 8)"]}
              cti: {L: inf}
              expect: []
          broken_on: {spark: too slow}
        """,
    )
    first, second = transcript.steps
    result = {"k": "a", "n": 7, "all": [7]}
    assert list(transcript.inputs) == ["L", "R"]
    assert transcript.build({"L": _Joinable("l"), "R": "r"}) == "l+r on k"
    assert [tag for tag, _ in first.input] == ["L", "R", "L", "R"]
    assert first.input[2:] == [("L", Cti(3)), ("R", Cti(3))]
    assert first.expect == {"output": [Insert(result, 2, 4)]}
    assert first.history == {"output": [Event(result, 2, 4)]}
    assert second.input == [("R", Cti(4)), ("R", Insert({"k": "b", "n": 8}, 5, 6)), ("L", Cti(FOREVER))]
    assert second.expect == {"output": []}
    assert second.history is None
    assert transcript.broken_on == {"spark": "too slow"}


@dataclass
class _Joinable:
    name: str

    def join(self, other: str, on: str) -> str:
        return f"{self.name}+{other} on {on}"


HEAD = "- name: t\n  source: s\n  steps:\n"


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("", 1, 1, "the file is empty"),
        ("- name: [", 1, 10, "expected the node content"),
        ("name: t", 1, 1, "expected a list"),
        ("- name: t\n  steps: []", 1, 3, "'source' is missing"),
        ("- name: t\n  nmae: t", 2, 3, "unknown key 'nmae'"),
        ("- name: t\n  name: t", 2, 3, "'name' is there twice"),
        ("- name: t\n  source: s\n  schema: {p: txt}\n  steps: []", 3, 15, "not the name of an Arrow type"),
        (HEAD + "    - input: I(1, 2, A) I(1, x, A)", 4, 30, "'x' is not a time"),
        (HEAD + "    - input: 'I(1, y, A)'", 4, 20, "'y' is not a time"),
        (HEAD + "    - input: |\n        C(1)\n\n        C(2) I(3, z, A)", 7, 19, "'z' is not a time"),
        (HEAD + "    - input:\n        - C(1)\n        - C(1) C(x)", 6, 18, "'x' is not a time"),
        (HEAD + "    - cti: soon", 4, 12, "'soon' is not a time"),
        (HEAD + "    - history: (1, 2)", 4, 21, "expected ','"),
        (HEAD + "    - expect: open(A, 1)", 4, 15, "not elements that come out"),
        (HEAD + "    - input: {T: C(1)}", 4, 15, "unknown key 'T'"),
        (HEAD + "    - input: C(1) C(2)\n      refused: x", 4, 7, "one input element"),
        (HEAD + "    - input: C(1)\n      refused: x\n    - cti: 3", 4, 7, "only the last step"),
        (HEAD + "    - cti: 1\n  output: {p: string}", 5, 11, "without a query"),
        (HEAD + "    - cti: 1\n" + HEAD + "    - cti: 1", 5, 3, "the name 't' is taken already, see"),
    ],
)
def test_errors_point_at_line_and_column(
    tmp_path: Path, text: str, line: int, column: int, reason: str
) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(TranscriptError) as caught:
        load_transcripts([file])
    assert reason in caught.value.reason
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith(f"{file}:{line}:{column}: ")


def test_names_are_unique_over_all_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(HEAD + "    - cti: 1", encoding="utf-8")
    with pytest.raises(TranscriptError, match=r"b\.yaml:1:3: the name 't' is taken already, see .*a\.yaml:1"):
        load_transcripts([tmp_path])


@dataclass
class Recorded:
    """A runner that plays back what it was given, a list of outputs per step."""

    outputs: list[list[Element]]
    name: str = "recorded"
    is_exact: bool = True
    refused: str | None = None
    shown: list[Element] = field(default_factory=list)

    def plays(self, transcript: Transcript) -> bool:
        return transcript.query is not None

    def run(self, transcript: Transcript) -> Sequence[Outcome]:
        outcomes = []
        for elements in self.outputs:
            self.shown += elements
            outcomes.append(Outcome({"output": elements}, {"output": reconstitute(self.shown)}))
        return outcomes if self.refused is None else [*outcomes, Outcome({}, {}, self.refused)]


A = {"p": "A"}
STORY = """
    - name: t
      source: s
      query: input
      steps:
        - input: I(1, 5, A)
          expect: I(1, 9, A)
        - input: R(1, 5 -> 3, A)
          expect: R(1, 9 -> 3, A) C(2)
          history: (1, 3, A)
    """


def run(tmp_path: Path, story: str, runner: Recorded) -> None:
    [transcript] = load(tmp_path, story)
    [case] = cases([transcript], [runner, PlainReconstitution()])
    case.check()


def test_the_right_output_passes(tmp_path: Path) -> None:
    run(tmp_path, STORY, Recorded([[Insert(A, 1, 9)], [Retract(A, 1, 9, 3), Cti(2)]]))


def test_the_net_output_passes_only_where_runners_may_consolidate(tmp_path: Path) -> None:
    net: list[list[Element]] = [[Insert(A, 1, 9)], [Retract(A, 1, 9, 1), Insert(A, 1, 3), Cti(1), Cti(2)]]
    run(tmp_path, STORY, Recorded(net, is_exact=False))
    with pytest.raises(AssertionError, match=r"- R\(1, 9 -> 3, A\)\n    \+ R\(1, 9 -> 1, A\)"):
        run(tmp_path, STORY, Recorded(net))


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        ([[Insert(A, 1, 9)], [Retract(A, 1, 9, 4), Cti(2)]], "net output of output"),
        ([[Insert(A, 1, 9)], [Retract(A, 1, 9, 3)]], "reached C\\(-inf\\)"),
        ([[Insert(A, 1, 9)], [Cti(4), Retract(A, 1, 9, 3)]], "breaks an earlier cti"),
        ([[Insert(A, 1, 9)]], "ended after 1 of 2 steps"),
    ],
)
def test_wrong_output_fails_on_every_kind_of_runner(
    tmp_path: Path, outputs: list[list[Element]], reason: str
) -> None:
    with pytest.raises(AssertionError, match=reason):
        run(tmp_path, STORY, Recorded(outputs, is_exact=False))
    with pytest.raises(AssertionError):
        run(tmp_path, STORY, Recorded(outputs, is_exact=True))


def test_a_failure_names_file_line_and_runner(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"t\.yaml:8: t \[recorded\]"):
        run(tmp_path, STORY, Recorded([[Insert(A, 1, 9)], [Cti(2)]]))


@pytest.mark.parametrize(
    ("expected", "actual", "reason"),
    [
        ("too late", None, "was accepted"),
        ("too late", "row 1: empty", "refused for another reason: row 1: empty"),
        (None, "row 1: empty", "refused: row 1: empty"),
    ],
)
def test_refusals_must_agree(tmp_path: Path, expected: str | None, actual: str | None, reason: str) -> None:
    story = "- {name: t, source: s, query: input, steps: [{input: C(1)"
    story += f", refused: {expected}}}]}}" if expected else "}]}"
    with pytest.raises(AssertionError, match=reason):
        run(tmp_path, story, Recorded([] if actual else [[]], refused=actual))


def test_broken_is_strict(tmp_path: Path) -> None:
    marked = STORY + "  broken_on: {recorded: not done yet}\n"
    run(tmp_path, marked, Recorded([]))
    with pytest.raises(
        AssertionError, match=r"works, but is marked broken \(not done yet\): remove the mark"
    ):
        run(tmp_path, marked, Recorded([[Insert(A, 1, 9)], [Retract(A, 1, 9, 3), Cti(2)]]))


def test_no_transcript_is_left_unplayed(tmp_path: Path) -> None:
    [transcript] = load(tmp_path, STORY)
    with pytest.raises(ValueError, match="no runner plays 't'"):
        cases([transcript], [PlainReconstitution()])


def test_broken_on_names_a_runner_that_exists(tmp_path: Path) -> None:
    [transcript] = load(tmp_path, STORY + "  broken_on: {sprak: typo}\n")
    with pytest.raises(ValueError, match="sprak"):
        cases([transcript], [Recorded([])])


def test_a_case_is_named_after_transcript_and_runner(tmp_path: Path) -> None:
    [transcript] = load(tmp_path, STORY)
    assert Case(transcript, Recorded([])).id == "t [recorded]"
