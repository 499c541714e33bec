"""One table in Delta's format: where it is, its log, its Parquet files and their statistics."""
