"""What every reader and writer of JSON here keeps to."""

MAX_DEPTH = 64


def without_surrogates(text: str) -> str:
    """Pairs become the character they mean, lone halves the replacement character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
