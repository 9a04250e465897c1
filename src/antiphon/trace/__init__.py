"""What happened to a request, on disk, if the operator asks for it."""
