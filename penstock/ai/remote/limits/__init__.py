"""How many requests may be under way, and how fast they may follow."""
