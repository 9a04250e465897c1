"""Scripted, strict servers of every dialect: for tests, for `check` and for the bench."""
