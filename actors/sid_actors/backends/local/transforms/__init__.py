"""The catalogue's entries: one module a transformation, each with one `find(source)` that yields its sites."""
