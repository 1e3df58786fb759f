"""Snapshots, and the classes by which users declare graphs. Pure: no sockets, files, threads, clocks, Spark or Ray."""
