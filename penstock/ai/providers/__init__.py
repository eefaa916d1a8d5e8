"""Remote providers: the wire of each API, its defaults, and its batch API."""
