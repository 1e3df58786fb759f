"""The handshake, both ends against each other, and everybody who should not get through."""

from __future__ import annotations

import pickle

import pytest

from cutline.channels.frame_reader import FrameReader
from cutline.channels.handshake import ClientHandshake, HandshakeFailed, HandshakeState, ServerHandshake
from cutline.channels.identity import Identity, Purpose, Refusal
from cutline.channels.wire import HANDSHAKE_CAPS, HEADER_BYTES, WireFrame, WireType
from cutline.snapshot.errors import ChannelError

SECRET = b"s" * 32
ALICE = Identity("run", "alice", 3)
BOB = Identity("run", "bob", 3)


def frame_in(data: bytes) -> WireFrame:
    reader = FrameReader(HANDSHAKE_CAPS, read_ahead_bytes=max(len(data), HEADER_BYTES))
    reader.space[: len(data)] = data
    [frame] = reader.advance(len(data))
    return frame


def client(
    *, identity: Identity = ALICE, secret: bytes = SECRET, server: str = "bob", nonce: int = 1
) -> ClientHandshake:
    return ClientHandshake(secret, identity, server, Purpose.DATA, bytes([nonce]) * 32)


class Server(ServerHandshake):
    """Bob, who notes what he is asked to judge."""

    def __init__(self, *, secret: bytes = SECRET, refusal: Refusal | None = None, nonce: int = 2) -> None:
        self.judged: list[tuple[Identity, Purpose]] = []

        def judge(peer: Identity, purpose: Purpose) -> Refusal | None:
            self.judged.append((peer, purpose))
            return refusal

        super().__init__(secret, lambda: BOB, judge, bytes([nonce]) * 32)


def shake(one: ClientHandshake, other: ServerHandshake) -> list[bytes]:
    """Run both to the end; returns what the client sent."""
    sent = [one.start()]
    while one.state is not HandshakeState.DONE:
        answer = other.receive(frame_in(sent[-1]))
        sent.append(one.receive(frame_in(answer)))
    return sent


def test_both_ends_know_each_other() -> None:
    """After it each side has the other's proved identity, and the server the purpose."""
    one, other = client(), Server()
    shake(one, other)
    assert (one.peer, other.peer, other.purpose) == (BOB, ALICE, Purpose.DATA)
    assert other.judged == [(ALICE, Purpose.DATA)]
    assert (one.state, other.state) == (HandshakeState.DONE, HandshakeState.DONE)


def test_a_client_without_the_secret_is_never_judged() -> None:
    """Its claims are not even read."""
    one, other = client(secret=b"x" * 32), Server()
    with pytest.raises(HandshakeFailed) as caught:
        shake(one, other)
    assert caught.value.refusal is Refusal.UNAUTHENTICATED
    assert other.judged == []
    assert other.state is HandshakeState.FAILED


def test_a_server_without_the_secret_is_not_believed() -> None:
    """A server that lets everybody in cannot make the client believe it."""
    one, other = client(), Server()
    proof = one.receive(frame_in(other.receive(frame_in(one.start()))))
    verdict = bytearray(frame_in(other.receive(frame_in(proof))).payload)
    verdict[0] ^= 1
    with pytest.raises(HandshakeFailed) as caught:
        one.receive(WireFrame(WireType.VERDICT, 0, 0, bytes(verdict)))
    assert caught.value.refusal is Refusal.UNAUTHENTICATED
    assert one.peer is None


@pytest.mark.parametrize(
    ("one", "other", "refusal"),
    [
        (client(identity=ALICE._replace(run="other")), Server(), Refusal.WRONG_RUN),
        (client(server="carol"), Server(), Refusal.WRONG_NAME),
        (client(), Server(refusal=Refusal.STALE_INCARNATION), Refusal.STALE_INCARNATION),
        (client(), Server(refusal=Refusal.DUPLICATE), Refusal.DUPLICATE),
    ],
)
def test_a_refusal_is_said_with_its_reason(one: ClientHandshake, other: Server, refusal: Refusal) -> None:
    """An authenticated peer learns why, and both sides are done with it."""
    with pytest.raises(HandshakeFailed, match=refusal.name) as caught:
        shake(one, other)
    assert (caught.value.refusal, other.refusal) == (refusal, refusal)
    assert (one.state, other.state) == (HandshakeState.FAILED, HandshakeState.FAILED)
    assert other.peer is None


def test_codes_on_the_wire_never_change() -> None:
    """A peer of another version reads each purpose and each refusal by its number."""
    assert [(purpose.name, purpose.value) for purpose in Purpose] == [("DATA", 1), ("HEARTBEAT", 2), ("CONTROL", 3)]
    names = (
        "WRONG_RUN WRONG_NAME STALE_INCARNATION NOT_YET UNKNOWN_PEER WRONG_PURPOSE DUPLICATE UNAUTHENTICATED MALFORMED "
        "TOO_SLOW CROWDED_OUT"
    )
    assert [(refusal.value, refusal.name) for refusal in Refusal] == [*enumerate(names.split(), 1)]


def test_a_replayed_transcript_is_refused() -> None:
    """What a client once sent is worthless against another nonce."""
    sent = shake(client(), Server())
    other = Server(nonce=9)
    other.receive(frame_in(sent[0]))
    with pytest.raises(HandshakeFailed) as caught:
        other.receive(frame_in(sent[1]))
    assert caught.value.refusal is Refusal.UNAUTHENTICATED
    assert other.judged == []


def test_a_reflected_proof_is_refused() -> None:
    """A client's own proof, sent back with its own nonce as the challenge, does not pass for the server's."""
    one = client()
    hello = frame_in(one.start())
    proof = frame_in(one.receive(WireFrame(WireType.CHALLENGE, 0, 0, hello.payload)))
    with pytest.raises(HandshakeFailed) as caught:
        one.receive(WireFrame(WireType.VERDICT, 0, 0, proof.payload))
    assert caught.value.refusal is Refusal.UNAUTHENTICATED


def test_every_changed_bit_of_the_claims_is_refused() -> None:
    """Claims are covered by the MAC: run, incarnation, both names, purpose."""
    one = client()
    challenge = Server().receive(frame_in(one.start()))
    payload = bytes(frame_in(one.receive(frame_in(challenge))).payload)
    for bit in range(8 * len(payload)):
        changed = bytearray(payload)
        changed[bit // 8] ^= 1 << bit % 8
        other = Server()
        other.receive(frame_in(client().start()))
        with pytest.raises(HandshakeFailed):
            other.receive(WireFrame(WireType.PROOF, 0, 0, bytes(changed)))
        assert other.judged == []


@pytest.mark.parametrize("type_", [WireType.CHALLENGE, WireType.PROOF, WireType.VERDICT])
def test_messages_out_of_order_are_refused(type_: WireType) -> None:
    """A server takes a HELLO first, whatever the rest says."""
    with pytest.raises(HandshakeFailed) as caught:
        Server().receive(WireFrame(type_, 0, 0, bytes(64)))
    assert caught.value.refusal is Refusal.MALFORMED


def test_nothing_follows_the_end() -> None:
    """A machine that is done, or failed, takes no message."""
    one, other = client(), Server()
    shake(one, other)
    for machine in (one, other):
        with pytest.raises(HandshakeFailed):
            machine.receive(WireFrame(WireType.HELLO, 0, 0, bytes(32)))


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_names_have_a_length(name: str) -> None:
    """An empty or endless name is an error of this side, said at once."""
    with pytest.raises(ChannelError, match="bytes"):
        client(identity=Identity("run", name, 1))


def test_the_error_crosses_processes() -> None:
    """It can be pickled, with its reason."""
    error = pickle.loads(pickle.dumps(HandshakeFailed("text", Refusal.DUPLICATE)))
    assert (str(error), error.refusal) == ("text", Refusal.DUPLICATE)
