import pytest

from conductor.cli.trace.follow_file import follow_lines


class Writer:
    """Runs one action each time the reader waits; ends the reading after the last one."""

    def __init__(self, *actions):
        self.actions = list(actions)

    def __call__(self):
        if not self.actions:
            raise KeyboardInterrupt
        self.actions.pop(0)()


def read(path, *actions):
    lines = []
    with pytest.raises(KeyboardInterrupt):
        lines.extend(iter_into(lines, follow_lines(path, Writer(*actions))))
    return lines


def iter_into(lines, source):
    for each in source:
        lines.append(each)
    return []


def add(path, text):
    def action():
        with path.open("a") as file:
            file.write(text)

    return action


def test_lines_are_read_when_they_are_whole(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("one\ntw")

    assert read(path, add(path, "o\nthree\nfo"), add(path, "ur\n")) == [
        b"one\n",
        b"two\n",
        b"three\n",
        b"four\n",
    ]


def test_a_missing_file_is_waited_for(tmp_path):
    path = tmp_path / "t.jsonl"

    assert read(path, lambda: None, add(path, "one\n")) == [b"one\n"]


def test_reading_goes_on_in_the_new_file_after_a_renaming(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("one\n")

    def rename():
        add(path, "two\n")()
        path.rename(tmp_path / "t.jsonl.1")

    assert read(path, rename, add(path, "three\n")) == [b"one\n", b"two\n", b"three\n"]
