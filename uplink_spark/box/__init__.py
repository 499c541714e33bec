"""What runs on a box: cuts pieces from the log, sends them, keeps receipts, declares gaps."""
