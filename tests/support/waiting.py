"""Wait for messages of the conductor itself, before or after a response."""

from support.peers.process import Editor, Message, chunk


def told(editor: Editor, text: str) -> Message:
    """The next message of the conversation that contains a text, be it read already or not."""
    for message in editor.others:
        if text in chunk(message):
            editor.others.remove(message)
            return message
    return editor.next(lambda message: text in chunk(message))


def notice(message: Message) -> dict[str, str]:
    """The update of a notice; nothing for any other message."""
    update = message.get("params", {}).get("update", {})
    return update if update.get("sessionUpdate") == "notice" else {}


def told_by_notice(editor: Editor) -> dict[str, str]:
    """The next notice, be it read already or not."""
    for message in editor.others:
        if found := notice(message):
            editor.others.remove(message)
            return found
    return notice(editor.next(lambda message: bool(notice(message))))
