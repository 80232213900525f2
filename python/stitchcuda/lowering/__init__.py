"""ATen -> IR. `registry` holds the handlers, one module per family; `lower` walks an exported program."""
