"""The command `cutline`, which submits graphs, reads stored snapshots and watches runs.

::

    commands                        the commands, their options and exit codes
    snapshot_commands               cutline snapshots list | show | verify | diff
    snapshot_edit_commands          cutline snapshots take | pin | unpin | delete
    live_run                        cutline stop, and commands to a run through its page
    demo_commands                   cutline demo wordcount | bank
    run_command                     cutline run | restore | fork: graph_loader, session, progress, interrupts
    plan_command, modes_command     cutline plan, cutline modes
    options                         the options of commands that start a graph or plan a start
    top                             cutline top: page_client, top_view
    stored, records                 the content of a store, as plain data
    difference                      the differences between two snapshots, as plain data and as tables
    formatting                      output for terminals and as JSON
    completion                      completions for shells
"""

from cutline.barrier_runtime.cli.commands import app, main

__all__ = ["app", "main"]
