"""The checkers of RELIABILITY, one in a file. `snapshot.testing.checkers` exports all of them."""
