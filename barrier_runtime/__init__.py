"""Where graphs run: barrier stages of Spark, workers, the coordinator's Ray actor, the supervisor, the command line.

What users import; everything else here is internal.
"""

from barrier_runtime.dataframes import DataFrameSource, ParquetSink
from barrier_runtime.run import Run
from barrier_runtime.runtime import BarrierRuntime
from snapshot.restart_policy import RestartPolicy

__all__ = ["BarrierRuntime", "DataFrameSource", "ParquetSink", "RestartPolicy", "Run"]
