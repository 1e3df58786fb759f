"""Whom a simulated coordinator hears: the newest connection of each worker of its stage."""

from __future__ import annotations

from cutline import Graph
from cutline.snapshot.coordinator import control
from cutline.snapshot.testing.lists import ListSink, ListSource
from cutline.snapshot.testing.simulation.connection import Connection
from cutline.snapshot.testing.simulation.simulated_coordinator import SimulatedCoordinator
from cutline.snapshot.testing.simulator import Simulator
from cutline.snapshot.testing.steps import Listen, Quiesce

#: number of a process that the simulator has not started
PROCESS = 99


class Process:
    """A second process that says it is worker 0."""

    number, process, incarnation = 0, PROCESS, 0

    def __init__(self) -> None:
        self.got: list[control.CoordinatorMessage] = []

    def put(self, message: control.CoordinatorMessage) -> None:
        self.got.append(message)

    def disconnect(self) -> None:
        pass


def registered(launch: str | None = None) -> tuple[Simulator, SimulatedCoordinator, Process, Connection, Connection]:
    """Let a second process register as worker 0 of a launch. Return its connection, and that of the first."""
    graph = Graph("line").add("numbers", ListSource(1, 2, 3)).add("out", ListSink()).connect("numbers", "out")
    simulator = Simulator(graph, [])
    simulator.take(Quiesce())
    driver = simulator._cluster.driver
    simulated, process = driver.simulated, Process()
    assert simulated is not None and driver.launch is not None
    first = simulated.connections[0]
    second = simulated.connect(process)
    second.send(control.WorkerRegistered(0, launch or driver.launch, 0, b"0", PROCESS))
    simulator.take(Listen(PROCESS, simulated.number))
    return simulator, simulated, process, second, first


def test_a_worker_that_connects_anew_replaces_its_connection() -> None:
    """The old connection is dropped. A registration that comes again on the new one drops nothing."""
    simulator, simulated, _, second, first = registered()
    assert (simulated.connections[0], first.is_open, second.is_open) == (second, False, True)
    second.send(control.WorkerRegistered(0, str(simulated.driver.launch), 0, b"0", PROCESS))
    simulator.take(Listen(PROCESS, simulated.number))
    assert (simulated.connections[0], second.is_open) == (second, True)


def test_a_worker_of_an_older_stage_replaces_nobody() -> None:
    """The worker is told to quit, and the machine does not hear of it (PROTOCOL 6.4, launch token)."""
    _, simulated, process, second, first = registered("an older stage")
    assert simulated.connections[0] is first and first.is_open and second is not first
    assert process.got == [control.Quit("its stage is over")]
