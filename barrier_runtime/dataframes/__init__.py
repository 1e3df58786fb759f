"""DataFrames and text files as input, DataFrames as output: the nodes, and their files."""
