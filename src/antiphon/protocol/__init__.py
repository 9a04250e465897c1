"""The hub: the types of Open Responses, one codec, one writer, one grammar, one fold.

This package is pure: no sockets, no clock, no log. Ids and time are arguments.
"""
