"""Frames of the wire to test with: any that a data connection of `INCARNATION` takes."""

from __future__ import annotations

from hypothesis import strategies as st

from cutline.channels.wire import credit_frame, data_frame, marker_frame
from cutline.snapshot.channel.frame import Frame, Marker, PayloadKind

INCARNATION = 2**64 - 2
U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
FRAMES = st.builds(
    Frame, st.integers(1, 2**63), st.integers(1, 2**32 - 1), st.sampled_from(PayloadKind), st.binary(max_size=300)
)
MARKERS = st.builds(Marker, U64, U64, U64, st.booleans())
WIRE_FRAMES = st.one_of(
    st.builds(data_frame, U32, st.just(INCARNATION), FRAMES),
    st.builds(marker_frame, U32, st.just(INCARNATION), MARKERS),
    st.builds(credit_frame, U32, st.just(INCARNATION), U64),
)
