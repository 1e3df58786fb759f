"""The command `cutline`: submits graphs, looks at stored snapshots, watches runs.

::

    commands                        the commands, their options and exit codes
    snapshot_commands               cutline snapshots list | show | verify | diff
    demo_commands                   cutline demo wordcount | bank
    run_command                     cutline run: graph_place, session, progress, json_lines, interrupts
    top                             cutline top: page_client, top_view, keyboard
    stored, records, difference     what a store holds, as plain data
    completion, words               shells and people
"""

from barrier_runtime.cli.commands import app, main

__all__ = ["app", "main"]
