"""The worker's machine: control messages and reports in, effects out. No sockets, threads or clock."""
