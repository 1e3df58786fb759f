"""Space-time diagrams: what happened is where it happened, in characters and in drawings."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from cutline.snapshot.drawing.diagram import Diagram
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.testing.history import History
from cutline.snapshot.trace_events import Kind
from tests.snapshot import sample
from tests.snapshot.drawing.histories import every_kind, ring, rounds
from tests.snapshot.testing.scribe import Scribe, sample_history, sample_scribe

P, Q, PQ, QP = sample.P, sample.Q, sample.PQ, sample.QP
SVG = "{http://www.w3.org/2000/svg}"

EXPECTED = """\
bank: events 1 to 23 of 36
 event     time      P           Q
     1    0.000   ▶ incarnation 7, afresh ───
     2    0.000      ╤ start     │
     3    0.000      │           ╤ start
     4    0.000      ●1→Q        │            'one'
     5    0.000      ●2→Q        │            'two'
     6    0.000      ├──1───────>●            'one'
     7    0.000      ├──2───────>●            'two'
     8    0.000      │           ●1→P         'back'
     9    0.000      ●<───────1──┤            'back'
    10    0.000      ●*3→Q       │            'three'
    11    0.000      ●*4→Q       │            (4, 'four')
    12    0.000      ●*5→Q       │            (5, 'five')
    13    0.000      ●*6→Q       │            {'x': 6}
    14    0.000      ●*7→Q       │            {'x': 7}
    15    0.000      ●*8→Q       │            {'eight': 8}
    16    0.000      │           ●*2 end→P
    17    0.500   ═╡42╞═         │
    18    0.500      ◇42→Q       │
    19    0.500      ├┄┄42┄┄┄┄┄┄>◆
    20    1.000      │        ═╡42╞═
    21    1.000      │           ◇42→P
    22    1.000      ◆<┄┄┄┄┄┄42┄┄┤
    23    1.000   ✓ published 42 ────────────
cut 42 (published): in flight P→Q 3, 4, 5, 6, 7, 8; Q→P 2"""


def rows(diagram: Diagram) -> list[str]:
    """The text, by lines."""
    return str(diagram).splitlines()


# ---------------------------------------------------------------- characters


def test_a_run_in_columns() -> None:
    """Messages, markers, the cut, and what is in flight across it."""
    assert str(sample_history(rolled_back=True).diagram(stop=23)) == EXPECTED


def test_a_rollback_is_seen() -> None:
    """The fault, the new incarnation, the restored messages, and what was refused."""
    text = rows(sample_history(rolled_back=True).diagram(23))
    assert text[0] == "bank: events 24 to 36 of 36"
    assert text[2:9] == [
        "    24    2.000      ├──3───────>●            'three'",
        "    25    2.000   ✗ Crash('Q') ──────────────",
        "    26    2.000   ▶ incarnation 8, from snapshot 42",
        "    27    2.000      ╤ from 42   │",
        "    28    2.000      │           ╤ from 42",
        "    29    2.000   ✗ refused (an acknowledgement)",
        "    30    2.000      ├──3───────>●            'three' (restored)",
    ]
    assert [row.rpartition("(")[2] for row in text[8:15]] == ["restored)"] * 7


def test_a_zombie_is_seen() -> None:
    """What an older incarnation does behind the deployment of a newer one says so, in every slice."""
    history = sample_scribe().history
    late = history.events[5]
    newer = Scribe(sample.TOPOLOGY)
    newer.deploy(sample.INCARNATION + 1)
    history.events += [*newer.history.events, late]
    assert rows(history.diagram(-1))[-1].endswith("'one' (incarnation 7)")
    assert "(incarnation" not in rows(history.diagram(5, 6))[-1]
    stale, fresh = (drawing.svg().lower().count("#bbbbbb") for drawing in (history.diagram(-1), history.diagram(5, 6)))
    assert stale > fresh, "the arrow of an older incarnation is pale"


def test_every_kind_of_event_has_a_row() -> None:
    """What moves nothing is told at its subtask, what concerns the run across all of them."""
    text = "\n".join(rows(every_kind().diagram()))
    for word in ("○ poll", "○ timer", "✓ 42", "✗ failed", "✗ refused", "● injected   7", "aborted (reason)"):
        assert word in text, text
    assert {"P", "Q", "failed (reason)"} <= set(words(every_kind().diagram().svg()))


def test_arrows_cross_the_lines_between() -> None:
    """A message to a far column crosses those between, in both directions; to itself it goes nowhere."""
    topology = ring(4)
    far = ChannelId(Subtask("n0"), Subtask("n3"))
    itself = ChannelId(Subtask("n1"), Subtask("n1"))
    edge = topology.edges[0]
    topology = replace(
        topology,
        edges=(
            *topology.edges,
            replace(edge, source="n0", target="n3"),
            replace(edge, source="n1", target="n1"),
        ),
    )
    scribe = Scribe(topology)
    scribe.deploy(1)
    back = ChannelId(Subtask("n3"), Subtask("n0"))
    scribe.send(far, "x")
    scribe.receive(far)
    scribe.send(back, "y")
    scribe.receive(back)
    for number in range(10):
        scribe.send(itself, number)
        scribe.receive(itself)
    lines = rows(scribe.history.diagram())
    assert "├──1────────┼───────────┼──────────>●" in lines[8]
    assert "●<──────────┼───────────┼────────1──┤" in lines[10]
    assert "●<1 itself" in lines[12]
    assert "●<10 itself" in lines[30]


def test_a_wide_graph_becomes_a_table() -> None:
    """Nine subtasks do not fit: every event still has its row, subtask, channel and value."""
    assert rows(rounds(8, 8).diagram())[1].split()[2:] == [f"n{number}" for number in range(8)]
    text = "\n".join(rows(rounds(9, 20).diagram()))
    assert "n1  receive of message 1 (0) on n0[0]->n1[0]" in text
    assert "✗ Crash('n1')" in text
    assert " n7  cut 1" in text
    assert "*n" in text
    assert "None" not in text and "(incarnation" not in text


def test_a_terminal_is_wide_enough() -> None:
    """Eight columns with long names, sixty events: no row is longer than 160 characters."""
    history = rounds(8, 40)
    assert max(len(row) for row in rows(history.diagram(-60))) <= 160
    assert len(rows(history.diagram(-60))) == 60 + 2


def test_slices() -> None:
    """A slice shows the subtasks that are in it; an empty one says so."""
    history = rounds(8, 8)
    assert rows(history.diagram(-1))[1].split()[2:] == ["n1", "n2"]
    assert str(history.diagram(5, 5)) == "ring: no events of 42\n event     time"
    assert "of 0" in str(History(ring(2), sample.CODEC).diagram())


def test_ids_of_two_claims_are_told_apart() -> None:
    """Within one claim a snapshot has a short number; where there are two, it has both."""
    scribe = sample_scribe()
    scribe.note(Kind.PUBLISHED, 8_000_042, incarnation=8)
    assert "✓ published 8.42 " in rows(scribe.history.diagram())[-2]
    assert "═╡7.42╞═" in str(scribe.history.diagram())


# ---------------------------------------------------------------- drawings


def words(svg: str) -> list[str]:
    """All that is written in a drawing."""
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("count", [2, 20])
def test_a_drawing_holds_all(count: int) -> None:
    """Subtasks, numbers, the cut, faults and the legend are in it; two of the same are equal."""
    history = rounds(count, 40)
    svg = history.diagram(-200).svg()
    written = words(svg)
    for word in (*(f"n{number}" for number in range(count)), "cut 1", "Crash('n19')", "marker"):
        assert word.replace("n19", f"n{19 % count}") in written
    assert svg == history.diagram(-200).svg()
    shown = history.diagram(-200)._repr_html_()
    assert words(shown) == written
    total = len(history.events)
    first = max(total - 200, 0) + 1
    assert f'role="img" aria-label="Space-time diagram of ring: events {first} to {total} of {total}"' in shown


def test_a_cut_of_one_subtask_is_named() -> None:
    """A slice may hold a single point of a cut."""
    scribe = Scribe(ring(1))
    scribe.deploy(1)
    scribe.cut(Subtask("n0"), 1_000_001)
    assert "cut 1" in words(scribe.history.diagram().svg())


def test_messages_in_flight_are_starred() -> None:
    """In the drawing as in the text; a restored message is not."""
    written = words(sample_history(rolled_back=True).diagram().svg())
    assert [word for word in written if word.startswith("*") and word[1].isdigit()] == [
        *("*3", "*4", "*5", "*6", "*7", "*8", "*2 end")
    ]
    assert {"3", "8", "2 end", "published 42", "incarnation 8, from snapshot 42"} <= set(written)


def test_an_image() -> None:
    """The same as a PNG, for any slice, the empty one too."""
    history = sample_history(rolled_back=True)
    for diagram in (history.diagram(), history.diagram(20, 30), history.diagram(5, 5)):
        assert diagram.png().startswith(b"\x89PNG")


def test_what_people_write_is_no_formula_and_no_mark_up() -> None:
    """Dollars, brackets and lines in what is told stay what they are."""
    scribe = sample_scribe()
    scribe.note(Kind.FAULT, text="Fail(\n'$x$ <b> 漢')")
    assert "Fail( '$x$ <b> 漢')" in words(scribe.history.diagram().svg())


def test_a_long_reason_is_told_whole() -> None:
    """What has no room above the lines stands in the legend, in several lines if need be."""
    scribe = sample_scribe()
    reason = "worker 0 was lost: the connection to it is lost, because the process at its other end closed it " * 3
    scribe.note(Kind.FAULT, text=reason)
    written = words(scribe.history.diagram().svg())
    first = next(
        number for number, text in enumerate(written) if text.startswith("At ") and "worker 0 was lost" in text
    )
    assert reason.strip() in " ".join(written[first : first + 8])


def test_without_matplotlib_it_says_what_to_do(no_matplotlib: None) -> None:
    """Text needs nothing; a drawing names the extra; a notebook shows that, and does not fail."""
    diagram = sample_history().diagram()
    assert "bank" in diagram.text()
    with pytest.raises(ImportError, match=r"cutline\[pictures\]"):
        diagram.svg()
    assert 'pip install "cutline[pictures]"' in words(sample_history()._repr_html_())[0]


def test_a_notebook_shows_the_last_events(no_matplotlib: None) -> None:
    """Of a long trace only so many that they are readable, and the words beside the drawing say which."""
    scribe = sample_scribe()
    for _ in range(300 - len(scribe.history.events)):
        scribe.note(Kind.FAULT, text="fault")
    assert ": events 101 to 300 of 300" in scribe.history._repr_html_()
