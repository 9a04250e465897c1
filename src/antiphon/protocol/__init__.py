"""The hub: Open Responses as types, one codec, one writer, one grammar, one fold.

Everything in this room is pure: no sockets, no clock, no log. Ids and time come in as arguments.
"""
