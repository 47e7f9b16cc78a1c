"""The generated pages, a module each; `docs/generate.py` writes them."""
