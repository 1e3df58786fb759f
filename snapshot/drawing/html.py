"""Make HTML for notebooks, and SVG from lines of text where no drawing is possible. Needs no library.

This module escapes all text from outside. No other module does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from textwrap import wrap

#: pixels
_LINE, _MARGIN, _CHARACTER = 18, 8, 8
#: characters of a line
_LINE_WIDTH = 100


def svg_of_lines(lines: Sequence[str]) -> str:
    """Return lines of text as SVG. Long lines are wrapped."""
    rows = [row for line in lines for row in wrap(line, _LINE_WIDTH, subsequent_indent="    ") or [""]]
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
    """Wrap an import that needs matplotlib.

    Raises
    ------
    ImportError
        if matplotlib is missing. The error names the package to install.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ImportError('a drawing needs matplotlib: pip install "cutline[pictures]"') from error


def drawn_or_text(draw: Callable[[], str]) -> str:
    """Return a drawing, or an SVG text that names the missing package, because a notebook must not fail."""
    try:
        return draw()
    except ImportError as error:
        return svg_of_lines([str(error)])


_CELL = "'text-align:left;vertical-align:top;padding:2px 10px 2px 0;max-width:52em;overflow-wrap:break-word'"

#: smallest readable size of a drawing, as a share of its own size
_SMALLEST = 0.7
_WIDTH = re.compile(r'width="([0-9.]+)(pt|)"')


def card(title: str, facts: Iterable[tuple[str, str]], *rest: str) -> str:
    """Return a heading, a line of named facts, and the HTML texts of `rest`."""
    lines = " &nbsp; ".join(f"{escape(name)}&nbsp;<b>{escape(value)}</b>" for name, value in facts)
    return f'<div><div style="font-size:115%"><b>{escape(title)}</b></div><div>{lines}</div>{"".join(rest)}</div>'


def picture(svg: str, label: str) -> str:
    """Return a drawing on a white background. A wide drawing shrinks to fit, and scrolls below its smallest size.

    Parameters
    ----------
    label : str
        What the drawing shows, for readers who do not see the drawing.
    """
    drawing = svg[svg.index("<svg") :]
    width = _WIDTH.search(drawing)
    least = f"min-width:{float(width[1]) * _SMALLEST:.0f}{width[2]}" if width else ""
    attributes = f'role="img" aria-label="{escape(label)}" style="max-width:100%;height:auto;{least}"'
    fitted = drawing.replace("<svg", f"<svg {attributes}", 1)
    return f'<div style="background:white;overflow-x:auto;margin:6px 0">{fitted}</div>'


def table(summary: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, left_out: int, is_open: bool) -> str:
    """Return a foldable table, with the number of omitted rows."""
    lines = [_row("th", heads), *(_row("td", row) for row in rows)]
    more = f"<div>and {left_out} more</div>" if left_out else ""
    fold = "<details open>" if is_open else "<details>"
    return f"{fold}<summary>{escape(summary)}</summary><table>{''.join(lines)}</table>{more}</details>"


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag} style={_CELL}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def link(address: str, text: str) -> str:
    """Return a link that opens in a new browser tab."""
    return f'<div><a href="{escape(address)}" target="_blank" rel="noopener">{escape(text)}</a></div>'
