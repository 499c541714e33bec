from netstack.serving.http_answer import WHAT, http_answer


def test_the_answer_is_whole_and_ends_the_connection() -> None:
    head, _, body = http_answer("Look at ü.\n").partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 400 Bad Request"
    assert f"Content-Length: {len(body)}" in lines
    assert "Connection: close" in lines
    assert body.decode() == WHAT + "Look at ü.\n"
