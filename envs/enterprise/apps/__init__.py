"""The apps of a workspace, each a set of tables and tools over them."""
