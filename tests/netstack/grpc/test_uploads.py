"""The room for large messages."""

from netstack.grpc.uploads import Uploads


def test_grants_go_in_order_and_what_is_forgotten_is_not_granted() -> None:
    uploads, granted = Uploads(100), list[str]()

    def first() -> None:
        granted.append("first")

    uploads.want(80, lambda: granted.append("held"))
    uploads.want(50, first)
    uploads.want(10, lambda: granted.append("second"))
    assert granted == ["held"], "a small one does not pass a large one"
    uploads.forget(first)
    uploads.give(0)
    assert granted == ["held", "second"]
