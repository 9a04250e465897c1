"""Probe a server: send the kinds of requests that clients send, and write a profile for the gateway from the results.

The requests are written by hand and do not depend on the gateway. Every finding holds its request and the answer.
"""
