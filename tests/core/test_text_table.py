from p2pkm.core.text_table import align_blocks, align_columns

LINES = [["", "one", "two", "three"], ["ring", "1", "22", "3"], ["star", "4", "5", "666666"]]


def test_a_table_that_fits_is_one_block():
    assert align_blocks(LINES) == align_columns(LINES) == [
        "      one  two   three",
        "ring    1   22       3",
        "star    4    5  666666",
    ]  # fmt: skip


def test_blocks_repeat_the_first_column_and_are_no_wider_than_asked():
    assert align_blocks(LINES, width=14) == [
        "      one  two", "ring    1   22", "star    4    5", "",
        "       three", "ring       3", "star  666666",
    ]  # fmt: skip
    assert align_blocks(LINES, width=13) == align_blocks(LINES, breaks=(2, 3))


def test_a_block_begins_where_it_must():
    lines = align_blocks(LINES, breaks=(2,))
    assert lines[:4] == ["      one", "ring    1", "star    4", ""] and lines[4] == "      two   three"


def test_a_column_wider_than_a_block_has_its_own():
    assert align_blocks(LINES, width=1) == align_blocks(LINES, breaks=(1, 2, 3))
