"""The process of a barrier task and the worker process that the task forks."""
