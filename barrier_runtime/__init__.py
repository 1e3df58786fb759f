"""The runtime: barrier stages of Spark, workers, the coordinator's Ray actor, the supervisor, the command line."""
