"""HTML of the cards that notebooks show."""

from __future__ import annotations

from cutline.snapshot.drawing.html import card
from cutline.snapshot.drawing.labels import brief


def test_a_card_holds_its_parts_one_after_another() -> None:
    """Nothing stands between them, and the title and the facts come first."""
    made = card("Run <a>", [("state", "done & dusted")], "<p>one</p>", "<p>two</p>")
    assert "<b>Run &lt;a&gt;</b>" in made
    assert made.endswith("<div>state&nbsp;<b>done &amp; dusted</b></div><p>one</p><p>two</p></div>")


def test_brief_texts_of_large_integers() -> None:
    """Python makes no text of so many digits."""
    assert brief({"n": 7**6000}) == "{'n': <an integer of 16,845 bits>}"
    assert brief(-12) == "-12"
