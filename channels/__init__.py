"""Transport of messages between subtasks: frames, handshake, credits, sockets, links inside one worker.

Owns sockets, their threads and their clocks. Must not know storage, Spark, Ray, or the content of control messages.
Knows `snapshot` for frames, markers, channel ends and errors.

::

    ChannelSender ─ schedule ─┬─ connection ─ frame_socket ─ wire ═ socket ═ ... connection ─ ChannelReceiver
                           │                      └─ shared_payloads ═ memory ═ ...  (large ones, on one host)
                           └─ in_process (both subtasks in one worker) ──────────────────── ChannelReceiver
    listener, dialer ─ handshake ─ admission    admission of peers
    control, heartbeat ─ frame_socket           other messages on authenticated sockets
"""
