"""The black-box judge of any server that claims Open Responses: cases over HTTP and SSE, each named after the rows it shows."""
