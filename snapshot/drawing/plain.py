"""What is shown where nothing can be drawn: a few lines of text, as SVG. Needs no library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from textwrap import wrap

#: Pixels.
_LINE, _MARGIN, _CHARACTER = 18, 8, 8
#: Characters of a line.
_WIDTH = 100


def svg_of_lines(lines: Sequence[str]) -> str:
    """Text, a line below the other; long ones go on in the next."""
    rows = [row for line in lines for row in wrap(line, _WIDTH, subsequent_indent="    ") or [""]]
    width = 2 * _MARGIN + _CHARACTER * max(map(len, rows), default=0)
    height = 2 * _MARGIN + _LINE * len(rows)
    texts = (
        f'<text x="{_MARGIN}" y="{_MARGIN + _LINE * number - 4}" xml:space="preserve">{escape(row)}</text>'
        for number, row in enumerate(rows, 1)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="monospace" '
        f'font-size="13"><rect width="100%" height="100%" fill="white"/>{"".join(texts)}</svg>'
    )


@contextmanager
def needs_matplotlib() -> Iterator[None]:
    """Around the import of what draws.

    Raises
    ------
    ImportError
        where matplotlib is missing; says what to install.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ImportError('a drawing needs matplotlib: pip install "cutline[pictures]"') from error


def drawn_or_text(draw: Callable[[], str]) -> str:
    """A drawing; where matplotlib is missing, what to install: a notebook shows it and goes on."""
    try:
        return draw()
    except ImportError as error:
        return svg_of_lines([str(error)])
