"""Tasks of the enterprise world: assignments, attacks, and the catalog that crosses them."""
