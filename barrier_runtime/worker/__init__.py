"""Inside a barrier task: the task's process and the worker that it forks."""
