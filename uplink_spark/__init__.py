"""Ships log ranges upstream and lets Spark read them."""
