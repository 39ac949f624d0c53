"""`acp-conductor trace show --follow` of a file that grows."""

from contextlib import suppress

from support.raw_json import compact

from conductor.cli.trace.reading import followed_records


class Writer:
    """Runs one action each time the reader waits; ends the reading after the last one."""

    def __init__(self, *actions):
        self.actions = list(actions)

    def __call__(self):
        if not self.actions:
            raise KeyboardInterrupt
        self.actions.pop(0)()


def line(text):
    """A line that a component wrote to stderr, as a record."""
    return compact({"type": "stderr", "ts": 0, "component": "notes", "text": text}) + "\n"


def read(path, *actions):
    """The texts of the records that are read while the actions are done."""
    texts = []
    with suppress(KeyboardInterrupt):
        for each in followed_records(str(path), Writer(*actions)):
            texts.append(each.text)  # noqa: PERF401: the reading does not end
    return texts


def add(path, text):
    def action():
        with path.open("a") as file:
            file.write(text)

    return action


def test_lines_are_read_when_they_are_whole(tmp_path):
    path = tmp_path / "t.jsonl"
    two, four = line("two"), line("four")
    path.write_text(line("one") + two[:9])

    actions = add(path, two[9:] + line("three") + four[:5]), add(path, four[5:])
    assert read(path, *actions) == ["one", "two", "three", "four"]


def test_a_missing_file_is_waited_for(tmp_path):
    path = tmp_path / "t.jsonl"

    assert read(path, lambda: None, add(path, line("one"))) == ["one"]


def test_reading_goes_on_in_the_new_file_after_a_renaming(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(line("one"))

    def rename():
        add(path, line("two"))()
        path.rename(tmp_path / "t.jsonl.1")

    assert read(path, rename, add(path, line("three"))) == ["one", "two", "three"]
