"""``python -m penstock`` is the command line."""

from penstock.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
