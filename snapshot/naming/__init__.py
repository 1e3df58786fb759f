"""Naming: by which names stored values refer to classes and functions of a program. Values never hold code."""
