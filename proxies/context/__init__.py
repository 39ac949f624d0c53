"""`context`: adds texts before the user's prompt. `files` finds and reads those of a project."""

from proxies.context.proxy import PromptContext

__all__ = ["PromptContext"]
