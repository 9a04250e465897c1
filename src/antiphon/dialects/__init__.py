"""One package a dialect, always the same eight names, translating to the hub and from it. Dialects never import each other.

`request_to_hub`, `request_from_hub`, `EventsToHub`, `EventsFromHub`, `response_to_hub`, `response_from_hub`, `error_to_hub`,
`error_from_hub`. An upstream uses one half of each pair, a client-facing endpoint the other. All of it is pure.
"""
