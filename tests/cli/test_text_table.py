from conductor.cli.text_table import table


def test_columns_are_aligned_and_a_row_may_end_early():
    assert list(table(("name", "count", "size"), [("a long name", "7"), ("b", "1000", "5 B")])) == [
        "name         count  size",
        "a long name      7",
        "b             1000   5 B",
    ]
