"""The experimenter: tries on any server what clients will ask of it, and writes the profile with which the gateway then succeeds.

It knows nothing of the gateway: what it sends is written out by hand, and every finding keeps what was sent and what came.
"""
