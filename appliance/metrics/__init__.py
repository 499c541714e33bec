"""What the box tells Prometheus: the catalogue of metrics, the reading of every part's statistics, the text."""
