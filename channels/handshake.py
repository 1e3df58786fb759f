"""Mutual proof that both ends hold the run's secret, without I/O. Nothing else is parsed before the proof.

::

    client                                                   server
      HELLO      client nonce                          ──>
                                                       <──   CHALLENGE  server nonce
      PROOF      MAC("client"), claims                 ──>   verifies, and only then reads the claims
      verifies, and only then reads the verdict        <──   VERDICT    MAC("server"), verdict

    MAC(role) = HMAC-SHA256(secret, role, client nonce, server nonce, claims [, verdict])
    claims    = MessagePack [run, incarnation, name, purpose, name of the intended server]
    verdict   = MessagePack [refusal or 0, run, incarnation, name]

The role in the MAC makes a proof worthless when it is sent back to its maker. The nonces make a proof worthless later.
The handshake authenticates. It does not encrypt, and does not protect later traffic from an attacker who can alter it.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import msgpack

from cutline.channels.identity import Identity, Purpose, Refusal
from cutline.channels.limits import NAME_BYTES_MAX
from cutline.channels.wire import WireFrame, WireType, header_of
from cutline.snapshot.errors import ChannelError

NONCE_BYTES = 32
MAC_BYTES = 32
#: Least length of a secret, because a shorter secret could be guessed from one recorded handshake.
SECRET_BYTES_MIN = 16

#: Function that decides on an authenticated peer. None accepts the peer.
Judge = Callable[[Identity, Purpose], Refusal | None]


class HandshakeState(Enum):
    """Client: STARTED -> PROVEN -> DONE. Server: STARTED -> CHALLENGED -> DONE. Any error: FAILED, for good."""

    STARTED = auto()
    CHALLENGED = auto()
    PROVEN = auto()
    DONE = auto()
    FAILED = auto()


class HandshakeFailed(ChannelError):
    """The peer was not accepted, or did not accept this side. `refusal` has the reason."""

    def __init__(self, text: str, refusal: Refusal) -> None:
        super().__init__(text, refusal)
        self.refusal = refusal

    def __str__(self) -> str:
        return str(self.args[0])


class _Handshake:
    """Common base of both sides: secret, nonces, state."""

    def __init__(self, secret: bytes, nonce: bytes) -> None:
        assert len(secret) >= SECRET_BYTES_MIN
        assert len(nonce) == NONCE_BYTES
        self._secret = secret
        self._nonce = nonce
        self.state = HandshakeState.STARTED
        #: identity of the peer, or None until `state` is DONE
        self.peer: Identity | None = None

    def _mac(self, role: bytes, *parts: bytes) -> bytes:
        mac = hmac.new(self._secret, b"cutline 1 " + role, "sha256")
        for part in parts:
            mac.update(len(part).to_bytes(4, "big") + part)
        return mac.digest()

    def _expect(self, frame: WireFrame, type_: WireType, bytes_min: int) -> bytes:
        payload = bytes(frame.payload)
        if frame.type is not type_ or len(payload) < bytes_min:
            raise self._fail(Refusal.MALFORMED, f"{type_.name} was due, {frame.type.name} came")
        return payload

    def _fail(self, refusal: Refusal, text: str) -> HandshakeFailed:
        self.state = HandshakeState.FAILED
        return HandshakeFailed(f"handshake failed ({refusal.name}): {text}", refusal)


class ClientHandshake(_Handshake):
    """Connecting side. Send `start()`, then the result of each `receive`, until `state` is DONE.

    Parameters
    ----------
    secret : bytes
        The run's secret, of at least `SECRET_BYTES_MIN` bytes.
    identity : Identity
        Claimed identity of this side.
    server : str
        Name of the worker that should answer.
    purpose : Purpose
    nonce : bytes
        Fresh and unpredictable, of `NONCE_BYTES` bytes.
    """

    def __init__(self, secret: bytes, identity: Identity, server: str, purpose: Purpose, nonce: bytes) -> None:
        super().__init__(secret, nonce)
        self._server = server
        self._claims = _pack([*_identity_fields(identity), purpose, server])
        self._server_nonce = b""

    def start(self) -> bytes:
        """Return the first bytes to send."""
        return _message(WireType.HELLO, self._nonce)

    def receive(self, frame: WireFrame) -> bytes:
        """Process the server's next message. Return the bytes to send.

        Raises
        ------
        HandshakeFailed
            if the server does not hold the secret, or refuses this side.
        """
        match self.state:
            case HandshakeState.STARTED:
                return self._prove(frame)
            case HandshakeState.PROVEN:
                self._finish(frame)
                return b""
            case _:
                raise self._fail(Refusal.MALFORMED, f"a message came in state {self.state.name}")

    def _prove(self, frame: WireFrame) -> bytes:
        self._server_nonce = self._expect(frame, WireType.CHALLENGE, NONCE_BYTES)
        self.state = HandshakeState.PROVEN
        return _message(
            WireType.PROOF, self._mac(b"client", self._nonce, self._server_nonce, self._claims) + self._claims
        )

    def _finish(self, frame: WireFrame) -> None:
        payload = self._expect(frame, WireType.VERDICT, MAC_BYTES)
        mac, verdict = payload[:MAC_BYTES], payload[MAC_BYTES:]
        expected = self._mac(b"server", self._nonce, self._server_nonce, self._claims, verdict)
        if not hmac.compare_digest(mac, expected):
            raise self._fail(Refusal.UNAUTHENTICATED, f"what answers for {self._server} does not hold the run's secret")
        refusal, run, incarnation, name = _unpack(verdict, (int, str, int, str))
        peer = Identity(run, name, incarnation)
        if refusal:
            raise self._fail(Refusal(refusal), f"{peer} refused this side")
        self.peer = peer
        self.state = HandshakeState.DONE


class ServerHandshake(_Handshake):
    """Listening side. Pass each message to `receive` and send the result, until `state` is DONE or FAILED.

    Parameters
    ----------
    secret : bytes
        The run's secret, of at least `SECRET_BYTES_MIN` bytes.
    identity : callable
        Returns this side's identity. Called for the verdict, because it may have changed since the peer connected.
    judge : callable
        Called once, and only for a peer that proved to hold the secret.
    nonce : bytes
        Fresh and unpredictable, of `NONCE_BYTES` bytes.
    """

    def __init__(self, secret: bytes, identity: Callable[[], Identity], judge: Judge, nonce: bytes) -> None:
        super().__init__(secret, nonce)
        self._identity = identity
        self._judge = judge
        self._client_nonce = b""
        #: purpose of the connection, or None until `state` is DONE
        self.purpose: Purpose | None = None
        #: reason of the refusal, when `state` is FAILED and there is a verdict to send; else None
        self.refusal: Refusal | None = None

    def receive(self, frame: WireFrame) -> bytes:
        """Process the client's next message. Return the bytes to send. After a refusal, send them and close.

        Raises
        ------
        HandshakeFailed
            if the client does not hold the secret, or breaks the protocol. Close without an answer.
        """
        match self.state:
            case HandshakeState.STARTED:
                self._client_nonce = self._expect(frame, WireType.HELLO, NONCE_BYTES)
                self.state = HandshakeState.CHALLENGED
                return _message(WireType.CHALLENGE, self._nonce)
            case HandshakeState.CHALLENGED:
                return self._decide(frame)
            case _:
                raise self._fail(Refusal.MALFORMED, f"a message came in state {self.state.name}")

    def _decide(self, frame: WireFrame) -> bytes:
        payload = self._expect(frame, WireType.PROOF, MAC_BYTES)
        mac, claims = payload[:MAC_BYTES], payload[MAC_BYTES:]
        expected = self._mac(b"client", self._client_nonce, self._nonce, claims)
        if not hmac.compare_digest(mac, expected):
            raise self._fail(Refusal.UNAUTHENTICATED, "the peer does not hold the run's secret")
        run, incarnation, name, purpose, server = _unpack(claims, (str, int, str, int, str))
        own, peer = self._identity(), Identity(run, name, incarnation)
        self.refusal = self._refusal(own, peer, Purpose(purpose), server)
        if self.refusal is None:
            self.peer, self.purpose = peer, Purpose(purpose)
            self.state = HandshakeState.DONE
        else:
            self.state = HandshakeState.FAILED
        verdict = _pack([self.refusal or 0, *_identity_fields(own)])
        answer = self._mac(b"server", self._client_nonce, self._nonce, claims, verdict)
        return _message(WireType.VERDICT, answer + verdict)

    def _refusal(self, own: Identity, peer: Identity, purpose: Purpose, server: str) -> Refusal | None:
        if peer.run != own.run:
            return Refusal.WRONG_RUN
        if server != own.name:
            return Refusal.WRONG_NAME
        return self._judge(peer, purpose)


def _message(type_: WireType, payload: bytes) -> bytes:
    return header_of(WireFrame(type_, 0, 0, payload)) + payload


def _identity_fields(identity: Identity) -> list[Any]:
    for name in (identity.run, identity.name):
        if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
            raise ChannelError(
                f"the name {name[:40]!r} has {len(name.encode())} bytes; 1 to {NAME_BYTES_MAX} can be sent"
            )
    return [identity.run, identity.incarnation, identity.name]


def _pack(fields: list[Any]) -> bytes:
    packed: bytes = msgpack.packb([int(f) if isinstance(f, int) else f for f in fields])
    return packed


def _unpack(data: bytes, types: tuple[type, ...]) -> list[Any]:
    """Decode fields of a peer whose MAC was verified. Refuse other types, because another version sent them."""
    fields = msgpack.unpackb(data)
    if not isinstance(fields, list) or tuple(map(type, fields)) != types:
        raise HandshakeFailed("handshake failed (MALFORMED): fields of another version", Refusal.MALFORMED)
    return fields
