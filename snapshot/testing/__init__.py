"""Simulator, exploration, checkers, and the users' toolkit. `cutline.testing` lists what users import."""
