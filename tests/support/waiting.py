"""Wait for messages of the conductor itself, before or after a response."""

from support.peers.process import Editor, Message, chunk


def told(editor: Editor, text: str) -> Message:
    """The next message of the conversation that contains a text, be it read already or not."""
    for message in editor.others:
        if text in chunk(message):
            editor.others.remove(message)
            return message
    return editor.next(lambda message: text in chunk(message))
