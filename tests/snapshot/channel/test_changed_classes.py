"""Values that one program stores and another reads: of the class that the program has now, or refused by its name."""

from __future__ import annotations

import fractions
from typing import Any

import cloudpickle
import msgpack
import pytest

from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.stored_references import may_have_references, references_in
from cutline.snapshot.errors import GraphError
from tests.snapshot.channel.changed_classes import Program

#: {kind: (source with the method's factor left out, expression of a value, expression that its reader evaluates)}
KINDS = {
    "dataclass": (
        """
        @dataclass
        class Basket:
            amount: int
            def price(self): return self.amount * FACTOR
        """,
        "Basket(3)",
    ),
    "frozen dataclass": (
        """
        @dataclass(frozen=True)
        class Basket:
            amount: int
            def price(self): return self.amount * FACTOR
        """,
        "Basket(3)",
    ),
    "dataclass with slots": (
        """
        @dataclass(slots=True)
        class Basket:
            amount: int
            def price(self): return self.amount * FACTOR
        """,
        "Basket(3)",
    ),
    "frozen dataclass with slots": (
        """
        @dataclass(frozen=True, slots=True)
        class Basket:
            amount: int
            def price(self): return self.amount * FACTOR
        """,
        "Basket(3)",
    ),
    "generic dataclass": (
        """
        T = typing.TypeVar("T")
        @dataclass
        class Basket(typing.Generic[T]):
            amount: T
            def price(self): return self.amount * FACTOR
        """,
        "Basket[int](3)",
    ),
    "dataclass with a state of its own": (
        """
        @dataclass
        class Basket:
            amount: int
            def __getstate__(self): return self.amount
            def __setstate__(self, state): self.amount = state
            def price(self): return self.amount * FACTOR
        """,
        "Basket(3)",
    ),
    "NamedTuple": (
        """
        class Basket(typing.NamedTuple):
            amount: int
            def price(self): return self.amount * FACTOR
        """,
        "Basket(3)",
    ),
    "subclass of a namedtuple": (
        """
        class Basket(namedtuple("Base", "amount")):
            __slots__ = ()
            def price(self): return self.amount * FACTOR
        """,
        "Basket(3)",
    ),
    "class": (
        """
        class Basket:
            def __init__(self, amount): self.amount = amount
            def __eq__(self, other): return type(other) is Basket and other.amount == self.amount
            def price(self): return self.amount * FACTOR
        """,
        "Basket(3)",
    ),
    "class with slots": (
        """
        class Basket:
            __slots__ = ("amount",)
            def __init__(self, amount): self.amount = amount
            def __eq__(self, other): return type(other) is Basket and other.amount == self.amount
            def price(self): return self.amount * FACTOR
        """,
        "Basket(3)",
    ),
    "nested class": (
        """
        class Shop:
            @dataclass
            class Basket:
                amount: int
                def price(self): return self.amount * FACTOR
        Basket = Shop.Basket
        """,
        "Basket(3)",
    ),
    "local class": (
        """
        def made():
            @dataclass
            class Basket:
                amount: int
                def price(self): return self.amount * FACTOR
            return Basket
        Basket = made()
        """,
        "Basket(3)",
    ),
    "exception": (
        """
        class Basket(Exception):
            def __eq__(self, other): return type(other) is Basket and other.args == self.args
            def price(self): return self.args[0] * FACTOR
        """,
        "Basket(3)",
    ),
    "subclass of list": (
        """
        class Basket(list):
            def price(self): return self[0] * FACTOR
        """,
        "Basket([3])",
    ),
    "subclass of dict": (
        """
        class Basket(dict):
            def price(self): return self["amount"] * FACTOR
        """,
        "Basket(amount=3)",
    ),
    "Enum": (
        """
        class Basket(enum.Enum):
            SMALL = 3
            def price(self): return self.value * FACTOR
        """,
        "Basket.SMALL",
    ),
    "StrEnum": (
        """
        class Basket(enum.StrEnum):
            SMALL = "s"
            def price(self): return 3 * FACTOR
        """,
        "Basket.SMALL",
    ),
    "Flag": (
        """
        class Basket(enum.Flag):
            ONE = 1
            TWO = 2
            def price(self): return self.value * FACTOR
        """,
        "Basket.ONE | Basket.TWO",
    ),
}


def program(source: str, factor: int = 1) -> Program:
    """A program with a class of a method that multiplies by a factor."""
    return Program(source.replace("FACTOR", str(factor)), "Basket")


def passed(value: Any, writer: Codec, reader: Codec) -> Any:
    """A value of one codec, read by another: as a message, and in a state, which must agree."""
    message = reader.decode(writer.encode([value, (value,)]))
    state = reader.decode_state(b"".join(map(bytes, writer.encode_state({"a": [value, (value,)]}))))["a"]
    assert message == state
    assert message[1] == (message[0],)
    return message[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [1, 2])
def test_a_value_is_of_the_class_that_the_program_has(kind: str, factor: int) -> None:
    """Also where a method was corrected: the code is the program's, and the content is the stored one."""
    source, expression = KINDS[kind]
    before, after = program(source), program(source, factor)
    assert after.names["Basket"] is not before.names["Basket"]
    found = passed(before.value(expression), before.codec, after.codec)
    assert type(found) is after.names["Basket"]
    assert found == after.value(expression)
    assert found.price() == 3 * factor
    assert passed(found, after.codec, after.codec) == found


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_stored_holds_no_code(kind: str) -> None:
    """Only names: no code of the class, and none of cloudpickle."""
    source, expression = KINDS[kind]
    before = program(source)
    stored = before.codec.encode(before.value(expression))
    assert b"price" not in stored
    assert b"cloudpickle" not in stored
    assert len(stored) < 250


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_that_is_gone_is_refused_by_name(kind: str) -> None:
    """When it is read, with its name."""
    source, expression = KINDS[kind]
    before = program(source)
    with pytest.raises(NotSerialisable, match=r"no class or function __main__\.(Shop\.|made\.<locals>\.)?Basket"):
        passed(before.value(expression), before.codec, Program("Bag = 1", "Bag").codec)


DATACLASSES = {
    name: head + "class Basket:\n    FIELDS\n"
    for name, head in {
        "plain": "@dataclass\n",
        "frozen": "@dataclass(frozen=True)\n",
        "slots": "@dataclass(slots=True)\n",
        "frozen, slots": "@dataclass(frozen=True, slots=True)\n",
    }.items()
} | {"named tuple": "class Basket(typing.NamedTuple):\n    FIELDS\n"}


def fields(kind: str, *lines: str) -> Program:
    """A program with a class of these fields."""
    return Program(DATACLASSES[kind].replace("FIELDS", "\n    ".join(lines)), "Basket")


@pytest.mark.parametrize("kind", DATACLASSES)
@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (("a: int", "b: int", "c: int = 7"), "Basket(a=1, b=2, c=7)"),
        (("b: int", "a: int"), "Basket(a=1, b=2)"),
        (("a: int", "c: int = 7", "b: int = 8"), "Basket(a=1, b=2, c=7)"),
    ],
)
def test_a_field_that_has_a_default_may_be_added(kind: str, now: tuple[str, ...], expected: str) -> None:
    """In any place; and fields may change places."""
    before, after = fields(kind, "a: int", "b: int"), fields(kind, *now)
    assert passed(before.value("Basket(1, 2)"), before.codec, after.codec) == after.value(expected)


def test_a_field_may_be_added_with_a_factory() -> None:
    """Each object gets a value of its own."""
    before = fields("slots", "a: int")
    after = fields("slots", "a: int", "b: list = field(default_factory=list)")
    one, two = after.codec.decode(before.codec.encode([before.value("Basket(1)"), before.value("Basket(2)")]))
    one.b.append(3)
    assert [one, two] == [after.value("Basket(1, [3])"), after.value("Basket(2)")]


@pytest.mark.parametrize("kind", DATACLASSES)
@pytest.mark.parametrize(
    ("now", "says"),
    [
        (("a: int", "b: int", "c: int"), "c has no default"),
        (("a: int",), "b would be dropped"),
        (("a: int", "c: int"), "c has no default; b would be dropped"),
    ],
)
def test_other_fields_are_refused_with_both_lists(kind: str, now: tuple[str, ...], says: str) -> None:
    """A field more without a default, a field less, a field renamed."""
    before, after = fields(kind, "a: int", "b: int"), fields(kind, *now)
    word = "named tuple" if kind == "named tuple" else "dataclass"
    names = ", ".join(each[0] for each in now)
    text = rf"__main__\.Basket was stored as {word}\(a, b\), and is {word}\({names}\) now: {says}"
    with pytest.raises(NotSerialisable, match=text):
        passed(before.value("Basket(1, 2)"), before.codec, after.codec)


@pytest.mark.parametrize(
    ("before", "after"),
    [("dataclass", "class"), ("class", "dataclass"), ("dataclass", "NamedTuple"), ("class", "Enum"), ("Enum", "class")],
)
def test_another_kind_of_class_is_refused(before: str, after: str) -> None:
    """By name, with both kinds; a class with a `__setstate__` takes what was stored."""
    writer, reader = program(KINDS[before][0]), program(KINDS[after][0])
    with pytest.raises(NotSerialisable, match=r"__main__\.Basket was stored "):
        passed(writer.value(KINDS[before][1]), writer.codec, reader.codec)


@pytest.mark.parametrize(
    "kind", ["class", "class with slots", "dataclass", "frozen dataclass with slots", "dataclass with slots"]
)
def test_a_class_with_a_state_of_its_own_reads_what_was_stored(kind: str) -> None:
    """Whatever kind and fields it had."""
    before = program(KINDS[kind][0])
    after = Program("class Basket:\n    def __setstate__(self, state): self.all = state", "Basket")
    expected = (None, {"amount": 3}) if kind in ("class with slots", "dataclass with slots") else {"amount": 3}
    assert after.codec.decode(before.codec.encode(before.value("Basket(3)"))).all == expected


@pytest.mark.parametrize(
    ("now", "says"),
    [("RED, GREEN = 2, 1", "RED=1, and has RED=2, GREEN=1 now"), ("GREEN = 1", "RED=1, and has GREEN=1 now")],
)
def test_a_member_with_another_value_is_refused(now: str, says: str) -> None:
    """Pickle alone would read RED as GREEN."""
    before = Program("class Basket(enum.Enum):\n    RED, GREEN = 1, 2", "Basket")
    after = Program(f"class Basket(enum.Enum):\n    {now}", "Basket")
    with pytest.raises(NotSerialisable, match=rf"__main__\.Basket was stored with {says}"):
        after.codec.decode(before.codec.encode(before.value("Basket.RED")))


def test_members_may_be_added() -> None:
    """An Enum with a member more reads the others."""
    before = Program("class Basket(enum.Enum):\n    RED = 1", "Basket")
    after = Program("class Basket(enum.Enum):\n    GREEN, RED = 2, 1", "Basket")
    assert passed(before.value("Basket.RED"), before.codec, after.codec) is after.value("Basket.RED")


FUNCTIONS = """
class Basket:
    def __init__(self, amount): self.amount = amount
    def __eq__(self, other): return self.amount == other.amount
    def price(self): return self.amount * FACTOR
    @classmethod
    def free(cls): return FACTOR

def doubled(number): return 2 * number * FACTOR
"""


@pytest.mark.parametrize(
    ("expression", "call"),
    [
        ("doubled", "doubled(3)"),
        ("functools.partial(doubled, 3)", "doubled(3)"),
        ("Basket(3).price", "Basket(3).price()"),
        ("Basket.free", "Basket.free()"),
    ],
)
def test_functions_are_those_of_the_program(expression: str, call: str) -> None:
    """Functions, methods of objects, methods of classes."""
    before = Program(FUNCTIONS.replace("FACTOR", "1"), "Basket, doubled")
    after = Program(FUNCTIONS.replace("FACTOR", "2"), "Basket, doubled")
    found = after.codec.decode(before.codec.encode(before.value(expression)))
    argument = (3,) if expression == "doubled" else ()
    assert found(*argument) == after.value(call)
    assert after.codec.decode(after.codec.encode(found))(*argument) == after.value(call)


@pytest.mark.parametrize("expression", ["Basket", "list[Basket]", "typing.Optional[Basket]", "Basket | None"])
def test_classes_are_values(expression: str) -> None:
    """Alone, and inside of a type."""
    before, after = program(KINDS["class"][0]), program(KINDS["class"][0])
    assert after.codec.decode(before.codec.encode(before.value(expression))) == after.value(expression)


@pytest.mark.parametrize(
    ("source", "names", "expression", "says"),
    [
        ("f = lambda x: x", "f", "f", "it is a lambda"),
        ("def made(n):\n    def f(x): return x + n\n    return f", "made", "made(1)", "it is a closure"),
        ("class Basket: pass", "1", "Basket()", "the graph does not refer to it"),
        ("def made():\n    class Basket: pass\n    return Basket\nA = made()\nB = made()", "A, B", "A()", "several of"),
        ("class Shop(Node):\n    def made(self): return 1", "Shop", "Shop", "it belongs to a node"),
        ("class Shop(Node):\n    def made(self): return 1", "Shop", "Shop.made", "it belongs to a node"),
        ("class Basket: pass\nOld = Basket\nclass Basket: pass", "Basket", "Old()", "another one of this name"),
    ],
)
def test_what_has_no_name_is_refused_when_written(source: str, names: str, expression: str, says: str) -> None:
    """With its name, the reason and the way out."""
    writer = Program(source, names)
    with pytest.raises(NotSerialisable, match=rf"because .*{says}.*; define it in a module that the workers import"):
        writer.codec.encode(writer.value(expression))


def test_sharing_and_cycles_stay() -> None:
    """Of objects that are made by name, too."""
    source = "@dataclass(slots=True)\nclass Basket:\n    other: object = None"
    before, after = Program(source, "Basket"), Program(source, "Basket")
    loop = before.value("Basket()")
    loop.other = [loop]
    found = after.codec.decode(before.codec.encode(loop))
    assert found.other[0] is found


BAG = "@dataclass\nclass Bag:\n    amount: int\n    more: int = 1"


@pytest.mark.parametrize("kind", ["dataclass", "frozen dataclass with slots"])
def test_a_class_may_have_another_name(kind: str) -> None:
    """When the graph says which, and with a field more too."""
    before, after = program(KINDS[kind][0]), Program(BAG, "", **{"__main__.Basket": "Bag"})
    found = passed(before.value("Basket(3)"), before.codec, after.codec)
    assert found == after.value("Bag(3, 1)")
    assert passed(found, after.codec, after.codec) == found


class Basket(list[int]):
    """A class of a module."""


def test_a_class_of_a_module_may_have_another_name() -> None:
    """Also while the module still has a class of this name."""
    after = Program("class Bag(list): pass", "", **{f"{__name__}.Basket": "Bag"})
    found = passed(Basket([3]), Codec(), after.codec)
    assert [type(found), found] == [after.names["Bag"], [3]]


def test_a_module_may_have_another_name() -> None:
    """A script that becomes a module: `__main__` then is a module that workers import."""
    before = Program("class Fraction(tuple): pass", "Fraction")
    after = Program("", "", **{"__main__": "'fractions'"})
    writer, reader = before.codec, after.codec
    assert reader.decode(writer.encode(before.value("Fraction"))) is fractions.Fraction


@pytest.mark.parametrize("now", ["3", "[int]"])
def test_an_alias_of_nothing_is_refused(now: str) -> None:
    """When the graph is checked."""
    with pytest.raises(GraphError, match=r"alias 'a.B': .* is no class, function or name of a module"):
        Program("", "", **{"a.B": now})


SHOWN = {
    "dataclass": "<__main__.Basket(amount=3)>",
    "frozen dataclass with slots": "<__main__.Basket(amount=3)>",
    "dataclass with a state of its own": "<__main__.Basket(3)>",
    "NamedTuple": "<__main__.Basket(amount=3)>",
    "class": "<__main__.Basket(amount=3)>",
    "class with slots": "<__main__.Basket(amount=3)>",
    "local class": "<__main__.made.<locals>.Basket(amount=3)>",
    "exception": "<__main__.Basket(3)>",
    "subclass of list": "<__main__.Basket([3])>",
    "subclass of dict": "<__main__.Basket({'amount': 3})>",
    "Enum": "<__main__.Basket.SMALL>",
    "Flag": "<__main__.Basket.ONE|TWO>",
}


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_program_values_have_stand_ins(kind: str) -> None:
    """They are equal where the values were, show their fields, and are written back as they were."""
    source, expression = KINDS[kind]
    program_ = program(source)
    data = program_.codec.encode([program_.value(expression)] * 2)
    reader = Codec()
    one, two = reader.decode(data), reader.decode(data)
    assert one == two
    assert one[0] is one[1]
    assert len({*one, *two}) == 1
    assert repr(one[0]) == SHOWN.get(kind, repr(one[0]))
    back = program_.codec.decode(reader.encode(one))
    assert back == [program_.value(expression)] * 2
    assert back[0] is back[1]
    assert type(back[0]) is program_.names["Basket"]


def test_fields_of_stand_ins_are_read_by_name() -> None:
    """As those of the object; objects with other fields are not equal."""
    writer = program(KINDS["dataclass"][0])
    one, other = Codec().decode(writer.codec.encode([writer.value("Basket(3)"), writer.value("Basket(4)")]))
    assert [one.amount, other.amount] == [3, 4]
    assert one != other
    with pytest.raises(AttributeError, match=r"<__main__.Basket\(amount=3\)> has no field 'price'"):
        print(one.price)


def test_a_class_of_a_missing_module_has_a_stand_in() -> None:
    """A snapshot is read where the program's modules are not installed."""
    found = Codec().decode(Codec().encode(Basket([3])).replace(__name__.encode(), b"x" * len(__name__)))
    assert repr(found) == f"<{'x' * len(__name__)}.Basket([3])>"
    with pytest.raises(NotSerialisable, match=r"the program has no class or function xxx.*Basket"):
        Program("", "").codec.decode(Codec().encode(found))


def by_cloudpickle(value: Any) -> bytes:
    """A value as Cutline stored it when values held code."""
    return msgpack.packb(msgpack.ExtType(2, cloudpickle.dumps(value, protocol=5)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("expression", "name"),
    [("Basket(3)", "Basket"), ("Basket", "Basket"), ("Colour.RED", "Colour"), ("[priced]", "priced")],
)
def test_code_in_old_values_is_refused_by_name(expression: str, name: str) -> None:
    """At the restore: in rows and messages, before they are read, and in states."""
    source = """
    @dataclass
    class Basket:
        amount: int
    class Colour(enum.IntEnum):
        RED = 1
    def priced(basket): return basket.amount
    """
    made = Program(source, "Basket, Colour, priced")
    stored = by_cloudpickle(made.value(expression))
    assert may_have_references(stored)
    with pytest.raises(NotSerialisable, match=f"a value holds the code of {name}, not its name"):
        made.codec.require(references_in(b"\x92\x01" + stored))
    state = b"".join(map(bytes, made.codec.encode_state({"a": 1}))).replace(b"\xa1a\x01", b"\xa1a" + stored)
    with pytest.raises(NotSerialisable, match=f"a value holds the code of {name}, not its name"):
        made.codec.decode_state(state)


def test_a_text_is_no_code() -> None:
    """Whatever it says."""
    codec = Program("", "").codec
    for value in (
        "cloudpickle.cloudpickle",
        ("cloudpickle.cloudpickle", "_make_skeleton_class"),
        b"\x80\x05cloudpickle",
    ):
        state = b"".join(map(bytes, codec.encode_state({"a": value, "b": (1,)})))
        assert codec.decode_state(state) == {"a": value, "b": (1,)}
        assert references_in(codec.encode(value)) == set()


#: {kind: its value as it was stored}; never changed, because snapshots hold such bytes
STORED = {
    "dataclass": (
        "c77605250000009194a85f5f6d61696e5f5fa64261736b6574b164617461636c61737328616d6f756e7429c380059542"
        "000000000000008c1d6375746c696e652e736e617073686f742e6e616d696e672e626f756e64948c0462696e64949394"
        "4b00859452942952947d948c06616d6f756e74944b0373622e"
    ),
    "frozen dataclass with slots": (
        "c78405250000009194a85f5f6d61696e5f5fa64261736b6574b164617461636c61737328616d6f756e7429c380059550"
        "000000000000008c1d6375746c696e652e736e617073686f742e6e616d696e672e626f756e64948c0462696e64949394"
        "4b008594529429529468008c0370757494939468057d948c06616d6f756e74944b03738652302e"
    ),
    "NamedTuple": (
        "c76c05270000009194a85f5f6d61696e5f5fa64261736b6574b36e616d6564207475706c6528616d6f756e7429c38005"
        "9536000000000000008c1d6375746c696e652e736e617073686f742e6e616d696e672e626f756e64948c0462696e6494"
        "93944b00859452944b03859452942e"
    ),
    "class": (
        "c76a05190000009194a85f5f6d61696e5f5fa64261736b6574a5636c617373c280059542000000000000008c1d637574"
        "6c696e652e736e617073686f742e6e616d696e672e626f756e64948c0462696e649493944b00859452942981947d948c"
        "06616d6f756e74944b0373622e"
    ),
    "Enum": (
        "c77205180000009194a85f5f6d61696e5f5fa64261736b6574a4656e756dc28005954b000000000000008c1d6375746c"
        "696e652e736e617073686f742e6e616d696e672e626f756e64948c066d656d62657294939468008c0462696e64949394"
        "4b00859452948c05534d414c4c944b03879452942e"
    ),
}


@pytest.mark.parametrize("kind", STORED)
def test_what_was_stored_is_read_for_ever(kind: str) -> None:
    """Modules, functions and extensions that stored values name are never renamed."""
    reader = program(KINDS[kind][0])
    assert reader.codec.decode(bytes.fromhex(STORED[kind])) == reader.value(KINDS[kind][1])
