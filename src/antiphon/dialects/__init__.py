"""One package for each dialect, which translates to the hub and from it. Dialects never import each other.

Every package has the same names: `request_to_hub`, `request_from_hub`, `EventsToHub`, `EventsFromHub`,
`response_to_hub`, `response_from_hub`, `error_to_hub`, `error_from_hub`. An upstream uses one half of each pair, an
endpoint for clients the other. All of it is pure. `registry` has a record of each dialect.
"""
