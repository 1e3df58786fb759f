"""Every limit of the package, with its reason. Sizes in bytes and durations in seconds unless named otherwise."""

from __future__ import annotations

#: Payload of one data frame. Twice the largest message that a sending end takes, so that a record batch with
#: its schema always fits; small enough that one lying length cannot take a worker's memory.
FRAME_BYTES_MAX = 256 * 1024 * 1024

#: Payload of one control message. Small states and recorded messages travel to the coordinator inside it.
CONTROL_BYTES_MAX = 64 * 1024 * 1024

#: Payload of one handshake message: a proof and three names of `NAME_BYTES_MAX`. All that a stranger can make us hold.
HANDSHAKE_BYTES_MAX = 4 * 1024

#: Names (run, worker) in a handshake: as long as a file name may be.
NAME_BYTES_MAX = 255

#: What a channel may have in flight or unprocessed at its receiver. Eight frames of 32 KiB hide a round trip of
#: 0.2 ms at 10 Gbit/s. Not more, because all of it is in every unaligned snapshot: with four times as much, ten
#: snapshots a second cost a third of the throughput of small messages instead of an eighth.
CREDIT_WINDOW_BYTES = 256 * 1024

#: Frames that a window has room for however large they are: one being written, one on the way, one being handled.
WINDOW_FRAMES = 3

#: The same between two subtasks of one worker, and in the out-buffer: they take turns, so more only waits, and is in
#: every unaligned snapshot (docs/SPEED.md has what batches gain).
LOCAL_FRAMES = 1

#: A receiver gives credit back when it has this part of the window, so that there are few credit frames and
#: the sender still has three quarters of the window while one is on its way.
CREDIT_GRANT_DIVISOR = 4

#: Frames that are taken from the sending ends before the socket accepts them. They count as written, so a marker
#: goes behind them: enough for one large gathered write, 0.1 ms of loopback.
WRITE_BUFFER_BYTES = 256 * 1024

#: What one call of `pump` may write, so that one fast peer does not keep the loop from others. More than a few large
#: frames: one that stays behind another is no more in the caches when it is summed up.
PUMP_BYTES_MAX = 4 * 1024 * 1024

#: What one call of `receive` may read, for the same reason.
RECEIVE_BYTES_MAX = 1024 * 1024

#: What one read may take before its frames are known. Larger frames are read straight into their own memory.
READ_AHEAD_BYTES = 64 * 1024

#: Unsent bytes that the kernel holds for a TCP connection (TCP_NOTSENT_LOWAT). A marker waits behind them: to a peer
#: that reads slowly 6 ms instead of 15 on loopback. The congestion window, which this does not limit, keeps links full.
KERNEL_UNSENT_BYTES = 128 * 1024

#: Send buffer of a Unix socket, which has no unsent mark: full speed on loopback.
UNIX_SEND_BUFFER_BYTES = 256 * 1024

#: Payloads from this size on go through memory that both workers map, where they are on one host. Smaller ones cost
#: more in calls than the kernel's copies take.
SHARED_PAYLOAD_BYTES_MIN = 64 * 1024

#: That memory, of each direction: what a few channels have sealed and on its way, in frames of 64 Ki rows of 16 bytes,
#: and what a snapshot still holds. What is not reached is never there; what was stays as long as the connection.
SHARED_MEMORY_BYTES = 16 * 1024 * 1024

#: A frame up to this size is joined into one buffer: to copy it costs less than a gathered write.
JOINED_BYTES_MAX = 4 * 1024

#: Buffers in one gathered write; the kernel takes 1,024.
GATHERED_BUFFERS_MAX = 512

#: Control messages that wait for a peer which does not read. Four of the largest.
CONTROL_BACKLOG_BYTES_MAX = 4 * CONTROL_BYTES_MAX

#: A handshake takes four messages; 5 s bear a peer that is busy starting, and end a peer that only holds the line.
HANDSHAKE_DEADLINE_SECONDS = 5.0

#: Handshakes under way at a listener. Beyond it the oldest is dropped: an honest peer needs milliseconds, so
#: under a flood the oldest is a stranger.
PENDING_HANDSHAKES_MAX = 128

#: Connections that the kernel queues for a listener; the usual ceiling of Linux.
LISTEN_BACKLOG = 4096

#: Connections that one call of `accept` takes, so that a flood does not keep the loop from its work.
ACCEPTS_PER_CALL = 64

#: Pause between two attempts to connect: a peer's listener may not be up, or one incarnation behind.
RECONNECT_PAUSE_SECONDS = 0.02

#: Heartbeats each way. Their cost is a few system calls a second and peer.
HEARTBEAT_INTERVAL_SECONDS = 0.5

#: Silence that counts as death. Twenty missed heartbeats: a machine that swaps or compiles is not dead.
HEARTBEAT_DEADLINE_SECONDS = 10.0

#: What a cycle's out-buffer may hold on disk. A job that needs more produces faster than it consumes, for ever.
SPILL_BYTES_MAX = 4 * 1024 * 1024 * 1024

#: One spill file. Space is given back by whole files, so this is also what may be held in vain.
SPILL_SEGMENT_BYTES = 16 * 1024 * 1024
