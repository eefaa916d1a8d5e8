"""Models behind an HTTP API: how each is spoken to, and one client for all of them."""
