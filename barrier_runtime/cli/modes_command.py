"""The command ``cutline modes``: show which modes can run a graph, and what the graph lacks for the others."""

from __future__ import annotations

from cutline.barrier_runtime.cli.formatting import print_all, print_json
from cutline.barrier_runtime.cli.options import all_modes
from cutline.barrier_runtime.cli.plan_command import GraphArgument, LogOption, MasterOption, load_graph
from cutline.barrier_runtime.cli.snapshot_commands import JsonOption
from cutline.snapshot.plan.compiled_graph import problems_by_mode
from cutline.snapshot.plan.modes import MARKERS


def modes(
    graph: GraphArgument, master: MasterOption = None, log: LogOption = None, as_json: JsonOption = False
) -> None:
    """Show which modes can run a graph, and what the graph lacks for each other mode, by node.

    A setting has a line of its own where it needs more than its mode. Nothing starts or changes, but Spark for a graph
    that a function of the session makes.

    Example: `cutline modes jobs.bank:graph`
    """
    problems = problems_by_mode(load_graph(graph, master, log), all_modes())
    found = {MARKERS: [], **{name: each for name, each in problems.items() if _differs(name, problems)}}
    if as_json:
        print_json([{"mode": name, "allowed": not lacks, "missing": lacks} for name, lacks in found.items()])
        return
    width = max(map(len, found))
    for name, lacks in found.items():
        head, *others = lacks or [""]
        print_all(f"{name:<{width}}  {'no ' if lacks else 'yes'}  {head}".rstrip())
        print_all(*(f"{'':<{width}}       {each}" for each in others))


def _differs(name: str, problems: dict[str, list[str]]) -> bool:
    """Return whether a line says more than that of the mode without the setting."""
    mode, _, setting = name.partition(":")
    return not setting or problems[name] != problems[mode]
