"""`cursor_questions`: questions of Cursor's agent. `forms` has them in the protocol's terms."""

from proxies.cursor_questions.proxy import CursorQuestions

__all__ = ["CursorQuestions"]
