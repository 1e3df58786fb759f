"""Limits of the package, each with its reason. Sizes are in bytes and durations in seconds unless named otherwise."""

from __future__ import annotations

#: Payload of one data frame. Twice the largest message that a channel sender takes, so that a record batch with its
#: schema always fits. Small enough that one false length cannot take a worker's memory.
FRAME_BYTES_MAX = 256 * 1024 * 1024

#: Payload of one control message. Small states and recorded messages travel to the coordinator in control messages.
CONTROL_BYTES_MAX = 64 * 1024 * 1024

#: Payload of one handshake message: a proof and three names of `NAME_BYTES_MAX`. A stranger can make us hold no more.
HANDSHAKE_BYTES_MAX = 4 * 1024

#: A name (run, worker) in a handshake: as long as a file name may be.
NAME_BYTES_MAX = 255

#: Bytes of a channel in flight or unprocessed at its receiver. Eight frames of 32 KiB hide a round trip of 0.2 ms at
#: 10 Gbit/s. Not more, because all of them are in every unaligned snapshot. With four times as much, ten snapshots a
#: second cost a third of the throughput of small messages instead of an eighth.
CREDIT_WINDOW_BYTES = 256 * 1024

#: Frames that fit a window however large they are: one being written, one on the way, one being handled.
WINDOW_FRAMES = 3

#: Frames of the window, and of the out-buffer, between two subtasks of one worker. The two take turns, so more frames
#: would only wait, and be in every unaligned snapshot (docs/SPEED.md has the gain for batches).
LOCAL_FRAMES = 1

#: Part of the window that a receiver gives back at once, so that there are few credit frames. The sender still has
#: three quarters of the window while a credit frame is on its way.
CREDIT_GRANT_DIVISOR = 4

#: Bytes of frames that are taken from the channel senders before the socket accepts them. They count as written, so a
#: marker goes after them. Enough for one large gathered write: 0.1 ms of loopback.
WRITE_BUFFER_BYTES = 256 * 1024

#: Bytes that one call of `pump` may write, so that a fast peer does not keep the loop from other peers. More than a few
#: large frames, because a frame that waits for another leaves the caches before its checksum is computed.
PUMP_BYTES_MAX = 4 * 1024 * 1024

#: Bytes that one call of `receive` may read, so that a fast peer does not keep the loop from other peers.
RECEIVE_BYTES_MAX = 1024 * 1024

#: Bytes that one read may take before their frames are known. Larger frames are read straight into their own memory.
READ_AHEAD_BYTES = 64 * 1024

#: Unsent bytes that the kernel holds for a TCP connection (TCP_NOTSENT_LOWAT). A marker waits for them: 6 ms instead
#: of 15 to a slow reader on loopback. The congestion window, which this does not limit, keeps links full.
KERNEL_UNSENT_BYTES = 128 * 1024

#: Send buffer of a Unix socket, which has no TCP_NOTSENT_LOWAT: full speed on loopback.
UNIX_SEND_BUFFER_BYTES = 256 * 1024

#: Size from which payloads go through memory that both workers map, if they are on one host. The calls for smaller
#: payloads would cost more than the kernel's copies.
SHARED_PAYLOAD_BYTES_MIN = 64 * 1024

#: Shared memory of each direction. Holds the frames of a few channels that are sealed or in flight, of 64 Ki rows of 16
#: bytes, and the frames that a snapshot still refers to. Untouched pages take no memory; touched pages stay until the
#: connection ends.
SHARED_MEMORY_BYTES = 16 * 1024 * 1024

#: Largest frame that is joined into one buffer, because copying it costs less than a gathered write.
JOINED_BYTES_MAX = 4 * 1024

#: Buffers in one gathered write. The kernel takes 1,024.
GATHERED_BUFFERS_MAX = 512

#: Control messages that wait for a peer which does not read. Room for four of the largest.
CONTROL_BACKLOG_BYTES_MAX = 4 * CONTROL_BYTES_MAX

#: Duration of a handshake of four messages. A busy starting peer needs less than 5 s; an idle stranger is disconnected.
HANDSHAKE_DEADLINE_SECONDS = 5.0

#: Handshakes under way at a listener. Beyond this number the oldest is dropped. An honest peer needs milliseconds, so
#: under a flood the oldest is a stranger.
PENDING_HANDSHAKES_MAX = 128

#: Connections that the kernel queues for a listener: the usual limit of Linux.
LISTEN_BACKLOG = 4096

#: Connections that one call of `accept` takes, so that a flood does not keep the loop from its work.
ACCEPTS_PER_CALL = 64

#: Pause of a listener that cannot accept, because no descriptor is free. Five attempts a second cost nothing, and peers
#: dial for seconds.
ACCEPT_PAUSE_SECONDS = 0.2

#: Pause between two attempts to connect. A peer's listener may not be up yet, or may be one incarnation behind.
RECONNECT_PAUSE_SECONDS = 0.02

#: Interval of heartbeats in each direction. They cost a few system calls a second and peer.
HEARTBEAT_INTERVAL_SECONDS = 0.5

#: Silence after which a peer counts as dead: twenty missed heartbeats, because a machine that swaps is not dead.
HEARTBEAT_DEADLINE_SECONDS = 10.0

#: Bytes that a cycle's out-buffer may hold on disk. A job that needs more produces faster than it consumes, for ever.
SPILL_BYTES_MAX = 4 * 1024 * 1024 * 1024

#: Size of a spill file. Disk is given back in whole files, so this much may be held in vain.
SPILL_SEGMENT_BYTES = 16 * 1024 * 1024
