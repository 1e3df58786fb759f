"""The files that the page is made of: our own and vendored ones, all from this package, none from elsewhere."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.responses import Response

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@cache
def _contents() -> dict[str, bytes]:
    """All files, read once: a request never turns into a path."""
    folder = files(__package__) / "static"
    found = {file.name: file for file in folder.iterdir() if file.is_file()}
    found |= {f"vendor/{file.name}": file for file in (folder / "vendor").iterdir()}
    return {name: file.read_bytes() for name, file in found.items()}


def asset(name: str) -> Response:
    """One file.

    Raises
    ------
    HTTPException
        if there is none of that name.
    """
    content = _contents().get(name)
    if content is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no file {name!r}\n")
    suffix = name[name.rindex(".") :] if "." in name else ""
    media_type = _TYPES.get(suffix, "text/plain; charset=utf-8")
    return Response(content, media_type=media_type, headers={"cache-control": "no-cache"})
