"""The room for large messages."""

from functools import partial

from netstack.grpc.uploads import OwnUploads, Uploads


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


def test_addresses_have_their_turns_however_much_one_of_them_wants() -> None:
    uploads, granted = Uploads(10), list[str]()
    greedy, modest = OwnUploads(uploads, "10.0.0.1"), OwnUploads(uploads, "10.0.0.2")
    for number in range(5):
        greedy.want(10, partial(granted.append, f"greedy {number}"))
    modest.want(10, partial(granted.append, "modest"))
    assert (granted, uploads.is_crowded) == (["greedy 0"], True)
    for _ in range(5):
        greedy.give(10)
    assert granted == ["greedy 0", "greedy 1", "modest", "greedy 2", "greedy 3", "greedy 4"]
    assert not uploads.is_crowded


def test_who_wants_nothing_any_more_is_in_nobodys_way() -> None:
    uploads, granted = Uploads(10), list[str]()
    first, second = partial(granted.append, "first"), partial(granted.append, "second")
    uploads.want(10, lambda: None)
    uploads.want(10, first, "a")
    uploads.want(10, second, "b")
    uploads.forget(first, "a")
    uploads.forget(first, "c")
    uploads.give(10)
    assert (granted, uploads.is_crowded) == (["second"], False)
