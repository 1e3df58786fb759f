"""Pickle the values that are no trees of MessagePack types, and refuse at once what could not be unpickled later.

One pickle holds the whole value, so that an object that is reached in two ways stays one object, and a cycle stays a
cycle. Values of built-in containers and atoms need no class, so a safe codec takes their pickles too: its unpickler
refuses every class and function (Python's manual of `pickle`, "Restricting Globals").
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.channel.record_batches import decode_batch, encode_batch
from cutline.snapshot.channel.survey import ATOMS, CONTAINERS, Survey
from cutline.snapshot.error_text import headline
from cutline.snapshot.naming.bound import BOUND
from cutline.snapshot.naming.by_name import ByName, References
from cutline.snapshot.naming.program_names import NotBound, ProgramNames
from cutline.snapshot.naming.reference import decode_references, split_references

#: Version 5 has large buffers beside the pickle (PEP 574). Stored: a reader needs this version.
_PROTOCOL: Final = 5

#: Types that pickle writes without the name of a class or function.
_NAMELESS: Final = ATOMS | CONTAINERS | {bytearray}

#: Types whose pickles can be unpickled wherever these modules are, whatever the value.
_SURE: Final = {
    *_NAMELESS,
    *(complex, range, slice, np.ndarray, pa.RecordBatch, pa.Table, decimal.Decimal, fractions.Fraction),
    *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta),
}


class NotSerialisable(TypeError):
    """A value that the codec refuses. The caller adds node, channel and type, and raises its own error."""


class Pieces(list[bytes]):
    """A file that keeps what is written to it in pieces. Large bytes are kept by reference."""

    def write(self, data: Buffer) -> None:
        """Keep `data`, and copy it if it can change."""
        self.append(data if type(data) is bytes else bytes(data))


def pickle_into(
    pieces: Pieces,
    value: Any,
    found: Survey,
    by_name: ByName,
    *,
    safe: bool,
    lift: Callable[[pickle.PickleBuffer], bool] | None = None,
) -> bool:
    """Pickle a value. Return whether references to classes and functions stand before the pickle.

    Parameters
    ----------
    pieces : Pieces
        Receives the pickle.
    value : object
    found : Survey
        The survey of `value`.
    by_name : ByName
        Reduces classes and functions to names.
    safe : bool
        True refuses every class and function but that of record batches.
    lift : callable, optional
        Buffer callback of pickle: returns False for each buffer that it keeps beside the pickle.

    Raises
    ------
    NotSerialisable
        if the value cannot be pickled, or not unpickled afterwards, or is refused because of `safe`.
    """
    others = found.others if type(value) in CONTAINERS else [value]
    if all(type(each) in _NAMELESS for each in others):
        _dump(pickle.Pickler(pieces, _PROTOCOL), value, value)
        return False
    strange = next((each for each in others if type(each) not in _NAMELESS and type(each) is not pa.RecordBatch), None)
    if safe and strange is not None:
        raise NotSerialisable(f"{type(strange).__qualname__} needs pickle, which safe=True refuses")
    lifted: list[pickle.PickleBuffer] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        if lift is None or lift(buffer):
            return True
        lifted.append(buffer)
        return False

    references = References(by_name)
    _dump(_Pickler(pieces, references, keep), value, strange)
    if references:
        pieces.insert(0, references.encode())
    if not all(map(_is_sure, others)):
        _require_unpickling(b"".join(pieces), lifted, _named(strange), by_name.names if references else None)
    return bool(references)


def _dump(pickler: pickle.Pickler, value: Any, strange: Any) -> None:
    try:
        pickler.dump(value)
    except NotBound as error:
        raise NotSerialisable(f"{_named(strange)} cannot be encoded: {error}") from error
    except BaseException as error:  # pickling runs the value's own code, which may raise anything
        raise NotSerialisable(f"{_named(strange)} cannot be pickled: {headline(error)}") from error


def unpickle(data: Buffer, names: ProgramNames | None, buffers: Iterable[Buffer] = (), *, safe: bool) -> Any:
    """Return the value of a pickle.

    Parameters
    ----------
    data : bytes or memoryview
    names : ProgramNames or None
        Names of the classes and functions of the program. None: no references stand before the pickle.
    buffers : iterable
        Buffers beside the pickle.
    safe : bool
        True refuses every class and function but that of record batches.

    Raises
    ------
    NotSerialisable
        if the value cannot be unpickled here, or is refused because of `safe`.
    """
    try:
        if not safe:
            return _load(data, names, buffers)
        if names is not None:
            _refuse_references(data)
        return _SafeUnpickler(io.BytesIO(data), buffers=buffers).load()
    except NotSerialisable:
        raise
    except NotBound as error:
        raise NotSerialisable(str(error)) from error
    except BaseException as error:  # unpickling runs the class's own code, which may raise anything
        raise NotSerialisable(f"a value cannot be unpickled here: {headline(error)}") from error


def _load(data: Buffer, names: ProgramNames | None, buffers: Iterable[Buffer | bytearray]) -> Any:
    if names is None:
        return pickle.loads(data, buffers=buffers)
    references, stream = split_references(data)
    token = BOUND.set(names.bind(references))
    try:
        return pickle.loads(stream, buffers=buffers)
    finally:
        BOUND.reset(token)


def _refuse_references(data: Buffer) -> NoReturn:
    names = ", ".join(each.name for each in decode_references(split_references(data)[0]))
    raise NotSerialisable(f"a pickled {names}, which safe=True refuses")


class _Pickler(pickle.Pickler):
    """Pickles functions and classes of the program by name, and record batches as Arrow writes them."""

    def __init__(self, file: Pieces, references: References, keep: Callable[[pickle.PickleBuffer], bool]) -> None:
        super().__init__(file, _PROTOCOL, buffer_callback=keep)
        self._reduce = references.reduce

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is pa.RecordBatch:  # pyarrow's own pickle of a slice holds all rows
            return decode_batch, (bytes(encode_batch(obj)),)
        return self._reduce(obj)


class _SafeUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (decode_batch.__module__, decode_batch.__qualname__):
            return decode_batch
        raise NotSerialisable(f"a pickled {module}.{name}, which safe=True refuses")


def _is_sure(value: Any) -> bool:
    return type(value) in _SURE and not (type(value) is np.ndarray and value.dtype.hasobject)


def _named(value: Any) -> str:
    return type(value).__qualname__


def _require_unpickling(
    data: bytes, buffers: Sequence[pickle.PickleBuffer], name: str, names: ProgramNames | None
) -> None:
    """Unpickle once, because a class may be picklable and not unpicklable: many exceptions are."""
    views = [buffer.raw() for buffer in buffers]
    try:
        _load(data, names, [view.toreadonly() for view in views])
    except BaseException:  # noqa: BLE001  # a class may write to its buffers: these are still the node's own
        try:
            _load(data, names, [bytearray(view) for view in views])
        except BaseException as error:  # unpickling runs the class's own code, which may raise anything
            raise NotSerialisable(f"{name} can be pickled, and not unpickled again: {headline(error)}") from error
