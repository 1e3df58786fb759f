"""DataFrames as input and output: the nodes, and the files behind them."""
