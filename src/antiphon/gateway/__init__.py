"""The life of a turn: route, resolve the history, plan, prepare, run, record."""
