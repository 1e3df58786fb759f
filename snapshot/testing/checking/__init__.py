"""The checkers of RELIABILITY, one in a file; `snapshot.testing.checkers` is their door."""
