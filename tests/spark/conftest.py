"""Fixtures of Sparks other than the session of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.clusters import private_home, standalone_cluster


@pytest.fixture(scope="session")
def standalone_master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a standalone cluster: a master and two workers with one core each, as processes of their own."""
    with standalone_cluster(tmp_path_factory.mktemp("standalone")) as url:
        yield url


@pytest.fixture
def local_cluster_environment(tmp_path: Path) -> dict[str, str]:
    """What a script needs in its environment to use ``local-cluster[...]`` and leave no files behind."""
    return {"SPARK_HOME": str(private_home(tmp_path))}
