"""Add versions of local databases."""

from __future__ import annotations

from collections.abc import Iterator

from cutline.snapshot.modes.room import LedgerSite, Room
from cutline.snapshot.modes.versions.ledger import VersionLedger
from cutline.snapshot.modes.versions.version_capture import VersionCapture
from cutline.snapshot.subtask.components import SubtaskComponents
from cutline.snapshot.subtask.strand import Strand
from cutline.snapshot.worker.ledger import Ledger


class Versions(Room):
    """The room of versions."""

    def equip(self, made: SubtaskComponents) -> None:
        """Let cuts begin versions."""
        if made.core.topology.row.makes_versions:
            made.strands += (VersionCapture(made.core.keyed, made.core.context),)

    def ledgers(self, at: LedgerSite) -> Iterator[tuple[Strand, Ledger]]:
        """Yield the ledger of versions."""
        if at.components.core.topology.row.makes_versions:
            yield Strand.VERSIONS, VersionLedger(at.subtask)
