"""Open Responses itself, and the poorer and older servers and clients of this API."""
