"""The parts of the PySpark data sources: landed pieces to rows."""
