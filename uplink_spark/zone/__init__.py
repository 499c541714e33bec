"""The files of a landing zone, as the centre writes them and Spark reads them."""
