"""Models behind an HTTP API: a wire for each API, and one client for all of them."""
