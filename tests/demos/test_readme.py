"""The README's code runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.leaks import LeakCheck
from tests.source_files import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.ray
def test_the_code_of_the_readme_runs(
    spark: SparkSession,
    ray_instance: None,
    leak_check: LeakCheck,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All blocks, one behind the other; only the folder is another one."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    code = "\n".join(blocks)
    assert "/data/snapshots" in code
    exec(code.replace("/data/snapshots", str(tmp_path)), {"__name__": "readme"})
    assert capsys.readouterr().out.splitlines()[-1] == "100 [] True"
