"""The process: start and stop, services, logging, metrics, telemetry and retention."""
