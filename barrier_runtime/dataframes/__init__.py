"""DataFrames as input and output: the nodes, and their files."""
