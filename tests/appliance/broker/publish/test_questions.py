"""Who asked, and how many questions are kept."""

from appliance.broker.publish.questions import LONGEST, Questions, ReplyRoute

MINE, OTHERS = ReplyRoute("key-one", "c@1", "T"), ReplyRoute("key-two", "c@1", "U")


def test_a_question_belongs_to_who_asked_it_first() -> None:
    questions = Questions()
    questions.asked("id", MINE)
    questions.asked("id", OTHERS)
    assert questions.find("id") == MINE
    questions.asked("id", MINE._replace(topic="again"))  # sent again by the same
    assert (questions.find("id"), questions.find("no"), questions.find(None)) == (
        MINE._replace(topic="again"),
        None,
        None,
    )


def test_the_oldest_question_of_the_same_key_makes_room() -> None:
    questions = Questions(most_of_one=2, most=3)
    questions.asked("theirs", OTHERS)
    for number in range(5):
        questions.asked(f"id{number}", MINE)
    assert [questions.find(f"id{number}") is not None for number in range(5)] == [False, False, False, True, True]
    questions.asked("more", OTHERS)
    assert (questions.find("theirs"), questions.find("more"), len(questions)) == (None, OTHERS, 3)
    questions.asked("a third key's", ReplyRoute("key-three", "c", "T"))
    assert (questions.find("a third key's"), len(questions)) == (None, 3)


def test_a_question_of_endless_names_is_not_kept() -> None:
    questions = Questions()
    questions.asked("x" * (LONGEST + 1), MINE)
    questions.asked("id", MINE._replace(client_id="x" * (LONGEST + 1)))
    assert len(questions) == 0
