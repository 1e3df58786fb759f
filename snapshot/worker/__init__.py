"""The worker's machine: control messages and reports in, effects out. Pure: no sockets, threads or clock."""
