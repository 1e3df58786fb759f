"""The fixture of live runs of tests/system."""

from __future__ import annotations

from tests.system import conftest as system

live = system.live
